"""Programs that hide an allocation where an analysis of paths or owners could overlook it.

Each comes with arguments for which its call returns, and with whether that call allocates. Knows
nothing of how proofs are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, types

import alloccheck

N, V = types.int64, types.float64[::1]


@dataclass(frozen=True)
class Program:
    """A function with its question, a call that returns, and the truth about that call."""

    function: Callable[..., Any]
    signature: tuple[Any, ...]
    arguments: tuple[Any, ...]
    allocates: bool


PROGRAMS: dict[str, Program] = {}


def attack(*signature: Any, call: tuple[Any, ...], allocates: bool) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(function: Any) -> Any:
        PROGRAMS[function.__name__] = Program(function, signature, call, allocates)
        return function

    return enter


def argument(name: str, index: int) -> Any:
    """One argument of the call of a program."""
    return PROGRAMS[name].arguments[index]


def entry(name: str) -> Any:
    """A program as a function that runs what was judged, whatever the verdict."""
    program = PROGRAMS[name]
    function = alloccheck.check_allocs(on_failure="report")(program.function)
    function.compile(program.signature)
    return function


@njit
def fails(n):
    t = np.ones(n)
    if t.sum() >= 0:
        raise ValueError("no")
    return 0.0


@njit
def passes_on(n):
    return fails(n) + 1.0


@njit
def wraps(n):
    r = 0.0
    try:
        r = passes_on(n)
    except Exception:
        raise KeyError("wrapped")
    return r


@attack(N, call=(5,), allocates=True)
def swallowed(n):
    try:
        fails(n)
    except Exception:
        return 1.0
    return 2.0


@attack(N, call=(5,), allocates=True)
def swallowed_after_it_was_wrapped(n):
    try:
        wraps(n)
    except Exception:
        return 1.0
    return 2.0


@attack(N, call=(2,), allocates=True)
def tried_again(n):
    while True:
        try:
            if n > 0:
                fails(n)
            return float(n)
        except Exception:
            n -= 1


@attack(N, call=(5,), allocates=True)
def return_in_finally(n):
    try:
        fails(n)
    finally:
        return 3.0


@attack(N, call=(5,), allocates=True)
def break_in_finally(n):
    while True:
        try:
            fails(n)
        finally:
            break
    return 1.0


@njit
def stops(n):
    for i in range(n):
        if i == 2:
            raise ValueError("stopped", i)
        yield float(i)


@attack(N, call=(5,), allocates=True)
def values_of_an_error_out_of_a_generator(n):
    s = 0.0
    try:
        for v in stops(n):
            s += v
    except Exception:
        s = -1.0
    return s


@njit
def buffered(n):
    t = np.ones(n)
    for i in range(n):
        yield t[i]


@attack(N, call=(5,), allocates=True)
def generator_left_early(n):
    s = 0.0
    for v in buffered(n):
        s += v
        if s > 1.0:
            break
    return s


@njit
def careless(n):
    for i in range(n):
        try:
            fails(i + 1)
        except Exception:
            pass
        yield i


@attack(N, call=(3,), allocates=True)
def generator_that_swallows(n):
    s = 0
    for v in careless(n):
        s += v
    return s


@njit
def elements(x):
    for i in range(x.size):
        yield x[i]


@njit
def doubled(x):
    for v in elements(x):
        yield v * 2.0


@attack(V, call=(np.arange(4.0),), allocates=False)
def generator_in_generator(x):
    s = 0.0
    for v in doubled(x):
        s += v
    return s


@attack(N, call=(5,), allocates=True)
def handler_of_a_division(n):
    try:
        return 1 / (n - 5)
    except Exception:
        return np.ones(n).sum()


@attack(N, call=(3,), allocates=False)
def errors_that_never_leave(n):
    c = 0
    for i in range(10):
        try:
            if i % 2:
                raise ValueError("odd", i)
        except Exception:
            c += n
    return c


@attack(V, N, call=(np.arange(6.0), 1), allocates=True)
def shift_within_one_buffer(x, k):
    x[k:] = x[: x.size - k]


@attack(V, call=(np.arange(6.0),), allocates=True)
def reversal_in_place(x):
    x[:] = x[::-1]


@njit
def even(n):
    if n == 0:
        return 1.0
    return odd(n - 1)


@njit
def odd(n):
    if n == 0:
        return np.ones(2).sum()
    return even(n - 1)


@attack(N, call=(5,), allocates=True)
def base_of_a_mutual_recursion(n):
    return even(n)


@njit
def deep(n):
    try:
        if n == 0:
            fails(3)
        return deep(n - 1)
    except Exception:
        return 1.0


@attack(N, call=(3,), allocates=True)
def recursion_that_swallows(n):
    return deep(n)


@attack(V, N, call=(np.arange(4.0), 4), allocates=True)
def variable_bound_anew_in_a_loop(x, n):
    a = x
    for i in range(n):
        if i % 2 == 1:
            a = np.ones(3)
        else:
            a = x
    return a[0]


@attack(V, N, call=(np.arange(4.0), 3), allocates=False)
def views_exchanged_in_a_loop(x, n):
    a = x
    b = x[1:]
    for i in range(n):
        a, b = b, a
    return a[0]


@attack(V, N, call=(np.arange(4.0), 9), allocates=True)
def new_array_on_one_arm(x, n):
    y = x if n < 5 else np.ones(n)
    return y[0]


@attack(N, call=(50,), allocates=True)
def one_turn_of_an_endless_loop(n):
    i = 0
    while True:
        i += 1
        if i > n:
            break
        if i == 40:
            n += int(np.ones(i)[0]) - 1
    return i

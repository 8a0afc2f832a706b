"""Real Numba modules and small contracts that several tests of the analysis share."""

from __future__ import annotations

import re
import textwrap
from functools import cache

import numba
import numpy as np
from numba import njit

from alloccheck.analysis.contracts import Contract, ContractEffect
from alloccheck.effects import Effect, Path

_SMALL_TABLE = (
    (r"NRT_(MemInfo_(alloc|new|varsize)\w*|Allocate\w*|Reallocate)|numba_dict_(new_sized|insert)",
     (Effect.ALLOCATE,)),
    (r"malloc|allocate\d*", (Effect.ALLOCATE,)),
    (r"NRT_MemInfo_call_dtor|NRT_Free|free", (Effect.FREE,)),
    (r"_?Py\w+|numba_gil_\w+|numba_unpickle|numba_do_raise|numba_runtime_build_excinfo_struct",
     (Effect.PYTHON,)),
    (r"numba_(dict_length|dict_set_method_table|get_PyUnicode_ExtendedCase|gettyperecord)|clean\d*",
     ()),
)  # fmt: skip


def contract(symbol, *effects, **more):
    return Contract(symbol, tuple(map(ContractEffect, effects)), "test", "test", **more)


def contracts(symbol):
    """A small table: what the symbols in these tests are known to do."""
    if symbol == "abort":
        return contract(symbol, path=Path.DIVERGE)
    for pattern, effects in _SMALL_TABLE:
        if re.fullmatch(pattern, symbol):
            return contract(symbol, *effects)
    return None


def ir(text):
    """Return an IR snippet without its indentation."""
    return textwrap.dedent(text).lstrip("\n")


@njit
def fails(x, n):
    if n == 3:
        raise ValueError("three")
    if n == 4:
        raise IndexError(n)
    return x + n


@njit
def countdown(n):
    while n > 0:
        if n == 7:
            raise ValueError
        yield n
        n -= 1


def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


def checks(x, n):
    if n < 0:
        raise ValueError("negative")
    return x[n]


def dynamic(x, n):
    return fails(x, n)


def caught(x, n):
    try:
        return fails(x, n)
    except Exception:
        return 0.0


def finally_(x, n):
    y = np.ones(4)
    try:
        y[0] = fails(x, n)
    finally:
        y[1] = 2.0
    return y[0]


def forever(x, n):
    while True:
        y = np.ones(n)
        x += y[0]


def generator(n):
    s = 0
    for k in countdown(n):
        s += k
    return s


def temporary(x):
    return (x * 2.0).sum()


def passes_on(x, b):
    return x if b else x * 2.0


def dictionary(n):
    d = {}
    for i in range(n):
        d[i] = i
    return len(d)


def string(s):
    return s.upper()


def recursive(n):
    if n < 0:
        raise ValueError
    if n == 0:
        return 0
    return recursive(n - 1) + 1


recursive = njit(recursive)

PROGRAMS = {
    "total": (total, "float64(float64[::1])"),
    "checks": (checks, "float64(float64[::1], int64)"),
    "dynamic": (dynamic, "float64(float64, int64)"),
    "caught": (caught, "float64(float64, int64)"),
    "finally": (finally_, "float64(float64, int64)"),
    "forever": (forever, "float64(float64, int64)"),
    "generator": (generator, "int64(int64)"),
    "temporary": (temporary, "float64(float64[::1])"),
    "passes_on": (passes_on, "float64[::1](float64[::1], boolean)"),
    "dictionary": (dictionary, "int64(int64)"),
    "string": (string, "unicode_type(unicode_type)"),
    "recursive": (recursive, "int64(int64)"),
}


@cache
def module_of(name, debug=False):
    """Return the final IR and the entry symbol of one of `PROGRAMS`, as stock Numba makes it."""
    function, signature = PROGRAMS[name]
    function = getattr(function, "py_func", function)
    if name == "recursive":
        dispatcher = recursive
        dispatcher.compile(numba.core.sigutils.normalize_signature(signature)[0])
    else:
        dispatcher = njit(signature, debug=debug)(function)
    (result,) = dispatcher.overloads.values()
    return result.library.get_llvm_str(), result.fndesc.llvm_func_name

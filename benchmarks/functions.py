"""The functions whose first call is measured, from trivial to a linear solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, vectorize
from numba.experimental import jitclass


def trivial(x):
    return x + 1.0


def loop(x):
    total = 0.0
    for i in range(x.size):
        total += x[i] * x[i]
    return total


def reductions(x):
    return x.sum() + x.max() - x.mean()


def array_expression(a, b):
    return (a * b + 1.0).sum()


def dot(a, b):
    return np.dot(a, b)


def sort(x):
    return np.sort(x)


def solve(a, b):
    return np.linalg.solve(a, b)


def dictionary(n):
    counts = {}
    for i in range(n):
        counts[i % 7] = i
    return len(counts)


def string(text):
    return text.upper() + "!"


@jitclass([("x", float64), ("y", float64)])
class Point:
    """A class to be used by a compiled function."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def norm(self):
        return (self.x * self.x + self.y * self.y) ** 0.5


def instance(x, y):
    return Point(x, y).norm()


def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


def exceptions(x, n):
    if n < 0:
        raise ValueError("negative", n)
    try:
        return x[n // n]
    except Exception:
        return 0.0


def counting(n):
    for i in range(n):
        yield i * 2


def generator(n):
    total = 0
    for value in counting(n):
        total += value
    return total


@vectorize  # without signatures: compiled at the first use, by either way
def smooth_maximum(a, b):
    return a + np.log1p(np.exp(b - a))


def ufunc(a, b, out):
    smooth_maximum(a, b, out)


def _vector() -> Any:
    return np.arange(8.0)


def _matrix() -> Any:
    return np.eye(4) + 1.0


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "trivial": (trivial, lambda: (1.0,)),
    "loop": (loop, lambda: (_vector(),)),
    "reductions": (reductions, lambda: (_vector(),)),
    "array expression": (array_expression, lambda: (_vector(), _vector())),
    "np.dot": (dot, lambda: (_matrix(), _matrix())),
    "np.sort": (sort, lambda: (_vector(),)),
    "linalg.solve": (solve, lambda: (_matrix(), np.ones(4))),
    "dict": (dictionary, lambda: (20,)),
    "string": (string, lambda: ("abc",)),
    "jitclass": (instance, lambda: (3.0, 4.0)),
    "recursion": (fibonacci, lambda: (10,)),
    "exceptions": (exceptions, lambda: (_vector(), 3)),
    "generator": (generator, lambda: (10,)),
    "ufunc": (ufunc, lambda: (_vector(), _vector(), np.empty(8))),
}
"""Each function with its arguments."""

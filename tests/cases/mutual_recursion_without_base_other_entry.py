"""Entered by the function without a base, the answer is the same.

https://github.com/numba/numba/pull/4412
"""

from numba import njit


@njit
def f(n):
    if n <= 0:
        return 1
    return g(n - 1)


@njit
def g(n):
    return f(n - 1)


def try_g():
    try:
        g.compile("(int64,)")
    except Exception:
        pass  # Numba gives up from this side; what matters is what it leaves behind


ENTRY = g
SIGNATURE = "(int64,)"
RETURNS = "int64"
RAISES = False
RESULT = 1
PRELUDES = {"failure first": try_g, "other entry first": lambda: f.compile("(int64,)")}


def ARGS():
    return (3,)

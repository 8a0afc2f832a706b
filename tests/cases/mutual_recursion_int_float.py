"""Two functions that call each other and return an int and a float: both return a float.

https://github.com/numba/numba/pull/2130
"""

from numba import njit


@njit
def f(n):
    if n <= 0:
        return 1
    return g(n - 1)


@njit
def g(n):
    if n <= 0:
        return 2.5
    return f(n - 1)


ENTRY = f
SIGNATURE = "(int64,)"
RETURNS = "float64"
RAISES = False
RESULT = 2.5
PRELUDES = {
    "this entry first": lambda: f.compile("(int64,)"),
    "other entry first": lambda: g.compile("(int64,)"),
}


def ARGS():
    return (3,)

"""A function passed as a jitted function is a type of its own: the call is direct.

https://github.com/numba/numba/issues/2952
"""

from numba import njit, typeof, types


@njit
def twice(v):
    return 2 * v


def ENTRY(f, x):
    return f(x) + 1.0


SIGNATURE = (typeof(twice), types.float64)
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 7.0


def ARGS():
    return twice, 3.0

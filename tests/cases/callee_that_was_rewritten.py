"""A callee in its second version, which no longer allocates.

https://github.com/numba/numba/pull/8359
"""

from numba import njit


@njit
def work(a):
    return a + 100.0


def ENTRY(a):
    return work(a) * 2


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 202.0


def ARGS():
    return (1.0,)

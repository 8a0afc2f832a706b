"""A C callback has its helper compiled for it, not as some earlier caller had it.

https://github.com/numba/numba/issues/7168
"""

from numba import cfunc, njit


@njit
def compensation(a, b):
    return (a + b) - a


@njit(fastmath=True)
def fast_caller(a, b):
    return compensation(a, b)


def ENTRY(a, b):
    return compensation(a, b)


SIGNATURE = "float64(float64, float64)"
ENTRY_KIND = "c"
GUARANTEE = "nonblocking"
RAISES = False
PRELUDES = {
    "fast first": lambda: fast_caller.compile("(float64, float64)"),
    "callback first": lambda: cfunc("float64(float64, float64)")(ENTRY),
}

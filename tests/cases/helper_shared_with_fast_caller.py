"""A helper is compiled with the flags of this caller, whoever called it before.

https://github.com/numba/numba/issues/7168
"""

from numba import njit


@njit
def compensation(a, b):
    return (a + b) - a


@njit(fastmath=True)
def fast_caller(a, b):
    return compensation(a, b)


def ENTRY(a, b):
    return compensation(a, b)


SIGNATURE = "(float64, float64)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 0.0  # 1.0 when the sum may be reassociated
PRELUDES = {
    "plain first": lambda: compensation.compile("(float64, float64)"),
    "fast first": lambda: fast_caller.compile("(float64, float64)"),
}


def ARGS():
    return 1e20, 1.0

"""A helper with declared signatures: the one that the call selects is compiled as declared.

https://github.com/numba/numba/issues/8307
"""

from numba import njit


@njit(["(float32, float64)", "(float64, float32)"])
def add(x, y):
    return x + y


def ENTRY(x, y):
    return add(x, y)


SIGNATURE = "(float64, float64)"
RETURNS = "float64"
RAISES = False


def ARGS():
    return 0.1, 0.2

"""A compiled ufunc applied to numbers."""

from numba import vectorize


@vectorize
def blend(x, y):
    return 0.25 * x + 0.75 * y


def ENTRY(x, y):
    return blend(x, y)


SIGNATURE = "(float64, float64)"
RESULT = 1.75


def ARGS():
    return 1.0, 2.0

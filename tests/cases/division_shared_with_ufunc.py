"""A helper that a ufunc compiled first, with NumPy's error model, still raises here.

https://github.com/numba/numba/pull/1437
"""

from numba import njit, vectorize


@njit
def divide(a, b):
    return a / b


def as_ufunc():
    @vectorize(["float64(float64, float64)"])
    def kernel(a, b):
        return divide(a, b)


def ENTRY(a, b):
    return divide(a, b)


SIGNATURE = "(float64, float64)"
RAISES = True
RESULT = 0.5
PRELUDES = {"as ufunc": as_ufunc}


def ARGS():
    return 1.0, 2.0

"""An exception with values that nobody catches: on the way out, through the caller."""

from numba import njit


@njit
def root(x):
    if x < 0.0:
        raise ValueError("negative", x)  # ! allocate raise NRT_*
    return x**0.5


def ENTRY(x):
    return root(x) + 1.0


SIGNATURE = "(float64,)"
RAISES = True
RESULT = 3.0


def ARGS():
    return (4.0,)

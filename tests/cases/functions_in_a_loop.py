"""A loop over functions that each have one declared signature."""

from numba import njit


@njit(["float64(float64)"])
def half(x):
    return x / 2.0


@njit(["float64(float64)"])
def shifted(x):
    return x + 1.0


def ENTRY(x):
    total = 0.0
    for f in (half, shifted):
        total += f(x)
    return total


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 7.0


def ARGS():
    return (4.0,)

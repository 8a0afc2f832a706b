"""An exception that is caught within the call is part of a call that returns."""

from numba import njit


@njit
def root(x):
    if x < 0.0:
        raise ValueError("negative", x)  # ! allocate NRT_*
    return x**0.5


def ENTRY(x):
    try:
        return root(x)
    except Exception:
        return 0.0


SIGNATURE = "(float64,)"

"""A table of functions, entered by a number: one of them allocates."""

import numpy as np
from numba import njit


@njit(["float64(float64)"])
def quiet(x):
    return x + 1.0


@njit(["float64(float64)"])
def loud(x):
    return np.full(5, x).sum()  # ! allocate


FUNCTIONS = (quiet, loud)


def ENTRY(which, x):
    return FUNCTIONS[which](x)


SIGNATURE = "(int64, float64)"


def ARGS():
    return 1, 2.0

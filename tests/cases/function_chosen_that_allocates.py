"""One of two functions, chosen while it runs: one of them allocates, the other does not."""

import numpy as np
from numba import njit


@njit
def quiet(x):
    return x + 1.0


@njit
def loud(x):
    return np.full(3, x).sum()  # ! allocate


@njit
def choose(up):
    if up:
        return quiet
    return loud


def ENTRY(x, up):
    return choose(up)(x)


SIGNATURE = "(float64, boolean)"


def ARGS():
    return 3.0, False

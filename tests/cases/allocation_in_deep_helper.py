"""An allocation three calls down is found where it is written."""

import numpy as np
from numba import njit


@njit
def bottom(n):
    return np.arange(n)  # ! allocate NRT_*


@njit
def middle(n):
    return bottom(n).size


def ENTRY(n):
    return middle(n) + 1


SIGNATURE = "(int64,)"

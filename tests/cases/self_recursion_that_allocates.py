"""A function that calls itself and takes memory at each level."""

import numpy as np
from numba import njit


@njit
def ENTRY(n):
    w = np.ones(2)  # ! allocate NRT_*
    if n <= 0:
        return w[0]
    return w[1] + ENTRY(n - 1)


SIGNATURE = "(int64,)"
RETURNS = "float64"

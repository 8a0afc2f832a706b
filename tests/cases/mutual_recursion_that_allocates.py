"""Two functions that call each other, of which one takes memory."""

import numpy as np
from numba import njit


@njit
def even(n):
    if n == 0:
        return 1.0
    return odd(n - 1)


@njit
def odd(n):
    w = np.zeros(2)  # ! allocate NRT_*
    if n == 0:
        return w[0]
    return even(n - 1)


ENTRY = even
SIGNATURE = "(int64,)"
RETURNS = "float64"
PRELUDES = {"other entry first": lambda: odd.compile("(int64,)")}

"""A generator that makes a buffer when it starts."""

import numpy as np
from numba import njit


@njit
def windows(x, size):
    buffer = np.empty(size)  # ! allocate NRT_*
    for i in range(x.size - size):
        for k in range(size):
            buffer[k] = x[i + k]
        yield buffer


def ENTRY(x):
    total = 0.0
    for window in windows(x, 3):
        total += window[1]
    return total


SIGNATURE = "(float64[::1],)"

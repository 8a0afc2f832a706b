"""Insertion sort of five samples in a scratch buffer that the caller owns.

https://github.com/numba/numba/issues/5373
"""

import numpy as np


def ENTRY(samples, scratch):
    for i in range(5):
        x = samples[i]
        j = i
        while j > 0 and scratch[j - 1] > x:
            scratch[j] = scratch[j - 1]
            j -= 1
        scratch[j] = x
    return scratch[2]


SIGNATURE = "(float64[::1], float64[::1])"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 3.0


def ARGS():
    return np.array([3.0, 1.0, 2.0, 5.0, 4.0]), np.zeros(5)

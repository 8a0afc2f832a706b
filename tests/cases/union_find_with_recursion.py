"""Path compression that calls itself and writes into the caller's array.

https://github.com/numba/numba/issues/6713
"""

import numpy as np
from numba import njit


@njit
def ENTRY(parent, i):
    if parent[i] != i:
        parent[i] = ENTRY(parent, parent[i])
    return parent[i]


SIGNATURE = "(uint64[::1], uint64)"
RETURNS = "uint64"
RAISES = False
RESULT = 0


def ARGS():
    return np.array([0, 0, 1], np.uint64), np.uint64(2)

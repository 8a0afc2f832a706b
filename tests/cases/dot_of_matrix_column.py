"""A column is not contiguous, so it is copied before BLAS sees it.

https://github.com/numba/numba/pull/1584
"""

import numpy as np


def ENTRY(m, v, j):
    return np.dot(m[:, j], v)  # ! allocate


SIGNATURE = "(float64[:, ::1], float64[::1], int64)"
RAISES = True

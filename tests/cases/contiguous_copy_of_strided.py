"""Typed as strided, the array is copied whenever it really is.

https://github.com/numba/numba/issues/5999
"""

import numpy as np


def ENTRY(a):
    return np.ascontiguousarray(a)[1]  # ! allocate NRT_*


SIGNATURE = "(float64[:],)"
RAISES = True

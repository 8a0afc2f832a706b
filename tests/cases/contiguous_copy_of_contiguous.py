"""Typed as contiguous, the same call is a view: the signature decides.

https://github.com/numba/numba/issues/5999
"""

import numpy as np


def ENTRY(a):
    return np.ascontiguousarray(a)[1]


SIGNATURE = "(float64[::1],)"
RESULT = 1.0


def ARGS():
    return (np.arange(8.0),)

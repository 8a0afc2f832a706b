"""A checked index may raise; the exception is a constant.

https://github.com/numba/numba/issues/8028
"""

import numpy as np


def ENTRY(a, i):
    return a[i]


SIGNATURE = "(float64[::1], int64)"
OPTIONS = {"boundscheck": True}
RAISES = True
RESULT = 2.0


def ARGS():
    return np.arange(5.0), 2

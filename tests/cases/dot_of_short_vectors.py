"""Three products written out.

https://github.com/numba/numba/issues/251
"""

import numpy as np


def ENTRY(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


SIGNATURE = "(float64[::1], float64[::1])"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 3.0


def ARGS():
    return np.ones(3), np.ones(3)

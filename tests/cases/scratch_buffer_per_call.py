"""A small scratch array of constant size costs one heap block at every call.

https://github.com/numba/numba/issues/7887
"""

import numpy as np


def ENTRY(x):
    w = np.empty(3)  # ! allocate NRT_*
    w[0] = x
    w[1] = x * x
    w[2] = w[0] + w[1]
    return w[2]


SIGNATURE = "(float64,)"
RETURNS = "float64"
RAISES = True

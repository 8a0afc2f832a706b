"""The same delay line moved element by element, from the far end, needs no temporary.

https://github.com/numba/numba/issues/230
"""

import numpy as np


def ENTRY(line, x):
    for i in range(line.size - 1, 0, -1):
        line[i] = line[i - 1]
    line[0] = x


SIGNATURE = "(float64[::1], float64)"
GUARANTEE = "nonblocking"
RAISES = False


def ARGS():
    return np.arange(16.0), 1.0

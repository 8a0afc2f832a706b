"""A parallel loop: the scheduler allocates, and so does each chunk.

https://github.com/numba/numba/issues/5003
"""

import numpy as np
from numba import prange


def ENTRY(a):
    total = 0.0
    for k in prange(4):  # ! allocate; python
        t = np.zeros(a.size)  # ! allocate NRT_*
        for i in range(a.size):
            t[i] = a[i] * k
        total += t.sum()
    return total


SIGNATURE = "(float64[::1],)"
OPTIONS = {"parallel": True}

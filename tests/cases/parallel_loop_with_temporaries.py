"""A parallel loop: the scheduler allocates, and so does each chunk.

Numba writes the body anew as a kernel, so what happens in it stands on the line of the loop.

https://github.com/numba/numba/issues/5003
"""

import numpy as np
from numba import prange


def ENTRY(a):
    total = 0.0
    for k in prange(4):  # ! allocate NRT_*; python
        t = np.zeros(a.size)
        for i in range(a.size):
            t[i] = a[i] * k
        total += t.sum()
    return total


SIGNATURE = "(float64[::1],)"
OPTIONS = {"parallel": True}

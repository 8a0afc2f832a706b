"""A parallel loop: the scheduler allocates, and so does each chunk.

Numba writes the body anew as a kernel, so what happens in it stands on the line of the loop. The
kernel's wrapper unpacks an exception through a pointer that the exception itself holds.

https://github.com/numba/numba/issues/5003
"""

import numpy as np
from numba import prange


def ENTRY(a):
    total = 0.0
    for k in prange(4):  # ! allocate NRT_*; python; dispatch
        t = np.zeros(a.size)
        for i in range(a.size):
            t[i] = a[i] * k
        total += t.sum()
    return total


SIGNATURE = "(float64[::1],)"
OPTIONS = {"parallel": True}

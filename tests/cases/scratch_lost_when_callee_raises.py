"""A scratch array that lives while a callee raises is never given back.

https://github.com/numba/numba/issues/8689
"""

import numpy as np
from numba import njit


@njit
def fail(flag):
    if flag:
        raise ValueError("late failure")


def ENTRY(n, bad):
    w = np.zeros(n)  # ! allocate NRT_*
    for i in range(n):
        w[i] = i
    fail(bad)
    return w.sum()


SIGNATURE = "(int64, boolean)"
RAISES = True

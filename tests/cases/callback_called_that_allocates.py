"""A C callback that is called from compiled code and makes an array."""

import numpy as np
from numba import cfunc


@cfunc("float64(int64)")
def total(n):
    buffer = np.empty(8)  # ! allocate
    buffer[:] = n
    return buffer[n % 8]


@cfunc("float64(int64)")
def half(n):
    return n / 2


def ENTRY(n):
    chosen = half
    if n > 1:
        chosen = total
    return chosen(n)  # ! allocate; dispatch; python


SIGNATURE = "(int64,)"
RESULT = 3.0


def ARGS():
    return (3,)

"""A parallel sum: the loop itself is clean, handing it to threads is not."""

from numba import prange


def ENTRY(a):
    total = 0.0
    for i in prange(a.size):  # ! allocate; python
        total += a[i]
    return total


SIGNATURE = "(float64[::1],)"
OPTIONS = {"parallel": True}

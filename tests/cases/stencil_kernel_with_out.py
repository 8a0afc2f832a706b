"""A stencil that writes into an array of the caller's."""

import numpy as np
from numba import stencil


@stencil
def smooth(a):
    return 0.5 * (a[-1] + a[1])


def ENTRY(a, b):
    smooth(a, out=b)


SIGNATURE = "(float64[::1], float64[::1])"


def ARGS():
    return np.ones(8), np.zeros(8)

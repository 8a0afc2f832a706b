"""Written into an array of the caller's, an array expression takes no memory."""

import numpy as np


def ENTRY(a, b, out):
    np.add(a, b, out)
    np.multiply(out, 2.0, out)


SIGNATURE = "(float64[::1], float64[::1], float64[::1])"


def ARGS():
    return np.ones(8), np.ones(8), np.zeros(8)

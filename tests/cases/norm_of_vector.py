"""The norm of a contiguous vector goes through BLAS, prepared beforehand."""

import numpy as np


def ENTRY(v):
    return np.linalg.norm(v)


SIGNATURE = "(float64[::1],)"
RESULT = 5.0


def ARGS():
    return (np.array([3.0, 4.0]),)

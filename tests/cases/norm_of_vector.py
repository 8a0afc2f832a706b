"""The norm of a vector first makes a list and an array of its own."""

import numpy as np


def ENTRY(v):
    return np.linalg.norm(v)  # ! allocate


SIGNATURE = "(float64[::1],)"

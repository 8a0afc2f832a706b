"""A loop without an end never returns, and takes memory all the same."""

import numpy as np


def ENTRY(x):
    while True:
        w = np.zeros(3)  # ! allocate diverge
        x[0] += w[0] + 1.0


SIGNATURE = "(float64[::1],)"

"""Python's ways of looping over arrays."""

import numpy as np


def ENTRY(a, b):
    total = 0.0
    for i, x in enumerate(a):
        total += i * x
    for x, y in zip(a, b):
        total += x * y
    return total


SIGNATURE = "(float64[::1], float64[::1])"
RAISES = False
RESULT = 6.0


def ARGS():
    return np.ones(3), np.ones(3)

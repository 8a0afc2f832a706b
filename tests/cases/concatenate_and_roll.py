"""Functions that join and turn arrays make new ones."""

import numpy as np


def ENTRY(a, b):
    joined = np.concatenate((a, b))  # ! allocate
    turned = np.roll(a, 1)  # ! allocate
    return joined[0] + turned[0]


SIGNATURE = "(float64[::1], float64[::1])"

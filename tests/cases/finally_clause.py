"""A finally clause that writes into an array of the caller's."""

import numpy as np


def ENTRY(x, log):
    try:
        y = x * 2.0
    finally:
        log[0] += 1.0
    return y


SIGNATURE = "(float64, float64[::1])"
RESULT = 4.0


def ARGS():
    return 2.0, np.zeros(1)

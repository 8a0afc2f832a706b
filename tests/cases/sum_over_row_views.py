"""Rows of a matrix are views; counting references to the argument cannot free it.

https://github.com/numba/numba/issues/10821
"""

import numpy as np


def ENTRY(a):
    total = 0.0
    for i in range(a.shape[0]):
        row = a[i]
        total += row[0]
    return total


SIGNATURE = "(float64[:, ::1],)"
GUARANTEE = "nonblocking"
RESULT = 3.0


def ARGS():
    return (np.ones((3, 3)),)

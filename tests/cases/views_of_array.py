"""Slices, transposes, flips and reshapes of an array are views."""

import numpy as np


def ENTRY(a):
    inner = a[1:-1, ::2]
    turned = inner.T
    flat = a.reshape(16)
    return turned[0, 0] + flat[::-1][0] + np.ravel(a)[1]


SIGNATURE = "(float64[:, ::1],)"
RESULT = 4.0 + 15.0 + 1.0


def ARGS():
    return (np.arange(16.0).reshape(4, 4),)

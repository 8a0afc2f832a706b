"""Sums, extremes and means of an array are loops."""

import numpy as np


def ENTRY(a):
    return a.sum() + a.mean() + a.max() - a.min() + a.argmax()


SIGNATURE = "(float64[::1],)"
RESULT = 6.0 + 2.0 + 3.0 - 1.0 + 2


def ARGS():
    return (np.array([1.0, 2.0, 3.0]),)

"""Filling an array with one number, in two notations."""

import numpy as np


def ENTRY(a):
    a[:] = 0.0
    a[1:].fill(1.0)


SIGNATURE = "(float64[::1],)"


def ARGS():
    return (np.ones(8),)

"""The same product in three loops."""

import numpy as np


def ENTRY(a, b, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total


SIGNATURE = "(float64[:, ::1], float64[:, ::1], float64[:, ::1])"
GUARANTEE = "nonblocking"
RAISES = False


def ARGS():
    return np.ones((3, 3)), np.ones((3, 3)), np.zeros((3, 3))

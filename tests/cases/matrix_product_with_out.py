"""Even with a matrix to write into, BLAS takes a workspace at each call."""

import numpy as np


def ENTRY(a, b, out):
    np.dot(a, b, out)  # ! allocate numba_xxgemm


SIGNATURE = "(float64[:, ::1], float64[:, ::1], float64[:, ::1])"

"""The inner product of a vector with itself goes through BLAS, which is looked up once.

https://github.com/poliastro/poliastro/pull/1442
"""

import numpy as np


def ENTRY(u):
    return (u @ u) ** 0.5


SIGNATURE = "(float64[::1],)"
RETURNS = "float64"
RESULT = 2.0


def ARGS():
    return (np.ones(4),)

"""A helper once compiled with a wider declared result is inferred anew here.

https://github.com/numba/numba/pull/772
"""

import numpy as np
from numba import njit


@njit
def tail(a):
    return a[1:]


def ENTRY(a):
    v = tail(a)
    return np.dot(v, v)


SIGNATURE = "(float64[::1],)"
RETURNS = "float64"
RESULT = 30.0
PRELUDES = {"declared first": lambda: tail.compile("float64[:](float64[::1])")}


def ARGS():
    return (np.arange(5.0),)

"""A function of SciPy called by its address: only its machine code says what it does.

https://github.com/numba/numba/issues/9752
"""

import ctypes

from numba.extending import get_cython_function_address

huber = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(
    get_cython_function_address("scipy.special.cython_special", "huber")
)


def ENTRY(delta, r):
    return huber(delta, r)


SIGNATURE = "(float64, float64)"
RAISES = False
RESULT = 1.5


def ARGS():
    return 1.0, 2.0

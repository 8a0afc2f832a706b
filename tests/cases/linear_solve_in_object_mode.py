"""A block in object mode is the interpreter itself: there is nothing to prove.

https://github.com/ukaea/PROCESS/pull/3856
"""

import numpy as np
from numba import objmode


def ENTRY(a, b):
    with objmode(x="float64[::1]"):
        x = np.linalg.solve(a, b)
    return x[0]


SIGNATURE = "(float64[:, ::1], float64[::1])"
REFUSED = r"(?i)object mode|objmode"

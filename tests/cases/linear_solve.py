"""Solving a linear system copies both operands and asks for a workspace.

The LAPACK helper reports bad arguments through the interpreter, whatever the call.

https://github.com/QuantEcon/QuantEcon.py/pull/311
"""

import numpy as np


def ENTRY(a, b):
    return np.linalg.solve(a, b)[0]  # ! allocate; python


SIGNATURE = "(float64[:, ::1], float64[::1])"
RAISES = True

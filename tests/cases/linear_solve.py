"""Solving a linear system copies both operands and asks for a workspace.

https://github.com/QuantEcon/QuantEcon.py/pull/311
"""

import numpy as np


def ENTRY(a, b):
    return np.linalg.solve(a, b)[0]  # ! allocate


SIGNATURE = "(float64[:, ::1], float64[::1])"
RAISES = True

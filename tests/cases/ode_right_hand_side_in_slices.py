"""The right-hand side of an ODE in slice notation makes a temporary at each evaluation.

https://github.com/Nicholaswogan/numbalsoda/issues/27
"""

from numba import carray


def ENTRY(t, u, du, p):
    y = carray(u, (8,))
    d = carray(du, (8,))
    d[1:7] = y[1:7] * p[0] + y[2:8] - y[0:6]  # ! allocate; raise raise
    d[0] = -y[0]
    d[7] = -y[7]


SIGNATURE = "void(float64, CPointer(float64), CPointer(float64), CPointer(float64))"
ENTRY_KIND = "c"
RAISES = True

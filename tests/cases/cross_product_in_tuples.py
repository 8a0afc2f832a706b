"""Small vectors held in tuples stay in registers, across calls too.

https://github.com/UXARRAY/uxarray/pull/1674
"""

from numba import njit, types


@njit
def cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


@njit
def unit(a):
    length = (a[0] * a[0] + a[1] * a[1] + a[2] * a[2]) ** 0.5
    if length == 0.0:
        return (0.0, 0.0, 0.0)
    return (a[0] / length, a[1] / length, a[2] / length)


def ENTRY(a, b):
    return unit(cross(a, b))


VECTOR = types.UniTuple(types.float64, 3)
SIGNATURE = (VECTOR, VECTOR)
GUARANTEE = "nonblocking"
RAISES = False
RESULT = (0.0, 0.0, 1.0)


def ARGS():
    return (2.0, 0.0, 0.0), (0.0, 3.0, 0.0)

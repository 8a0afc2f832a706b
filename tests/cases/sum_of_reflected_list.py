"""Reading a reflected list is clean; taking it apart happens before the function begins.

https://github.com/numba/numba/issues/5897
"""

from numba import types


def ENTRY(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


SIGNATURE = (types.List(types.float64, reflected=True),)

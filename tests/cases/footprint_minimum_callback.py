"""A callback for an image filter: the least value of the footprint.

https://github.com/numba/numba/issues/2578
"""

import numpy as np
from numba import carray, njit


@njit
def least(values):
    result = np.inf
    for k in range(values.size):
        if values[k] < result:
            result = values[k]
    return result


def ENTRY(buffer, size, result, user):
    result[0] = least(carray(buffer, (size,), dtype=np.float64))
    return 1


SIGNATURE = "int32(CPointer(float64), int64, CPointer(float64), voidptr)"
ENTRY_KIND = "c"
GUARANTEE = "nonblocking"
RAISES = False

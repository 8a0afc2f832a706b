"""Reading arrays from a dictionary by name; only the KeyError takes memory.

https://github.com/numba/numba/issues/4364
"""

import numpy as np
from numba import types
from numba.typed import Dict

ARRAY = types.float64[::1]


def ENTRY(record, n):
    total = 0.0
    for i in range(n):
        total += record["a"][i]  # ! allocate raise
    return total


SIGNATURE = (types.DictType(types.unicode_type, ARRAY), types.int64)
RAISES = True
RESULT = 3.0


def ARGS():
    record = Dict.empty(types.unicode_type, ARRAY)
    record["a"] = np.ones(4)
    return record, 3

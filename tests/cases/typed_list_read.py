"""Reading and writing items of a typed list in place."""

from numba import types
from numba.typed import List


def ENTRY(values, i):
    values[i] = values[i] + 1.0
    return values[i]


SIGNATURE = (types.ListType(types.float64), types.int64)
RAISES = True
RESULT = 3.0


def ARGS():
    values = List.empty_list(types.float64)
    values.append(2.0)
    return values, 0

"""Deletion from typed lists of arrays and of numbers: an array may be freed, by any destructor."""

from numba import types


def ENTRY(arrays, numbers, k):
    if k > 2:
        del arrays[k]  # ! allocate; python numba_list_delitem
    else:
        del numbers[k]  # ! allocate numba_list_delitem code=AC103


SIGNATURE = (
    types.ListType(types.float64[::1]),
    types.ListType(types.float64),
    types.int64,
)

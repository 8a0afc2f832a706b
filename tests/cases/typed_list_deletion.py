"""Deletion from a typed list of numbers: the memory may shrink, and no item refers to anything."""

from numba import types
from numba.typed import List


def ENTRY(items, k):
    del items[k]  # ! allocate numba_list_delitem code=AC103
    last = items.pop()  # ! allocate numba_list_delitem code=AC103
    first = items.pop(0)  # ! allocate numba_list_delitem code=AC103
    del items[2:3]  # ! allocate numba_list_delete_slice code=AC103
    return first + last


SIGNATURE = (types.ListType(types.float64), types.int64)
RESULT = 7.0


def ARGS():
    items = List.empty_list(types.float64)
    for i in range(8):
        items.append(float(i))
    return items, 3

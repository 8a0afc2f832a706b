"""A typed dictionary of numbers; the KeyError that cannot come still stands in the program."""

from numba import types
from numba.typed import Dict


def ENTRY(table, key):
    if key in table:
        return table[key]  # ! allocate raise
    return -1.0


SIGNATURE = (types.DictType(types.int64, types.float64), types.int64)
RESULT = 2.5


def ARGS():
    table = Dict.empty(types.int64, types.float64)
    table[7] = 2.5
    return table, 7

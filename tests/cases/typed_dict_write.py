"""Writing into a typed dictionary may make it grow."""

from numba import types


def ENTRY(table, key, value):
    table[key] = value  # ! allocate


SIGNATURE = (types.DictType(types.int64, types.float64), types.int64, types.float64)

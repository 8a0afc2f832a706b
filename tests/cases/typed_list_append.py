"""Appending to a typed list may make it grow."""

from numba import types


def ENTRY(values, x):
    values.append(x)  # ! allocate


SIGNATURE = (types.ListType(types.float64), types.float64)

"""Dates and spans of time are integers."""

import numpy as np
from numba import types


def ENTRY(later, earlier):
    return later - earlier


SIGNATURE = (types.NPDatetime("ns"), types.NPDatetime("ns"))
RESULT = np.timedelta64(5, "ns")


def ARGS():
    return np.datetime64(15, "ns"), np.datetime64(10, "ns")

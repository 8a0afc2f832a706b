"""An argument that may be None."""

from numba import types


def ENTRY(x):
    if x is None:
        return 0.0
    return x + 1.0


SIGNATURE = (types.Optional(types.float64),)
RESULT = 3.0


def ARGS():
    return (2.0,)

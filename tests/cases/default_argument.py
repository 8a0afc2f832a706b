"""An argument that is left out takes its default."""

from numba import types


def ENTRY(x, gain=2.0):
    return gain * x


SIGNATURE = (types.float64, types.Omitted(2.0))
GUARANTEE = "nonblocking"
RESULT = 6.0


def ARGS():
    return (3.0,)

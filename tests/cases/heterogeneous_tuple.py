"""Tuples of different types are values, also when they are returned and unpacked."""

from numba import njit


@njit
def split(x):
    return int(x), x - int(x), x > 0.0


def ENTRY(x):
    whole, rest, positive = split(x)
    return whole + rest if positive else rest


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RESULT = 2.5


def ARGS():
    return (2.5,)

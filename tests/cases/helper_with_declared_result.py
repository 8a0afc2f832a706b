"""A helper that declares a narrow result keeps it: dropping it would be another program."""

from numba import njit


@njit("int32(int64)")
def narrow(x):
    return x


def ENTRY(x):
    return narrow(x) + 1


SIGNATURE = "(int64,)"
RAISES = False
RESULT = 6


def ARGS():
    return (2**32 + 5,)

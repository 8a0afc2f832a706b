"""Any number of arguments, as a tuple that is unrolled."""

from numba import literal_unroll, njit


@njit
def total(*values):
    result = 0.0
    for value in literal_unroll(values):
        result += value
    return result


def ENTRY(x):
    return total(x, 2, 0.5)


SIGNATURE = "(float64,)"
RESULT = 3.5


def ARGS():
    return (1.0,)

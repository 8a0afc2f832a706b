"""A helper with its own flags keeps them, and is proved with them."""

from numba import njit


@njit(fastmath=True, error_model="numpy")
def ratio(a, b):
    return a / b


def ENTRY(a, b):
    return ratio(a, b)


SIGNATURE = "(float64, float64)"
RAISES = False
RESULT = 0.5
PRELUDES = {"helper first": lambda: ratio.compile("(float64, float64)")}


def ARGS():
    return 1.0, 2.0

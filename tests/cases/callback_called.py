"""A C callback that is called from compiled code: what it does is what its function does.

Numba calls the wrapper that C would call, by its address, and prints an exception that comes out of
it. Here none does.
"""

from numba import cfunc


@cfunc("float64(float64)")
def square(x):
    return x * x


@cfunc("float64(float64)", error_model="numpy")
def inverse(x):
    return 1.0 / x


BOTH = (square, inverse)


def ENTRY(x, which):
    chosen = inverse
    if which > 1:
        chosen = square
    return square(x) + chosen(x) + BOTH[which % 2](x)


SIGNATURE = "(float64, int64)"
GUARANTEE = "nonblocking"
RESULT = 0.5 * 0.5 + 2.0 + 2.0


def ARGS():
    return 0.5, 1

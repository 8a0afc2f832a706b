"""A C callback that raises: nobody is told, but the interpreter prints it, and the call goes on."""

from numba import cfunc


@cfunc("float64(float64)")
def inverse(x):
    return 1.0 / x


def ENTRY(x):
    return inverse(x)  # ! allocate; dispatch; python numba_gil_ensure


SIGNATURE = "(float64,)"
RAISES = False
RESULT = 2.0


def ARGS():
    return (0.5,)

"""A constant tuple of jitted functions is called directly, also once they are frozen.

https://github.com/numba/numba/pull/5451
"""

from numba import njit


@njit
def up(x):
    return x + 1.0


@njit
def down(x):
    return x - 1.0


BOTH = (up, down)


def freeze():
    for function in BOTH:
        function.compile("(float64,)")
        function.disable_compile()


@njit
def ENTRY(x):
    return BOTH[0](x) * BOTH[1](x)


SIGNATURE = "(float64,)"
RAISES = False
RESULT = 8.0
PRELUDES = {"frozen": freeze}


def ARGS():
    return (3.0,)

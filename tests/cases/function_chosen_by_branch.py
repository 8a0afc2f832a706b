"""One of two functions, chosen while it runs: the call is a branch to both.

Numba takes the signature of such a value from whatever one of the functions was compiled for
first: after a call with integers it refuses this one.
"""

from numba import njit


@njit
def rise(x):
    return x + 0.5


@njit
def fall(x, by=2):
    return x - by


def ENTRY(x, up):
    if up:
        step = rise
    else:
        step = fall
    return step(x) * 2.0


SIGNATURE = "(float64, boolean)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 7.0


def ARGS():
    return 3.0, True

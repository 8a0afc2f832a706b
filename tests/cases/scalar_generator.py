"""A generator that is used up within the function lives on its stack.

https://github.com/numba/numba/pull/1034
"""

from numba import njit


@njit
def countdown(n):
    while n > 0:
        yield n
        n -= 1


def ENTRY(n):
    total = 0
    for k in countdown(n):
        total += k
    return total


SIGNATURE = "(int64,)"
RAISES = False
RESULT = 15


def ARGS():
    return (5,)

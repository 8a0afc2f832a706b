"""A function that calls itself, with an int at its base and a float above.

https://github.com/numba/numba/pull/2130
"""

from numba import njit


@njit
def ENTRY(n):
    if n <= 1:
        return 1
    return ENTRY(n - 1) * 0.5 + ENTRY(n - 2)


SIGNATURE = "(int64,)"
RETURNS = "float64"
RAISES = False
RESULT = 2.375


def ARGS():
    return (4,)

"""A function that a user taught Numba with an overload."""

from numba.extending import overload


def clamp(x, low, high):
    return min(max(x, low), high)


@overload(clamp)
def overload_clamp(x, low, high):
    def implementation(x, low, high):
        if x < low:
            return low
        return high if x > high else x

    return implementation


def ENTRY(x):
    return clamp(x, -1.0, 1.0)


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 1.0


def ARGS():
    return (3.0,)

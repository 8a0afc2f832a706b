"""A compile that failed for want of a helper is forgotten once the helper is there.

https://github.com/numba/numba/pull/3691
"""

from numba import njit


def plain(x):
    return x + 1.0


@njit
def ENTRY(x):
    return helper(x) * 2.0


helper = njit(plain)


def fail_first():
    global helper
    helper = plain
    try:
        ENTRY.compile("(float64,)")
    except Exception:
        pass  # a plain Python function cannot be called; the failure is what Numba remembers
    helper = njit(plain)


SIGNATURE = "(float64,)"
RAISES = False
RESULT = 4.0
PRELUDES = {"failure first": fail_first}


def ARGS():
    return (1.0,)

"""Copying one array into another allocates only if they overlap, which nobody can exclude.

https://github.com/numba/numba/issues/230
"""


def ENTRY(target, source):
    target[:] = source  # ! allocate


SIGNATURE = "(float64[::1], float64[::1])"
RAISES = True

"""When nothing may be prepared, the first call imports SciPy under the interpreter's lock.

https://github.com/poliastro/poliastro/pull/1442
"""


def ENTRY(u):
    return (u @ u) ** 0.5  # ! python first-call numba_xxdot; allocate first-call numba_xxdot


SIGNATURE = "(float64[::1],)"
FIRST_CALL = "forbid"

"""A C callback that may raise: its entry answers with a status, not through the interpreter.

https://github.com/numba/numba/issues/2904
"""


def ENTRY(x):
    if x < 0.0:
        raise ValueError("domain")  # ! raise raise
    return x * 2.0


SIGNATURE = "float64(float64)"
ENTRY_KIND = "c"
RAISES = True

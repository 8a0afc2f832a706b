"""With NumPy's error model the same division cannot raise.

https://github.com/numba/numba/issues/1256
"""


def ENTRY(a, b):
    return (a - b) / (a * b)


SIGNATURE = "(float64, float64)"
OPTIONS = {"error_model": "numpy"}
GUARANTEE = "nonblocking"
RAISES = False
RESULT = -0.5


def ARGS():
    return 1.0, 2.0

"""Division may raise, as in Python; the exception is a constant.

https://github.com/numba/numba/issues/1256
"""


def ENTRY(a, b):
    return (a - b) / (a * b)


SIGNATURE = "(float64, float64)"
GUARANTEE = "nonblocking"
RAISES = True
RESULT = -0.5


def ARGS():
    return 1.0, 2.0

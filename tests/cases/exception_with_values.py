"""A message with values known only at run time takes memory, on the way to the exception.

https://github.com/numba/numba/issues/7834
"""


def ENTRY(x):
    if x < 0.0:
        raise ValueError("bad input", x)  # ! allocate raise NRT_*
    return x**0.5


SIGNATURE = "(float64,)"
RAISES = True
RESULT = 2.0


def ARGS():
    return (4.0,)

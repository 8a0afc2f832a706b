"""A message known at compile time is a constant of the program."""


def ENTRY(x):
    if x < 0.0:
        raise ValueError("bad input", 7)
    return x**0.5


SIGNATURE = "(float64,)"
RAISES = True
RESULT = 2.0


def ARGS():
    return (4.0,)

"""Elementary functions of the C library, some of which appear only in machine code."""

import math


def ENTRY(x):
    return math.sin(x) + math.cos(x) + math.exp(-x) + math.log10(x + 1.0) + x % 0.7 + x**0.3


SIGNATURE = "(float64,)"
RESULT = 2.0


def ARGS():
    return (0.0,)

"""What only an option of another type would do is not in the program at all."""

import numpy as np


def ENTRY(x, detail=None):
    if detail is not None:
        work = np.zeros(100)
        return work.sum() + x
    return x


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 1.0


def ARGS():
    return (1.0,)

"""What only an option of another type would do is not in the program at all."""

import numpy as np
from numba import types


def ENTRY(x, detail=None):
    if detail is not None:
        work = np.zeros(100)
        return work.sum() + x
    return x


SIGNATURE = (types.float64, types.Omitted(None))
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 1.0


def ARGS():
    return (1.0,)

"""A global array is a constant of the program."""

import numpy as np

TABLE = np.array([1.0, 2.0, 4.0, 8.0])


def ENTRY(i):
    return TABLE[i & 3]


SIGNATURE = "(int64,)"
RAISES = False
RESULT = 4.0


def ARGS():
    return (6,)

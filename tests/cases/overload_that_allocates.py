"""An overload whose implementation makes an array: the finding is in its own line."""

import numpy as np
from numba.extending import overload


def padded_sum(x):
    return x


@overload(padded_sum)
def overload_padded_sum(x):
    def implementation(x):
        padded = np.ones(4)  # ! allocate NRT_*
        padded[0] = x
        return padded.sum()

    return implementation


def ENTRY(x):
    return padded_sum(x)


SIGNATURE = "(float64,)"

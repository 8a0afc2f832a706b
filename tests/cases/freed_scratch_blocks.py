"""Under the stronger guarantee, giving the scratch array back counts too; it has no line."""

import numpy as np


def ENTRY(x):  # ! free
    w = np.empty(3)  # ! allocate
    w[0] = x
    return w[0]


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"

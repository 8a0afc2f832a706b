"""Under the stronger guarantee, giving the scratch array back counts too: where it was made."""

import numpy as np


def ENTRY(x):
    w = np.empty(3)  # ! allocate; free
    w[0] = x
    return w[0]


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"

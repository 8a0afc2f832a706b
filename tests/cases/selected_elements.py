"""Selection by a mask, and the places where it is true."""

import numpy as np


def ENTRY(a, mask):
    chosen = a[mask]  # ! allocate
    places = np.where(mask)[0]  # ! allocate
    return chosen[0] + places[0]


SIGNATURE = "(float64[::1], boolean[::1])"

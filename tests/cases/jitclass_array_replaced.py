"""A method that puts a new array in the place of the old one, which may be a Python object's."""

import numpy as np
from numba import float64
from numba.experimental import jitclass


@jitclass([("buffer", float64[::1])])
class Holder:
    def __init__(self):
        self.buffer = np.zeros(4)

    def reset(self, n):
        self.buffer = np.zeros(n)  # ! allocate NRT_*; python NRT_*


def ENTRY(holder):
    holder.reset(8)


SIGNATURE = (Holder.class_type.instance_type,)

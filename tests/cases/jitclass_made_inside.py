"""An instance of a jitclass lives on the heap, wherever it is made.

https://github.com/numba/numba/issues/2166
"""

from numba import float64, int64
from numba.experimental import jitclass


@jitclass([("total", float64), ("n", int64)])
class Accumulator:
    def __init__(self):
        self.total = 0.0
        self.n = 0

    def step(self, v):
        self.total += v
        self.n += 1


def ENTRY(x):
    accumulator = Accumulator()  # ! allocate NRT_*
    for i in range(x.size):
        accumulator.step(x[i])
    return accumulator.total


SIGNATURE = "(float64[::1],)"
RAISES = True

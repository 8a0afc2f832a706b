"""A method that updates numbers of an instance which the caller made."""

from numba import float64, int64
from numba.experimental import jitclass


@jitclass([("mean", float64), ("n", int64)])
class RunningMean:
    def __init__(self):
        self.mean = 0.0
        self.n = 0

    def update(self, x):
        self.n += 1
        self.mean += (x - self.mean) / (self.n + 1e-300)
        return self.mean


def ENTRY(state, x):
    return state.update(x)


SIGNATURE = (RunningMean.class_type.instance_type, float64)
RESULT = 3.0


def ARGS():
    return RunningMean(), 3.0

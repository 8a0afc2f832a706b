"""Members of an instance that are containers: each is held while it is read, and let go on both
ways out, so that the way of the error and the usual one run through the same code."""

from numba import types
from numba.experimental import jitclass
from numba.typed import Dict, List


@jitclass(
    [
        ("levels", types.ListType(types.float64)),
        ("gains", types.DictType(types.int64, types.float64)),
    ]
)
class Mixer:
    def __init__(self):
        self.levels = List.empty_list(types.float64)
        self.levels.append(0.5)
        self.gains = Dict.empty(types.int64, types.float64)
        self.gains[1] = 2.0

    def scaled(self, channel):
        return self.levels[channel] * self.gains[1]  # ! allocate raise NRT_Allocate


def ENTRY(mixer, channel):
    return mixer.scaled(channel) + mixer.scaled(channel)


SIGNATURE = (Mixer.class_type.instance_type, types.int64)
RAISES = True
RESULT = 2.0


def ARGS():
    return Mixer(), 0

"""Making such a structure takes memory."""

from numba import types
from numba.experimental import structref


@structref.register
class PointType(types.StructRef):
    pass


class Point(structref.StructRefProxy):
    def __new__(cls, x):
        return structref.StructRefProxy.__new__(cls, x)


structref.define_proxy(Point, PointType, ["x"])


def ENTRY(x):
    return Point(x).x  # ! allocate NRT_*


SIGNATURE = "(float64,)"

"""A structure of our own on the heap, read and written through its reference."""

from numba import njit, types
from numba.core.extending import overload_method
from numba.experimental import structref


@structref.register
class CounterType(types.StructRef):
    pass


class Counter(structref.StructRefProxy):
    def __new__(cls, n):
        return structref.StructRefProxy.__new__(cls, n)


structref.define_proxy(Counter, CounterType, ["n"])


@overload_method(CounterType, "step")
def counter_step(self):
    def step(self):
        self.n += 1
        return self.n

    return step


def ENTRY(counter):
    return counter.step()


@njit
def make(n):
    return Counter(n)


SIGNATURE = (CounterType((("n", types.int64),)),)
RESULT = 8


def ARGS():
    return (make(7),)

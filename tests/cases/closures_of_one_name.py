"""Two closures of one name, one of which allocates: neither takes the other's place.

https://github.com/numba/numba/issues/10486
"""

import numpy as np
from numba import njit


def make(on_heap):
    if on_heap:

        @njit
        def work(a):
            t = np.zeros(4)  # ! allocate NRT_*
            t[int(a)] = a
            return t[0] + t[1]

    else:

        @njit
        def work(a):
            return a + 100.0

    return work


clean = make(False)
heap = make(True)


def ENTRY(a):
    return clean(a), heap(a)


def callers_of_each():
    @njit
    def heap_first(a):
        return heap(a), clean(a)

    heap_first.compile("(float64,)")


SIGNATURE = "(float64,)"
PRELUDES = {"called in the other order": callers_of_each}

"""Whichever of two threads compiles the helper first, here it is compiled for this caller.

https://github.com/numba/numba/issues/7168
"""

import threading

from numba import njit


@njit
def compensation(a, b):
    return (a + b) - a


@njit(fastmath=True)
def fast_caller(a, b):
    return compensation(a, b)


def race(*functions):
    threads = [threading.Thread(target=f, args=(1.0, 1.0)) for f in functions]
    for thread in threads:
        thread.start()
        thread.join(0.05)
    for thread in threads:
        thread.join()


def ENTRY(a, b):
    return compensation(a, b)


SIGNATURE = "(float64, float64)"
RAISES = False
RESULT = 0.0  # 1.0 when the sum may be reassociated
PRELUDES = {
    "plain thread wins": lambda: race(compensation, fast_caller),
    "fast thread wins": lambda: race(fast_caller, compensation),
}


def ARGS():
    return 1e20, 1.0

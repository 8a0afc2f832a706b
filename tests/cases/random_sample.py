"""The state of the generator is made once for each thread, through the interpreter.

https://github.com/numba/numba/issues/7170
"""

import numpy as np


def ENTRY(p):
    draw = np.random.random()  # ! python first-call-per-thread; allocate first-call-per-thread
    return draw < p


SIGNATURE = "(float64,)"

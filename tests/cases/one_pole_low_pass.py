"""A one-pole filter over a block of audio; its state is an array that the caller owns.

https://www.mdpi.com/2076-3417/10/12/4214
"""

import numpy as np


def ENTRY(x, y, state, a):
    z = state[0]
    for i in range(x.size):
        z = z + a * (x[i] - z)
        y[i] = z
    state[0] = z


SIGNATURE = "(float64[::1], float64[::1], float64[::1], float64)"
GUARANTEE = "nonblocking"
RAISES = False


def ARGS():
    return np.ones(64), np.zeros(64), np.zeros(1), 0.1

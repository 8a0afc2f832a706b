"""Asked whether it may wait, a random draw names the thread's generator state."""

import random


def ENTRY():
    return random.random()  # ! block first-call-per-thread numba_get_py_random_state


SIGNATURE = "()"
GUARANTEE = "nonblocking"

"""Asked whether it may wait, a random draw names the thread's generator state."""

import random


def ENTRY():
    return random.random()  # ! block first-call-per-thread numba_get_py_random_state
    # !^ python first-call-per-thread; allocate first-call-per-thread; free first-call-per-thread


SIGNATURE = "()"
GUARANTEE = "nonblocking"

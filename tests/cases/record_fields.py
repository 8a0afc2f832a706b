"""Fields of structured arrays are read and written in place."""

import numpy as np
from numba import from_dtype, types

ORDER = np.dtype([("price", np.float64), ("size", np.int64)])


def ENTRY(book, i, filled):
    order = book[i]
    order.size -= filled
    return order.price * order.size


SIGNATURE = (from_dtype(ORDER)[::1], types.int64, types.int64)
RESULT = 40.0


def ARGS():
    return np.array([(10.0, 5), (11.0, 2)], dtype=ORDER), 0, 1

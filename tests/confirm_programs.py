"""Functions that `test_confirm` asks about; the helper process imports them from here."""

import enum
from collections import namedtuple

import numpy as np
from numba import carray, cfunc, njit

from alloccheck import check_allocs


@njit
def two_places(x, n):
    first = np.zeros(3)
    total = first[0]
    for value in x:
        total += value
    if n == 123456789:
        second = np.ones(5)
        total += second[0]
    return total


@njit
def shift(out, x):
    out[1:] = x[:-1]


@njit
def negative_copies(x, n):
    if n < 0:
        return x.copy()
    return x


@njit
def sums(x):
    total = 0.0
    for value in x:
        total += value
    return total


@njit
def endless(n):
    while n != 3:
        n = n | 1
    return n


@njit
def raising(n):
    if n > 2:
        raise ValueError("large", n)
    return n


@njit
def wild(x, i):
    x[i] = 1.0


@cfunc("float64(float64)")
def callback(x):
    return np.full(3, x).sum()


@check_allocs("float64(float64[::1])", on_failure="report")
def decorated(x):
    return (x + 1.0).sum()


@njit
def printing(x):
    print(x)


def plain(x, scale=2.0):
    return np.zeros(2)[0] + scale * x


def starred(x, *more):
    total = 0.0
    for value in more:
        total += value
    return np.zeros(2)[0] + total * x


@njit
def of_function(f, x):
    return f(x)


def make():
    def inner(x):
        return np.zeros(2)[0] + x

    return inner


def shift_apart(out, x):
    out[:] = x


Point = namedtuple("Point", "x y")
RECORDS = np.zeros(3, dtype=np.dtype([("a", "f8"), ("b", "i4", 2)], align=True))


@njit
def by_mode(x, mode):
    return np.ones(x.size).sum() if mode else x.size * 1.0


@njit
def halved(x):
    return 0.5 * x


@njit
def of_half(f, x):
    return f(x) + 1.0


@njit
def of_point(p):
    return p.x + p.y


@njit
def of_records(records):
    total = 0.0
    for one in records:
        total += one.a + one.b[1]
    return total


@njit
def of_arrays_in_a_list(arrays):
    total = 0.0
    for one in arrays:
        total += one.size
    return total


@njit
def of_pairs_in_a_dict(pairs, key):
    return pairs[key][0] if key in pairs else 0.0


def window_sum(values, n, out, data):
    total = 0.0
    for one in carray(values, n):
        total += one
    out[0] = total
    return total


def window_copy(values, n):
    return (carray(values, (n,)) * 2.0).sum()


def has_member(found, one):
    return one in found


def part(x, where):
    return x[where].copy().sum()


class Pace(enum.IntEnum):
    FAST = 1
    SLOW = 2


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


def by_pace(x, pace, side):
    if pace == Pace.SLOW and side == Side.RIGHT:
        return np.sin(x).sum()
    return x.sum()


def drawn(random, n):
    total = 0.0
    for _ in range(n % 9):
        total += random.random()
    return total

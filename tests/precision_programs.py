"""Programs that never allocate, free or wait, although their code has calls that could.

Each is of a kind for which a coarser analysis gives a false alarm, and comes with arguments. Beside
each kind stand twins that do what their neighbours only seem to do. Knows nothing of how proofs are
made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.experimental import jitclass
from numba.typed import Dict, List

import alloccheck

F, N = types.float64, types.int64
V, S, M, A = F[::1], F[:], F[:, ::1], F[:, :]
RECORD = np.dtype([("a", "f8"), ("b", "i8"), ("v", "f8", (3,))])
R = typeof(np.zeros(1, RECORD))


@jitclass([("total", F), ("count", N), ("data", V), ("pair", types.UniTuple(F, 2))])
class Box:
    """State of four kinds."""

    def __init__(self):
        self.total = 0.0
        self.count = 0
        self.data = np.zeros(4)
        self.pair = (0.0, 1.0)

    def put(self, value):
        """Keep a value in a ring."""
        self.data[self.count % self.data.size] = value
        self.count += 1
        self.total += value

    def mean(self):
        """The mean of all values."""
        return self.total / max(self.count, 1)


B = Box.class_type.instance_type
ITEMS, TABLE = types.ListType(F), types.DictType(N, F)
NAMES = types.DictType(types.unicode_type, F)


def items():
    """A typed list."""
    made = List.empty_list(F)
    for i in range(4):
        made.append(float(i))
    return made


def table():
    """A typed dict of numbers."""
    made = Dict.empty(N, F)
    for i in range(4):
        made[i] = float(i)
    return made


def names():
    """A typed dict of strings."""
    made = Dict.empty(types.unicode_type, F)
    made["a"] = 1.0
    return made


def vector():
    """Eight numbers."""
    return np.linspace(-1.0, 2.0, 8)


MAKERS: dict[Any, Callable[[], Any]] = {
    V: vector,
    S: lambda: np.linspace(-1.0, 2.0, 16)[::2],
    M: lambda: np.linspace(0.5, 2.0, 64).reshape(8, 8),
    A: lambda: np.linspace(0.5, 2.0, 256).reshape(16, 16)[::2, ::2],
    N: lambda: 3,
    F: lambda: 0.75,
    R: lambda: np.zeros(8, RECORD),
    B: Box,
    ITEMS: items,
    TABLE: table,
    NAMES: names,
    types.unicode_type: lambda: "a",
    types.UniTuple(V, 2): lambda: (vector(), vector()),
}


@dataclass(frozen=True)
class Program:
    """A function with its question, and whether it is clean."""

    kind: str
    function: Callable[..., Any]
    signature: tuple[Any, ...]
    clean: bool = True
    guarantee: str = "nonblocking"
    options: dict[str, Any] = field(default_factory=dict)


PROGRAMS: dict[str, Program] = {}


def kind(name: str, *signature: Any, **known: Any) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(function: Any) -> Any:
        PROGRAMS[function.__name__] = Program(name, function, signature, **known)
        return function

    return enter


def argument(name: str, index: int) -> Any:
    """One argument of the call of a program."""
    return MAKERS[PROGRAMS[name].signature[index]]()


def entry(name: str) -> Any:
    """A program as a function that runs what was judged, whatever the verdict."""
    program = PROGRAMS[name]
    decorator = alloccheck.check_allocs(on_failure="report", **program.options)
    function = decorator(program.function)
    function.compile(program.signature)
    return function


# --- borrowed arguments ---------------------------------------------------------------------------


@njit
def total(v):
    t = 0.0
    for one in v:
        t += one
    return t


@njit
def pick(v, w, n):
    return v if n > 0 else w


@kind("decref of borrowed arguments", V, V, N)
def picked_by_a_helper(x, y, n):
    return pick(x, y, n).sum()


@kind("decref of borrowed arguments", types.UniTuple(V, 2), N)
def arrays_in_a_tuple(t, n):
    r = 0.0
    for one in t:
        r += total(one)
    return r + t[n % 2][0]


@kind("decref of borrowed arguments", V, V, N)
def view_renewed_in_a_loop(x, y, n):
    z = x[1:]
    while n > 0:
        z = y[n:]
        n -= 1
    return z.size


@kind("decref of borrowed arguments", ITEMS, ITEMS, N)
def one_of_two_lists(a, b, n):
    c = a if n else b
    return c[0]


@kind("decref of borrowed arguments", V, V, V, N)
def three_buffers_in_turn(a, b, c, n):
    for _ in range(n):
        c[0] = a[0] + b[0]
        a, b, c = b, c, a
    return a[0]


@kind("decref of borrowed arguments", B, B, N)
def boxes_in_turn(a, b, n):
    for _ in range(n):
        a, b = b, a
    return a.total


@kind("decref of borrowed arguments", V, V, N)
def another_one_after_an_error(x, y, n):
    z = x
    try:
        if n > 3:
            z = y
        z[n] = 1 / (n - 3)
    except Exception:
        z = y[1:]
    finally:
        z[0] = 1.0
    return z.size


@kind("decref of borrowed arguments", V, V, N, clean=False)
def a_new_buffer_in_turn(a, b, n):
    c = np.zeros(8)
    for _ in range(n):
        c[0] = a[0] + b[0]
        a, b, c = b, c, a
    return a[0]


@kind("decref of borrowed arguments", V, V, N, clean=False)
def one_of_two_arrays_is_new(x, y, n):
    z = x if n < 3 else y + 1.0
    return z[0]


# --- error branches of callees that cannot fail ---------------------------------------------------


@njit
def root(v):
    return math.sqrt(v * v)


@njit
def safe(v, n):
    return 0.0 if n == 0 else v / n


@kind("cfunc error branches", F, options={"entry": "c"})
def calls_one_that_cannot_fail(v):
    return root(v) + 1.0


@kind("cfunc error branches", F, N, options={"entry": "c"})
def calls_it_in_a_loop(v, n):
    for _ in range(n):
        v = root(v) * 0.5
    return v


@kind("cfunc error branches", F, N, options={"entry": "c"})
def division_that_was_checked(v, n):
    return safe(v, n)


@kind("cfunc error branches", F, N, options={"entry": "c"}, clean=False)
def calls_one_that_makes_an_array(v, n):
    return root(v) + np.full(n, v).sum()


# --- loops with bounds checks ---------------------------------------------------------------------


@kind("bounds-checked loops", V, options={"boundscheck": True})
def checked_sum(x):
    t = 0.0
    for i in range(x.size):
        t += x[i]
    return t


@kind("bounds-checked loops", M, options={"boundscheck": True})
def checked_matrix(m):
    for i in range(m.shape[0]):
        for j in range(1, m.shape[1]):
            m[i, j] -= m[i, j - 1]


@kind("bounds-checked loops", V, N, options={"boundscheck": True}, clean=False)
def checked_and_caught(x, n):
    try:
        return x[n + 99]
    except Exception:
        return np.ones(n).sum()


# --- out= -----------------------------------------------------------------------------------------


@kind("ufunc out=", V, S)
def sum_into_an_operand(x, s):
    np.add(x, s, x)


@kind("ufunc out=", V, V)
def chain_of_ufuncs(x, y):
    np.multiply(x, 2.0, y)
    np.exp(y, y)
    np.clip(y, 0.0, 1.0, y)


@kind("ufunc out=", M, V)
def row_from_all_rows(m, x):
    np.subtract(m, x, m)


@kind("ufunc out=", V, V, clean=False)
def one_operand_is_new(x, y):
    np.add(x * 2.0, y, y)


# --- slice assignment -----------------------------------------------------------------------------


@kind("slice assignment of disjoint or equal ranges", V, N)
def one_half_from_the_other(x, n):
    x[:n] = x[n : 2 * n]


@kind("slice assignment of disjoint or equal ranges", V, N)
def a_range_from_itself(x, n):
    x[n:] = x[n:]


@kind("slice assignment of disjoint or equal ranges", V, M, B)
def parts_changed_in_place(x, m, b):
    x[:3] *= 2.0
    m[0] += m[1]
    m[:, 2] -= x
    b.data[1:] /= 3.0


@kind("slice assignment of disjoint or equal ranges", M)
def one_row_from_the_next(m):
    m[0] = m[1]


@kind("slice assignment of disjoint or equal ranges", V, V, options={"disjoint": ("x", "y")})
def arguments_said_to_be_disjoint(x, y):
    x[1:] = y[:-1]


@kind("slice assignment of disjoint or equal ranges", V, clean=False)
def ranges_that_meet(x):
    x[1:] = x[:-1]


@kind("overlap checks with constant strides", V)
def even_from_odd(x):
    x[::2] = x[1::2]


@kind("overlap checks with constant strides", V)
def within_a_quarter(x):
    x[0:4:2] = x[1:5:2]


@kind("overlap checks with constant strides", M)
def one_column_from_the_next(m):
    m[:, 0] = m[:, 1]


@kind("overlap checks with constant strides", V, clean=False)
def strides_that_meet(x):
    x[2::2] = x[:-2:2]


# --- dot ------------------------------------------------------------------------------------------


@kind("contiguous dot", V, V, guarantee="nonallocating")
def dot_of_two(x, y):
    return np.dot(x, y)


@kind("contiguous dot", V, V, guarantee="nonallocating")
def dot_by_operator(x, y):
    return x[1:] @ y[:-1]


@kind("contiguous dot", V, S, guarantee="nonallocating", clean=False)
def dot_of_a_strided_one(x, s):
    return np.dot(x, s)


# --- generators -----------------------------------------------------------------------------------


@njit
def each(v):
    for i in range(v.size):
        yield v[i]


@njit
def ramp(n):
    for i in range(n):
        yield i * 0.5


@njit
def buffered(n):
    t = np.ones(n)
    for i in range(n):
        yield t[i]


@njit
def halved(v):
    for one in each(v):
        yield one / 2.0


@kind("scalar generators", V, N)
def generator_of_a_generator(x, n):
    t = 0.0
    for one in halved(x):
        if n == 2:
            continue
        t += one / (n * n + 1)
    return t


@kind("scalar generators", V)
def sum_of_a_generator(x):
    t = 0.0
    for one in each(x):
        t += one
    return t


@kind("scalar generators", N)
def generator_left_early(n):
    t = 0.0
    for one in ramp(n):
        if one > 1.0:
            break
        t += one
    return t


@kind("scalar generators", N, clean=False)
def generator_with_an_array(n):
    t = 0.0
    for one in buffered(n):
        t += one
    return t


# --- records --------------------------------------------------------------------------------------


@kind("records", R)
def fields_in_a_loop(r):
    for i in range(r.size):
        r[i].a += r[i].b


@kind("records", R)
def whole_records_and_nested_arrays(r):
    r[0] = r[1]
    r[0].v[1] = 2.0
    return r[0].v[1] + r.a[0] + r["a"].sum()


@kind("records", R, clean=False)
def sum_of_two_fields(r):
    return (r.a + r.b).sum()


# --- jitclasses -----------------------------------------------------------------------------------


@kind("jitclass attribute updates", B, F)
def numbers_of_a_box(b, v):
    b.total += v
    b.count += 1


@kind("jitclass attribute updates", B, F)
def methods_of_a_box(b, v):
    b.put(v)
    return b.mean()


@kind("jitclass attribute updates", B, F)
def tuple_and_array_of_a_box(b, v):
    b.pair = (b.pair[1], v)
    for i in range(b.data.size):
        b.data[i] *= v


@kind("jitclass attribute updates", B, F, clean=False)
def box_gets_a_new_array(b, v):
    b.data = np.full(4, v)


# --- dicts ----------------------------------------------------------------------------------------


@kind("dict reads", TABLE, N)
def read_with_a_default(d, n):
    return d.get(n, 0.0)


@kind("dict reads", TABLE, N)
def read_of_what_is_there(d, n):
    if n in d:
        return d[n]
    return 0.0


@kind("dict reads", NAMES, types.unicode_type)
def read_by_a_string(d, key):
    return d[key] + d.get("b", 1.0)


@kind("dict reads", TABLE)
def all_of_a_dict(d):
    t = 0.0
    for k, v in d.items():
        t += k * v
    for v in d.values():
        t += v
    return t


@kind("dict reads", TABLE, N, clean=False)
def new_keys(d, n):
    for i in range(100):
        d[n + i] = 0.0

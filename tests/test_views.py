"""Assignments from one part of an array to another part: which need no copy, and which do."""

from __future__ import annotations

import inspect
import itertools
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float64, int64, njit, types

from alloccheck import analyze, check_allocs
from alloccheck.compile.views import Slice, Unknown, apart

V, S = float64[::1], float64[:]
M, F, A = float64[:, ::1], types.Array(float64, 2, "F"), float64[:, :]
SIZES = range(9)

members = st.one_of(st.none(), st.integers(-5, 5))
steps = st.one_of(st.none(), st.integers(1, 3), st.integers(-3, -1))
indices = st.one_of(st.builds(Slice, members, members, steps), st.integers(-5, 5))


def reached(index, size):
    """The elements that an index reaches; None when it raises."""
    if isinstance(index, Slice):
        return set(range(size)[slice(index.start, index.stop, index.step)])
    return {range(size)[index]} if -size <= index < size else None


@settings(max_examples=2000, deadline=None)
@given(indices, indices)
def test_parts_that_are_called_apart_share_no_element_at_any_size(one, other):
    if apart((one,), (other,)):
        for size in SIZES:
            mine, its = reached(one, size), reached(other, size)
            assert mine is None or its is None or not mine & its


N = Unknown("n", 0)
APART = [
    (Slice(None, 3, None), Slice(3, None, None)),
    (Slice(0, 4, None), Slice(4, 8, None)),
    (Slice(-8, -4, None), Slice(-4, None, None)),
    (Slice(None, None, 2), Slice(1, None, 2)),
    (Slice(0, 9, 3), Slice(4, 9, 3)),
    (Slice(None, N, None), Slice(N, None, None)),
    (Slice(3, N, 2), Slice(N, 9, None)),
    (0, 1),
    (-1, -2),
    (0, Slice(1, None, None)),
    (-1, Slice(None, -1, None)),
    (5, Slice(None, 0, None)),
]
PERHAPS = [
    (Slice(None, 3, None), Slice(2, None, None)),
    (Slice(0, 4, None), Slice(-4, None, None)),
    (Slice(None, -1, None), Slice(1, None, None)),
    (Slice(None, None, 2), Slice(1, None, 3)),
    (Slice(None, None, 2), Slice(-1, None, 2)),
    (Slice(None, None, 2), Slice(2, None, 2)),
    (Slice(None, 3, -1), Slice(3, None, None)),
    (Slice(N, None, None), Slice(N, None, None)),
    (Slice(None, N, None), Slice(Unknown("n", 1), None, None)),
    (Slice(None, N, N), Slice(N, None, None)),
    (0, -1),
    (0, N),
    (N, Unknown("k", 0)),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_is_apart_is_seen(one, other):
    assert apart((one,), (other,))
    assert apart((other,), (one,))
    assert apart((N, one), (N, other))


@pytest.mark.parametrize(("one", "other"), PERHAPS)
def test_what_may_meet_is_not_called_apart(one, other):
    assert not apart((one,), (other,))
    assert not apart((other,), (one,))


@settings(max_examples=500, deadline=None)
@given(st.integers(-9, 9), members, members, st.sampled_from([None, 1, 2]))
def test_a_bound_that_two_slices_share_keeps_them_apart(n, start, stop, step):
    assert apart((Slice(start, N, step),), (Slice(N, stop, step),))
    for size in SIZES:
        assert not reached(Slice(start, n, step), size) & reached(Slice(n, stop, step), size)


# --- functions ------------------------------------------------------------------------------------


def halves(x, n):
    x[:4] = x[4:8]


def parted(x, n):
    x[:n] = x[n : 2 * n]


def from_the_end(x, n):
    x[-2:] = x[-4:-2]


def interleaved(x, n):
    x[::2] = x[1::2]


def whole(x, n):
    x[:] = x


def itself(x, n):
    x[n:] = x[n:]


def backwards_to_itself(x, n):
    x[::-1] = x[::-1]


def by_a_name(x, n):
    upper = x[4:8]
    x[:4] = upper


def in_a_loop(x, n):
    for i in range(2):
        x[:i] = x[i : 2 * i]


def through_a_helper(x, n):
    moved(x, n)


@njit
def moved(x, n):
    x[:n] = x[n : 2 * n]


def scaled_in_place(x, n):
    x[:n] *= 2.0


def other_part_added(x, n):
    x[n:4] += x[4:6]


def row_added(m, n):
    m[0] += m[n]


def column_scaled(m, n):
    m[:, n] /= 3.0


def view_taken_before_a_branch(x, n):
    upper = x[4:8]
    if n > 1:
        x[:4] = upper


def bound_kept_in_branches(x, n):
    lower = x[:n]
    if n > 1:
        if n < 5:
            x[n : 2 * n] = lower
        else:
            n = 0


def view_of_this_turn(x, n):
    for i in range(3):
        part = x[i:4]
        if i > 0:
            x[:i] = part[:i]
            x[4 : 8 - i] = part


def rows(m, n):
    m[0] = m[1]


def columns(m, n):
    m[:, 0] = m[:, 1]


def last_rows(m, n):
    m[-1, n:] = m[-2, n:]


def blocks(m, n):
    m[:2, :2] = m[2:4, :2]


def a_row_to_all_others(m, n):
    m[1:] = m[0]


def of_a_row(m, n):
    row = m[n]
    row[:2] = row[2:4]


GOOD = [
    *((f, V) for f in (halves, parted, from_the_end, interleaved, whole, itself)),
    *((f, V) for f in (backwards_to_itself, by_a_name, in_a_loop, through_a_helper)),
    *((f, M) for f in (rows, columns, last_rows, blocks, a_row_to_all_others, of_a_row)),
    *((f, V) for f in (scaled_in_place, other_part_added)),
    *((f, V) for f in (view_taken_before_a_branch, bound_kept_in_branches)),
    *((f, M) for f in (row_added, column_scaled)),
    *((f, F) for f in (rows, columns, blocks, row_added)),
    *((f, S) for f in (whole, itself, scaled_in_place, other_part_added)),
    *((f, A) for f in (row_added, column_scaled)),
]


def values(array):
    if array.ndim == 1:
        return np.arange(1.0, 9.0)
    return np.asarray(np.arange(16.0).reshape(4, 4), order="F" if array.layout == "F" else "C")


@pytest.mark.parametrize(("function", "array"), GOOD)
def test_no_copy_is_compiled_and_values_are_numpys(function, array):
    checked = check_allocs([(array, int64)], guarantee="nonblocking")(function)
    for n in (2, 0) if function is parted else (2,):
        mine, numpys = values(array), values(array)
        function(numpys, n)
        checked(mine, n)
        np.testing.assert_array_equal(mine, numpys)


# --- twins that must keep the copy ----------------------------------------------------------------


def reversed_in_place(x, n):
    x[:] = x[::-1]


def shifted(x, n):
    x[1:] = x[:-1]


def moved_by_one(x, n):
    x[n:] = x[n - 1 : -1]


def bound_changed_meanwhile(x, n):
    lower = x[n - 2 : n]
    n -= 1
    x[n : n + 2] = lower


def other_variable_of_one_name(x, n):
    z = x
    part = z[:4]
    z = z[2:]
    z[:4] = part


def part_of_an_earlier_turn(x, n):
    part = x[:2]
    for i in range(3):
        row = x[i:]
        row[:2] = part
        part = row[2:4]


def view_changed_in_a_branch(x, n):
    part = x[:4]
    if n > 1:
        part = x[2:6]
    x[4:8] = part


def array_changed_in_a_branch(x, n):
    part = x[4:8]
    if n > 1:
        x = x[2:]
    x[:4] = part


def bound_changed_in_a_branch(x, n):
    lower = x[n - 2 : n]
    if n > 1:
        n -= 1
        x[n : n + 2] = lower


def bound_of_an_earlier_turn(x, n):
    k = 1
    part = x[:k]
    while k < 4:
        x[k : 2 * k] = part[:k]
        k += 1
        part = x[:k]
        if k == 3:
            k += 1
            x[k - 1 : 2 * k - 2] = part


def through_a_function(x, n):
    x[1:] = same(x[:-1])


@njit
def same(x):
    return x


def by_arrays(x, n):
    x[np.array([0, 1])] = x[1:3]


def transposed(m, n):
    m[:, :] = m.T


def row_from_column(m, n):
    m[0] = m[:, 0]


def first_from_last(m, n):
    m[0] = m[-1]


BAD = [
    *((f, V) for f in (reversed_in_place, shifted, moved_by_one, bound_changed_meanwhile)),
    *((f, V) for f in (other_variable_of_one_name, part_of_an_earlier_turn, by_arrays)),
    *((f, V) for f in (view_changed_in_a_branch, array_changed_in_a_branch)),
    *((f, V) for f in (bound_changed_in_a_branch, bound_of_an_earlier_turn)),
    (through_a_function, V),
    *((f, S) for f in (halves, parted, interleaved)),  # elements may share their place
    *((f, A) for f in (rows, columns)),
    *((f, M) for f in (transposed, row_from_column, first_from_last)),
]


@pytest.mark.parametrize(("function", "array"), BAD)
def test_where_parts_may_meet_the_copy_stays_and_is_found(function, array):
    assert "AC102" in {one.code for one in analyze(function, (array, int64)).findings}


@pytest.mark.parametrize(("function", "array"), BAD)
def test_values_with_a_copy_are_still_numpys(function, array):
    checked = check_allocs([(array, int64)], on_failure="report")(function)
    mine, numpys = values(array), values(array)
    function(numpys, 2)
    checked(mine, 2)
    np.testing.assert_array_equal(mine, numpys)


WAYS = {
    "tried": "try:\n{}\nexcept Exception:\n    caught = 1",
    "in a handler": "try:\n    caught = 1 // (n - n)\nexcept Exception:\n{}",
    "at last": "try:\n    caught = n + 1\nfinally:\n{}",
    "else": "try:\n    caught = n // 2\nexcept Exception:\n    caught = 0\nelse:\n{}",
}
"""Numba makes a block for each instruction of these."""


def within(function, way, folder):
    """The function with its body in a statement that handles exceptions."""
    lines = inspect.getsource(function).splitlines()
    parameters = lines[0].partition("(")[2]
    body = textwrap.indent(textwrap.dedent("\n".join(lines[1:])), "    ")
    text = f"def f({parameters}\n{textwrap.indent(WAYS[way].format(body), '    ')}"
    namespace = {"np": np, "moved": moved, "same": same, "__name__": "no module: a test's text"}
    path = folder / "within.py"
    path.write_text(text)
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize(
    ("function", "array", "way"),
    [(*one, way) for one, way in zip([*GOOD, *BAD], itertools.cycle(WAYS), strict=False)],
)
def test_copies_in_statements_that_handle_exceptions(function, array, way, tmp_path):
    wrapped = within(function, way, tmp_path)
    checked = check_allocs(on_failure="report")(wrapped)
    mine, numpys = values(array), values(array)
    function(numpys, 2)
    checked(mine, 2)
    np.testing.assert_array_equal(mine, numpys)
    codes = {one.code for one in analyze(wrapped, (array, int64)).findings}
    assert ("AC102" in codes) == ((function, array) in BAD)


def test_elements_in_one_place_are_assigned_as_by_stock_numba():
    def down(x, n):
        x[:3] = x[1:4]
        x[:2] = x[2:4]

    outcomes = []
    for function in (njit([(S, int64)])(down), check_allocs(on_failure="report")(down)):
        memory = np.arange(4.0)
        function(np.lib.stride_tricks.as_strided(memory, (4,), (4,)), 0)
        outcomes.append(memory.tolist())
    assert outcomes[0] == outcomes[1]


def test_stock_numba_keeps_its_copies():
    analyze(halves, (V, int64))
    stock = njit([(V, int64)])(halves)
    (text,) = stock.inspect_llvm().values()
    assert "NRT_Allocate" in text


def narrow_bounds(x, n):
    a = 260
    b = 263
    x[5:8] = x[a:b]


def narrow_bound(x, n):
    a = 260
    x[a:8] = x[2:6]


def narrow_copy(x, n):
    a = n + 126
    b = a
    x[b:] = x[:a]


def beyond_all_indices(x, n):
    x[1:7] = x[2**64 - 8 : 2**64 - 2]


def twin_of_narrow(x, n):
    a = 4
    b = a
    x[b:8] = x[:a]


@pytest.mark.parametrize(
    ("function", "declared"),
    [
        (narrow_bounds, {"a": types.int8, "b": types.int8}),
        (narrow_bound, {"a": types.int8}),
        (narrow_copy, {"b": types.int8}),
        (beyond_all_indices, {}),
    ],
)
def test_bounds_that_change_with_the_type_of_their_variable(function, declared):
    outcomes = []
    for made in (
        njit(locals=declared)(function),
        check_allocs(locals=declared, on_failure="report")(function),
    ):
        x = np.arange(8.0)
        made(x, 2)
        outcomes.append(x.tolist())
    assert outcomes[0] == outcomes[1]
    assert not analyze(function, (V, int64), locals=declared).ok


def test_bounds_whose_declared_type_has_room_are_known():
    assert analyze(twin_of_narrow, (V, int64), locals={"a": types.int8, "b": types.int16}).ok


@pytest.mark.parametrize("k", [(0, 0), (1, 0), (5, 0), (5, 1), (5, 5)])
def test_sizes_that_do_not_fit_raise_as_before(k):
    checked = check_allocs([(V, int64)])(halves)
    x = np.arange(float(sum(k)))
    numpys = x.copy()
    try:
        halves(numpys, 0)
    except ValueError:
        with pytest.raises(ValueError, match="cannot assign slice"):
            checked(x, 0)
    else:
        checked(x, 0)
        np.testing.assert_array_equal(x, numpys)

"""Arguments that are checked once not to overlap, and assignments that rely on it."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float64, int64, njit

from alloccheck import (
    AllocCheckError,
    Refused,
    UsageError,
    analyze,
    check_allocs,
    hermetic,
    nonblocking,
)
from alloccheck.certificate import Certificate
from alloccheck.pytest_plugin import assert_proved

V, S, M = float64[::1], float64[:], float64[:, :]


def whole(out, x):
    out[:] = x


def shifted(out, x):
    out[1:] = x[:-1]
    out[0] = 0.0


def strided(out, x):
    out[::2] = x[::-2]


def parts(out, x):
    first = out[: out.size // 2]
    rest = x[x.size // 2 :][: first.size]
    first[...] = rest[::-1]


def rows(out, x):
    for i in range(out.shape[0]):
        out[i] = x[i, ::-1]


def transposed(out, x):
    out.T[:, :] = x


def reshaped(out, x):
    out.reshape(2, 3)[:, :] = x.reshape((3, 2)).T


def either(out, x):
    y = x[1:] if x[0] > 0.0 else x[:-1]
    out[1:] = y


def broadcast(out, x):
    out[:, :] = x[0]


GUARDED = nonblocking(disjoint=["out", "x"])(shifted)

PROGRAMS = [
    (whole, V, (6,)),
    (whole, S, (6,)),
    (shifted, V, (6,)),
    (shifted, S, (6,)),
    (strided, V, (6,)),
    (parts, S, (6,)),
    (rows, M, (3, 3)),
    (transposed, M, (3, 3)),
    (reshaped, V, (6,)),
    (either, S, (6,)),
    (broadcast, M, (3, 3)),
]


def arrays(array_type, shape):
    out, x = np.zeros(shape), np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    if array_type.layout == "A":
        wide = np.zeros(tuple(2 * n for n in shape))
        out = wide[tuple(slice(None, None, 2) for _ in shape)]
    return out, x


@pytest.mark.parametrize(("function", "array", "shape"), PROGRAMS)
def test_assignments_between_disjoint_arguments_are_proved(function, array, shape):
    checked = check_allocs([(array, array)], disjoint=True)(function)
    out, x = arrays(array, shape)
    expected = out.copy()
    function(expected, x)
    checked(out, x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(checked.reports[(array, array)].findings, [])


@pytest.mark.parametrize(("function", "array", "shape"), PROGRAMS)
def test_they_are_not_proved_without(function, array, shape):
    codes = {one.code for one in analyze(function, (array, array)).findings}
    assert "AC102" in codes
    found = analyze(function, (array, array)).findings
    assert any("disjoint=True" in one.help for one in found)


def test_the_oracle_agrees():
    assert_proved(GUARDED, np.zeros(6), np.arange(6.0))


@pytest.mark.parametrize("call", ["python", "jitted", "checked"])
def test_overlap_raises_before_anything_happens(call):
    checked = check_allocs(disjoint=True)(shifted)

    def caller(out, x):
        checked(out, x)

    calls = {"python": checked, "jitted": njit(caller), "checked": check_allocs(caller)}
    x = np.arange(6.0)
    with pytest.raises(ValueError, match="arrays out and x overlap"):
        calls[call](x[1:], x[:-1])
    np.testing.assert_array_equal(x, np.arange(6.0))
    calls[call](x[:3], x[3:])
    np.testing.assert_array_equal(x, [0.0, 3.0, 4.0, 3.0, 4.0, 5.0])


def test_empty_arrays_overlap_with_nothing():
    checked = check_allocs(disjoint=True)(whole)
    x = np.arange(6.0)
    checked(x[3:3], x[:0])

    @check_allocs(disjoint=True)
    def first(a, b, c):
        c[:] = b
        return a.size

    assert first(x[2:2], x[:3], x[3:]) == 0
    np.testing.assert_array_equal(x, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0])


@settings(max_examples=200, deadline=None)
@given(*[st.integers(0, 12) for _ in range(4)])
def test_the_guard_is_exact_for_contiguous_arrays(a, b, c, d):
    memory = np.arange(12.0)
    out, x = memory[min(a, b) : max(a, b)], memory[min(c, d) : max(c, d)]
    if np.shares_memory(out, x):
        with pytest.raises(ValueError, match="overlap"):
            SIZES(out, x)
    else:
        assert SIZES(out, x) == out.size + x.size


@check_allocs([(V, V)], disjoint=True)
def SIZES(out, x):
    return out.size + x.size


def test_only_named_arrays_are_checked():
    def three(out, x, weights):
        out[:] = x
        return weights[0]

    checked = check_allocs([(V, V, V)], disjoint=["x", "out"])(three)
    x = np.arange(6.0)
    assert checked(x[:3], x[3:], x) == 3.0
    with pytest.raises(ValueError, match="arrays out and x overlap"):
        checked(x[:4], x[2:], x)


# --- what the guard says nothing about ------------------------------------------------------------


def within_one(out, x):
    out[1:] = out[:-1]


def from_a_helper(out, x):
    out[:] = one_of(out, x)


@njit
def one_of(a, b):
    return a[1:] if b[0] > 0.0 else b


def one_or_the_other(out, x):
    y = x
    if x[0] > 0.0:
        y = out
    out[1:] = y[:-1]


def from_a_tuple(out, x):
    for one in (x, out):
        out[1:] = one[:-1]


@pytest.mark.parametrize("function", [within_one, from_a_helper, one_or_the_other, from_a_tuple])
def test_other_assignments_still_copy(function):
    with pytest.raises(AllocCheckError):
        check_allocs([(S, S)], disjoint=True)(function)


@pytest.mark.parametrize("function", [within_one, one_or_the_other, from_a_tuple])
def test_other_assignments_still_have_numpys_values(function):
    checked = check_allocs([(S, S)], disjoint=True, on_failure="report")(function)
    out, x = np.arange(1.0, 7.0), np.arange(10.0, 16.0)
    expected = out.copy()
    function(expected, x)
    checked(out, x)
    np.testing.assert_array_equal(out, expected)


# --- reports, certificates, errors ----------------------------------------------------------------


def test_report_and_certificate_state_the_condition():
    report = analyze(shifted, (V, V), disjoint=["x", "out"])
    sentence = "the arrays out, x do not overlap (ValueError if they do)"
    assert report.certificate.conditions == (sentence,)
    assert f"checked at entry: {sentence}" in str(report)
    text = json.dumps(report.certificate.to_json())
    assert Certificate.from_json(json.loads(text)) == report.certificate
    assert analyze(whole, (V, V)).certificate.conditions == ()
    assert report.certificate.digest != analyze(shifted, (V, V)).certificate.digest


def test_an_njit_dispatcher_keeps_its_options():
    jitted = njit(fastmath=True)(shifted)
    report = analyze(jitted, (V, V), disjoint=True)
    assert report.ok
    assert not jitted.overloads
    checked = check_allocs(jitted, disjoint=True)
    assert checked.targetoptions["fastmath"] is True
    checked(np.zeros(3), np.ones(3))


def test_pickling_keeps_the_guard():
    again = pickle.loads(pickle.dumps(check_allocs(disjoint=["out", "x"])(shifted)))
    x = np.arange(6.0)
    with pytest.raises(ValueError, match="overlap"):
        again(x[1:], x[:-1])


def test_what_cannot_be_guarded_is_refused():
    def each(out, x):
        yield x[0]

    with pytest.raises(Refused, match="generator"):
        analyze(each, (V, V), disjoint=True)
    with pytest.raises(Refused, match="parallel=True"):
        analyze(shifted, (V, V), disjoint=True, parallel=True)
    with pytest.raises(Refused, match="disjoint names 'x', which is int64"):
        analyze(whole, (V, int64), disjoint=["out", "x"])
    assert hermetic(whole)(np.zeros(2), np.ones(2)) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["out", "y"], "disjoint names 'y', which is not a parameter; they are out, x"),
        (["out"], "at least two parameters"),
        (["out", "out"], "at least two parameters"),
        ("out", "True or the names"),
        (3, "True or the names"),
    ],
)
def test_wrong_names_are_told(given, words):
    with pytest.raises(UsageError, match=words):
        check_allocs(disjoint=given)(whole)
    with pytest.raises(UsageError, match=words):
        analyze(whole, (V, V), disjoint=given)

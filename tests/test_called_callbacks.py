"""C callbacks (`cfunc`) that compiled code calls, and that are asked about themselves."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numba import cfunc, njit

import alloccheck
from alloccheck import analyze, check_allocs
from alloccheck.compile.target import make_job
from alloccheck.effects import Effect

pytestmark = pytest.mark.filterwarnings("ignore:First-class function type feature")

NUMBER = "float64(float64)"


@cfunc(NUMBER)
def inverse(x):
    return 1.0 / x


@cfunc(NUMBER, error_model="numpy")
def quiet(x):
    if x == 0.0:
        return np.ones(4)[0] + 1.0 / x
    return 1.0 / x


@njit(error_model="numpy")
def of_quiet_caller(x):
    return inverse(x)


@cfunc("int64(int64)")
def odd(n):
    return n % 2


limit = 0.0


@cfunc(NUMBER)
def limited(x):
    return x if x > limit else x + limit


@check_allocs(on_failure="report")
def calls_inverse(x):
    return inverse(x)


@check_allocs(on_failure="report")
def calls_limited(x):
    return limited(x)


def calls_odd(n):
    if odd(n) < 0:
        return np.ones(3)[0]
    return 1.0


def test_an_exception_is_printed_and_the_call_goes_on(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: printed.append(one.exc_type))
    assert calls_inverse(0.5) == 2.0
    assert not printed
    calls_inverse(0.0)
    assert printed == [ZeroDivisionError]
    report = next(iter(calls_inverse.reports.values()))
    assert Effect.RAISE not in report.effects
    assert {one.symbol for one in report.findings} >= {"numba_gil_ensure", "PyErr_WriteUnraisable"}


def test_a_callback_inherits_no_flags_of_its_caller():
    assert not analyze(of_quiet_caller, NUMBER).ok
    assert analyze(inverse._pyfunc, NUMBER, error_model="numpy").ok


def test_what_a_callback_returns_is_no_status():
    assert not analyze(calls_odd, "(int64,)").ok


def test_another_captured_value_is_another_question(monkeypatch):
    def limits():
        return {
            one.name: one.digest
            for one in analyze(calls_limited, NUMBER).certificate.captures
            if one.function.endswith(":limited")
        }

    before = limits()
    assert analyze(calls_limited, NUMBER).ok
    monkeypatch.setitem(globals(), "limit", 2.0)
    assert before["limit"] != limits()["limit"]


def test_running_code_is_not_what_a_changed_callback_would_be(monkeypatch):
    assert calls_limited(1.0) == 1.0
    assert calls_limited.verify().ok
    monkeypatch.setitem(globals(), "limit", 2.0)
    assert "limit of test_called_callbacks:limited" in str(calls_limited.verify())


# --- asked about themselves -----------------------------------------------------------------------


def test_a_callback_is_judged_with_its_own_options():
    assert not analyze(quiet).ok
    assert analyze(quiet, error_model="python").ok
    assert make_job(quiet).options == {"error_model": "numpy"}


def test_a_decorated_callback_keeps_its_options():
    assert check_allocs(on_failure="report")(quiet)(0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        check_allocs(error_model="python")(quiet)(0.0)


def test_options_under_which_nothing_is_proved_are_refused():
    refused = cfunc(NUMBER, nopython=False)(lambda x: x)
    with pytest.raises(alloccheck.Refused):
        analyze(refused)

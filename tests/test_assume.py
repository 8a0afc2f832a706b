"""`assume`: needs a reason, survives inlining, does not spread, and is reported."""

import numpy as np
import pytest
from numba import njit

from alloccheck import AllocCheckError, UsageError, analyze, assume, check_allocs, hermetic


@njit
@assume("nonallocating", reason="the scratch array is bounded; see the tests")
def trusted(n):
    return np.zeros(n).sum()


@njit
def untrusted(n):
    return np.ones(n).sum()


@assume("nonallocating", reason="adds two numbers")
def harmless(x):
    return x + 1


def test_a_trusted_callee_is_not_reported_and_its_reason_is():
    report = analyze(lambda n: trusted(n) + 1.0, "float64(int64)")
    assert report.ok
    (one,) = report.assumptions
    assert one.used and one.function == "test_assume:trusted"
    assert one.reason == "the scratch array is bounded; see the tests"
    assert report.certificate.assumptions == ((one.function, one.reason),)


def test_a_trust_covers_its_function_alone():
    report = analyze(lambda n: trusted(n) + untrusted(n), "float64(int64)")
    assert not report.ok
    reached = [{frame.function for frame in one.backtrace} for one in report.findings]
    assert all("untrusted" in one and "trusted" not in one for one in reached)
    assert {one.code for one in report.findings} >= {"AC101"}


def test_a_trust_does_not_cover_other_effects():
    assert analyze(lambda n: trusted(n), "float64(int64)").ok
    report = analyze(lambda n: trusted(n), "float64(int64)", guarantee="nonblocking")
    assert not report.ok


def test_an_unused_trust_is_reported():
    helper = njit(harmless)
    report = analyze(lambda x: helper(x) * 2, "int64(int64)")
    assert report.ok
    assert [(one.function, one.used) for one in report.assumptions] == [
        ("test_assume:harmless", False)
    ]
    assert report.certificate.assumptions == ()


def test_a_trust_survives_inlining():
    # So small a function would be inlined, and its allocation would be the caller's.
    @njit
    @assume("nonallocating", reason="measured")
    def small(n):
        return np.empty(n)[0]

    middle = njit(lambda n: small(n) + 0.0)
    assert analyze(lambda n: middle(n) + 1.0, "float64(int64)").ok


def test_marks_above_and_below_the_decorators():
    above = assume("nonallocating", reason="above")(njit(lambda n: np.zeros(n).sum()))
    checked = assume("nonallocating", reason="checked")(hermetic(lambda n: np.zeros(n).sum()))
    for one in (above, checked):
        assert analyze(lambda n: one(n), "float64(int64)").ok


def test_a_trusted_function_works_and_runs():
    @check_allocs
    def use(n):
        return trusted(n) + 2.0

    assert use(3) == 2.0

    @check_allocs
    def both(n):
        return trusted(n) + untrusted(n)

    with pytest.raises(AllocCheckError, match="untrusted"):
        both(3)


@pytest.mark.parametrize("reason", ["", "   ", None, 3])
def test_a_reason_is_required(reason):
    with pytest.raises(UsageError, match="needs a reason"):
        assume("nonallocating", reason=reason)


@pytest.mark.parametrize("words", ["nonalocating", ["allocate", "magic"], []])
def test_unknown_words_are_named(words):
    with pytest.raises(UsageError, match="does not know"):
        assume(words, reason="because")


@pytest.mark.parametrize("target", [3, len, "text", np.sin])
def test_only_functions_can_be_trusted(target):
    with pytest.raises(UsageError, match="marks Python functions"):
        assume("nonallocating", reason="because")(target)


def test_the_function_itself_is_unchanged():
    def plain(x):
        return x

    assert assume(["allocate"], reason="because")(plain) is plain
    assert plain(3) == 3

"""The pytest plugin: fixtures measure, the assertion refutes false proofs, skips are loud."""

import re
import sys
from importlib import metadata

import pytest

pytest_plugins = ("pytester",)

CONFTEST = """
import pytest
pytest_plugins = {plugins}
"""

MODULE = """
import numpy as np
from numba import njit

@njit
def pure(x):
    return x * 2.0

@njit
def allocating(n):
    return np.ones(n).sum()

@njit
def raising(x):
    if x > 0:
        raise ValueError("positive")
    return x
"""

FAKE = """
import alloccheck
import pytest
from alloccheck.effects import Effect, Guarantee
from alloccheck.findings import Finding, Report
from alloccheck.effects import Occasion, Path

FINDING = Finding("AC101", Effect.ALLOCATE, Path.RETURN, Occasion.EVERY_CALL, "NRT_Allocate",
                  "allocates", None, None, None, (), "", "", "")

def proved(function, *arguments, findings=(), certificate=None):
    return Report(f"dsp:{function.py_func.__name__}", "dsp.py", 1, "()", Guarantee.NONALLOCATING,
                  True, findings, frozenset(), certificate=certificate)
"""


@pytest.fixture
def project(pytester):
    # As an installed package pytest finds the plugin by its entry point; from a source tree not.
    installed = any(point.name == "alloccheck" for point in metadata.entry_points(group="pytest11"))
    pytester.makeconftest(
        CONFTEST.format(plugins=[] if installed else ["alloccheck.pytest_plugin"])
    )
    pytester.makepyfile(dsp=MODULE, fake=FAKE)
    return pytester


def test_proofs_are_demanded_and_refuted(project):
    project.makepyfile(
        """
        from types import SimpleNamespace
        import alloccheck, pytest
        import dsp
        from fake import FINDING, proved
        from alloccheck.pytest_plugin import assert_proved as check_proof

        @pytest.fixture(autouse=True)
        def trusting(monkeypatch):
            monkeypatch.setattr(alloccheck, "check_call", proved, raising=False)

        def test_counter(alloc_counter):
            assert alloc_counter(dsp.pure, 1.0).allocations == 0
            assert alloc_counter(dsp.allocating, 3).allocations == 1

        def test_proved(assert_proved):
            report, counts = assert_proved(dsp.pure, 1.0, calls=2)
            assert report.ok and len(counts.calls) == 2 and counts.result == 2.0

        def test_false_proof_is_refuted(assert_proved):
            with pytest.raises(AssertionError, match=r"call 1: allocate by malloc x 1.*NRT_"):
                assert_proved(dsp.allocating, 3, first_call=True)
            with pytest.raises(AssertionError, match=r"refuted by measurement\\n  call 2: "):
                assert_proved(dsp.allocating, 3)

        def test_no_proof(assert_proved, monkeypatch):
            unproved = lambda *a: proved(*a, findings=(FINDING,))
            monkeypatch.setattr(alloccheck, "check_call", unproved)
            with pytest.raises(AssertionError, match="not proved nonallocating"):
                assert_proved(dsp.pure, 1.0)

        def test_raising_call_proves_nothing(assert_proved):
            with pytest.raises(AssertionError, match="raised ValueError: positive"):
                assert_proved(dsp.raising, 1.0)

        def test_certificate_of_other_code(alloccheck_oracle):
            class Other:
                def count(self, *arguments, **options):
                    from dataclasses import replace
                    counts = alloccheck_oracle.count(*arguments, **options)
                    return replace(counts, digest="measured")
            certified = lambda *a: proved(*a, certificate=SimpleNamespace(digest="certified"))
            with pytest.raises(AssertionError, match="measured.*certified"):
                check_proof(dsp.pure, 1.0, oracle=Other(), check=certified)
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", timeout=120)
    result.assert_outcomes(passed=6)


def test_workers_of_xdist_have_an_oracle_each(project):
    project.makepyfile(
        """
        import dsp, pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_counter(alloc_counter, alloccheck_oracle, worker_id, n):
            assert alloc_counter(dsp.allocating, n).allocations == 1
            with open(f"pid-{worker_id}", "w") as out:
                out.write(str(alloccheck_oracle.pid))
        """
    )
    result = project.runpytest_subprocess("-n2", "--dist=each", timeout=120)
    result.assert_outcomes(passed=4)
    pids = {path.read_text() for path in project.path.glob("pid-*")}
    assert len(pids) == 2


TRACERS = {
    "settrace": "import sys\nsys.settrace(lambda frame, event, argument: None)\n",
    "setprofile": "import sys\nsys.setprofile(lambda frame, event, argument: None)\n",
}
"""What coverage tools, debuggers and profilers do before the tests."""


@pytest.mark.parametrize("tracer", TRACERS)
def test_tracing_tools_are_not_counted(project, tracer):
    """They run in the tests' process; the measuring process starts without them."""
    project.makepyfile(
        **{tracer: TRACERS[tracer]},
        test_it="""
        import dsp

        def test_counter(alloc_counter):
            counts = alloc_counter(dsp.pure, 1.0)
            assert (counts.allocations, counts.first_call.allocations) == (0, 0)
            assert alloc_counter(dsp.allocating, 3).allocations == 1

        def test_proved(assert_proved):
            assert_proved(dsp.pure, 1.0)
        """,
    )
    result = project.runpytest_subprocess("-p", tracer, "-p", "no:cacheprovider", timeout=120)
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("concurrently", [(), ("-n2",)], ids=["one process", "xdist"])
def test_coverage_is_not_counted_and_sees_the_tests(project, monkeypatch, concurrently):
    """Also where it starts in each process by itself."""
    project.makepyfile(
        test_it="""
        import dsp, pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_counter(alloc_counter, assert_proved, n):
            assert alloc_counter(dsp.allocating, n).allocations == 1
            assert_proved(dsp.pure, 1.0 * n)
        """
    )
    project.path.joinpath("coverage.ini").write_text("[run]\nparallel = true\npatch = subprocess\n")
    words = ("-m", "coverage", "run", "--rcfile=coverage.ini", "-m", "pytest")
    done = project.run(
        sys.executable, *words, "-p", "no:cacheprovider", *concurrently, "test_it.py", timeout=120
    )
    done.assert_outcomes(passed=2)
    project.run(sys.executable, "-m", "coverage", "combine")
    said = project.run(sys.executable, "-m", "coverage", "report").stdout.str()
    assert re.search(r"test_it\.py +\d+ +0 +100%", said), said


@pytest.mark.parametrize(("required", "outcome"), [("false", "skipped"), ("true", "errors")])
def test_machine_without_compiler(project, monkeypatch, required, outcome):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("ALLOCCHECK_CACHE_DIR", str(project.path / "cache"))
    project.makeini(f"[pytest]\nalloccheck_require_oracle = {required}\n")
    project.makepyfile("def test_it(alloc_counter):\n    assert False\n")
    result = project.runpytest_subprocess("-rs", timeout=120)
    result.assert_outcomes(**{outcome: 1})
    assert "no-such-compiler" in result.stdout.str()


PLAIN = """
    import dsp, pytest
    from alloccheck import analyze
    from alloccheck.oracle import OracleUnavailable, count_effects
    from alloccheck.pytest_plugin import assert_proved

    def test_plain_assertion():
        assert_proved(dsp.pure, 1.0)

    def test_plain_count():
        count_effects(dsp.pure, 1.0)

    def test_with_fixture(assert_proved):
        assert_proved(dsp.pure, 1.0)

    @pytest.fixture
    def counts():
        return count_effects(dsp.pure, 1.0)

    def test_of_own_fixture(counts):
        assert counts.allocations == 0

    def test_that_expects_it():
        try:
            count_effects(dsp.pure, 1.0)
        except OracleUnavailable:
            pass

    def test_of_something_else():
        pass
"""


@pytest.mark.parametrize(
    ("required", "outcomes"),
    [
        ("false", {"skipped": 4, "passed": 2}),
        ("true", {"errors": 2, "failed": 2, "passed": 2}),
    ],
)
def test_plain_calls_are_skipped_as_fixtures_are(project, monkeypatch, required, outcomes):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("ALLOCCHECK_CACHE_DIR", str(project.path / "cache"))
    project.makeini(f"[pytest]\nalloccheck_require_oracle = {required}\n")
    project.makepyfile(PLAIN)
    result = project.runpytest_subprocess("-rs", timeout=120)
    result.assert_outcomes(**outcomes)
    said = "alloccheck_require_oracle is set" if required == "true" else "SKIPPED"
    result.stdout.fnmatch_lines([f"*{said}*no-such-compiler*"])


def test_callbacks_are_proved_and_measured(project):
    project.makepyfile(
        callbacks="""
        import numpy as np
        from numba import cfunc

        @cfunc("float64(float64)")
        def doubled(x):
            if x < 0:
                raise ValueError("negative")
            return x * 2.0

        @cfunc("float64(float64)")
        def copied(x):
            return np.full(3, x).sum()
        """,
        test_it="""
        import callbacks, pytest
        from numba import vectorize
        from alloccheck import UsageError
        from alloccheck.pytest_plugin import assert_proved

        def test_proved():
            report, counts = assert_proved(callbacks.doubled, 1.0)
            assert counts.result == 2.0

        def test_not_proved():
            with pytest.raises(AssertionError, match="not proved"):
                assert_proved(callbacks.copied, 1.0)

        def test_raised():
            with pytest.raises(AssertionError, match="raised ValueError: negative"):
                assert_proved(callbacks.doubled, -1.0)

        def test_ufunc():
            with pytest.raises(UsageError, match="that vectorize or guvectorize was"):
                assert_proved(vectorize(lambda x: x), 1.0)
        """,
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", timeout=120)
    result.assert_outcomes(passed=4)

"""The recorder sees all that Numba compiles, and the program does not notice."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import numba
import numpy as np
import pytest
from numba import cfunc, float64, guvectorize, int64, njit, types, vectorize
from numba.core import ccallback, dispatcher, event
from numba.core.errors import NumbaError
from numba.experimental import jitclass
from numba.np.ufunc import ufuncbuilder

from alloccheck import analyze, check_allocs
from alloccheck.compile import numba_internals
from alloccheck.compile.recording import COMPILE_EVENT, Recorder

HOOKS = (
    (dispatcher._DispatcherBase, "add_overload"),
    (dispatcher._DispatcherBase, "_compile_for_args"),
    (ufuncbuilder.UFuncDispatcher, "compile"),
    (ccallback.CFunc, "compile"),
)


def names(recorder):
    return [one.function.__name__ for one in recorder.compiled]


def test_functions_and_their_callees_are_recorded_with_types_and_options():
    @njit
    def inner(x):
        return x + 1

    @njit(fastmath=True)
    def outer(x, y=2.0):
        return inner(x) * y

    with Recorder() as recorder:
        assert outer(1.0) == 4.0
        assert outer(1.0) == 4.0
        assert outer(1) == 4.0
    assert names(recorder) == ["inner", "outer", "inner", "outer"]
    first = recorder.compiled[1]
    assert first.kind == "function"
    assert first.origin == "compiled"
    assert first.target is outer
    assert first.options["fastmath"] is True
    assert str(first.argument_types) == "(float64, omitted(default=2.0))"
    assert first.return_type is None
    assert first.name.endswith(":" + outer.py_func.__qualname__)
    assert recorder.faults == []


def test_declared_return_types_are_recorded():
    with Recorder() as recorder:

        @njit("float32(float64)")
        def narrow(x):
            return x

    [one] = recorder.compiled
    assert (one.argument_types, one.return_type) == ((float64,), types.float32)


def test_starred_arguments_are_folded_as_calls_fold_them():
    @njit
    def starred(x, *more):
        return x + len(more)

    with Recorder() as recorder:
        starred(1, 2.0, 3.0)
    [one] = recorder.compiled
    assert one.argument_types == (int64, types.StarArgTuple((float64, float64)))
    assert analyze(one.target, one.argument_types).ok


@pytest.mark.parametrize("target", ["lazy", "eager", "parallel", "gufunc"])
def test_kernels_of_ufuncs_are_recorded(target):
    x = np.ones(3)
    with Recorder() as recorder:
        if target == "gufunc":

            @guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")
            def kernel(a, out):
                for i in range(a.size):
                    out[i] = 2.0 * a[i]

        elif target == "lazy":

            @vectorize
            def kernel(a):
                return 2.0 * a

        else:
            options = {"target": "parallel"} if target == "parallel" else {}

            @vectorize(["float64(float64)"], **options)
            def kernel(a):
                return 2.0 * a

        assert kernel(x).tolist() == [2.0] * 3
    [one] = recorder.compiled
    assert one.kind == "ufunc kernel"
    assert one.function.__name__ == "kernel"
    assert one.options["error_model"] == "numpy"


def test_callbacks_are_recorded():
    with Recorder() as recorder:

        @cfunc("float64(float64)")
        def square(x):
            return x * x

    [one] = recorder.compiled
    assert (one.kind, one.target) == ("callback", square)
    assert (one.argument_types, one.return_type) == ((float64,), float64)


def test_methods_of_jitclasses_are_recorded_without_numbas_glue():
    with Recorder() as recorder:

        @jitclass([("x", float64)])
        class Point:
            def __init__(self, x):
                self.x = x

            def twice(self, by):
                return self.x * by

        assert Point(3.0).twice(2.0) == 6.0
    assert sorted(names(recorder)) == ["__init__", "twice"]
    twice = next(one for one in recorder.compiled if one.function.__name__ == "twice")
    assert analyze(twice.target, twice.argument_types).ok


def test_closures_of_one_name_are_two_functions():
    def make(k):
        @njit
        def add(x):
            return x + k

        return add

    with Recorder() as recorder:
        assert make(1)(1) + make(2)(1) == 5
    assert names(recorder) == ["add", "add"]


def test_functions_die_with_the_recorder_not_before():
    def make():
        @njit
        def gone(x):
            return x

        gone(1)
        return weakref.ref(gone.py_func)

    with Recorder() as recorder:
        alive = make()
        gc.collect()
    assert recorder.compiled[0].function is alive()


def test_what_fails_to_compile_is_not_recorded():
    @njit
    def wrong(x):
        return x.no_such_attribute

    with Recorder() as recorder, pytest.raises(NumbaError):
        wrong(1)
    assert recorder.compiled == ()


def test_numbas_own_functions_are_left_out():
    @njit
    def uses_numpy(x):
        return np.sort(x).sum() + np.median(x)

    with Recorder() as recorder:
        uses_numpy(np.ones(3))
    assert names(recorder) == ["uses_numpy"]


def test_other_threads_are_recorded():
    @njit
    def elsewhere(x):
        return x

    with Recorder() as recorder:
        thread = threading.Thread(target=elsewhere, args=(1,))
        thread.start()
        thread.join()
    assert names(recorder) == ["elsewhere"]


def test_our_own_compiles_are_left_out_and_checked_functions_marked():
    @njit
    def asked(x):
        return x + 1

    @check_allocs
    def proved(x):
        return asked(x)

    with Recorder() as recorder:
        assert analyze(asked, "(int64,)").ok
        assert proved(1) == 2
    [one] = recorder.compiled
    assert (one.target, one.origin) == (proved, "checked")


def test_beginnings_and_ends_of_compiles_are_told():
    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x)

    told = []
    with Recorder(
        begins=lambda: told.append("begins"),
        compiled_one=lambda outermost: told.append((len(recorder.compiled), outermost)),
    ) as recorder:
        outer(1)
        outer(1.0)
        assert analyze(outer, "(complex128,)").ok
    assert told == ["begins", (1, False), (2, True), "begins", (3, False), (4, True)]


def test_arguments_of_first_calls_are_shown():
    @njit
    def called(x, y):
        return x + y

    seen = []
    with Recorder(first_call=lambda target, given: seen.append((target, given))):
        called(1, 2)
        called(3, 4)
        called(1.0, 2)
    assert seen == [(called, (1, 2)), (called, (1.0, 2))]


def test_everything_is_put_back():
    before = [owner.__dict__[name] for owner, name in HOOKS]
    listeners = list(event._registered[COMPILE_EVENT])
    with pytest.raises(ZeroDivisionError), Recorder(first_call=lambda *seen: None):
        during = [owner.__dict__[name] for owner, name in HOOKS]
        raise ZeroDivisionError
    assert all(one is not other for one, other in zip(before, during, strict=True))
    assert [owner.__dict__[name] for owner, name in HOOKS] == before
    assert event._registered[COMPILE_EVENT] == listeners


def test_what_goes_wrong_in_recording_does_not_reach_the_program():
    def broken(*seen):
        raise RuntimeError("recorder is broken")

    @njit
    def fine(x):
        return x

    with Recorder(first_call=broken) as recorder:
        assert fine(1) == 1
    assert recorder.faults == ["RuntimeError: recorder is broken"]


def test_code_from_the_disk_cache_is_recorded(tmp_path):
    """It is not compiled, so no event tells of it; but it runs."""
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
            import sys
            from alloccheck.compile.recording import Recorder

            with Recorder() as recorder:
                from cached import total, narrow
                assert total(2) == 4 and narrow(2.0) == 2.0
            print(*sorted((o.function.__name__, o.origin, str(o.return_type))
                          for o in recorder.compiled), *recorder.faults)
        """)
    )
    (tmp_path / "cached.py").write_text(
        textwrap.dedent("""
            from numba import njit

            @njit(cache=True)
            def total(x):
                return 2 * x

            @njit("float32(float64)", cache=True)
            def narrow(x):
                return x
        """)
    )
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "program.py")],
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout.strip())
    assert said[0] == "('narrow', 'compiled', 'float32') ('total', 'compiled', 'None')"
    assert said[1] == "('narrow', 'disk cache', 'float32') ('total', 'disk cache', 'None')"


def test_another_numba_is_refused_loudly():
    """Each hook is in the list that is checked at import."""
    required = {f"{module}.{name}" for module, name in numba_internals.REQUIRED}
    for owner, name in HOOKS:
        assert f"{owner.__module__}.{owner.__qualname__}.{name}" in required
    assert numba.core.event.__name__ in {module for module, _ in numba_internals.REQUIRED}
    assert COMPILE_EVENT in event._builtin_kinds

"""Lazy set-up is triggered before it can happen in a real-time thread, and shows in the verdict."""

import ctypes
import subprocess
import sys
import threading

import numpy as np
import pytest
from numba import _helperlib, njit

from alloccheck import analyze, prepare_thread
from alloccheck.compile import prepare
from alloccheck.oracle import Oracle


def draw(n):
    total = 0.0
    for _ in range(n):
        total += np.random.random()
    return total


def product(a, b):
    return np.dot(a, b)


def test_a_thread_is_prepared_once_and_stays_so():
    seen = []

    def work():
        prepare_thread()
        prepare_thread()
        seen.append(njit(draw)(3))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert 0.0 <= seen[0] <= 3.0


def test_what_is_lazy_per_thread_stays_a_finding_whose_help_names_the_remedy():
    report = analyze(draw, "float64(int64)")
    assert not report.ok
    assert {str(one.occasion) for one in report.findings} == {"first call per thread"}
    assert all("prepare_thread()" in one.help for one in report.findings)
    assert analyze(draw, "float64(int64)", first_call="allow").ok


def test_blas_is_set_up_before_the_proof():
    vectors = "float64(float64[::1], float64[::1])"
    assert analyze(product, vectors).ok
    assert not analyze(product, vectors, first_call="forbid").ok
    assert "numba_xxdot" in analyze(product, vectors).certificate.prepared


def test_what_is_called_prepared_was_set_up():
    # In a process of its own: this one has set up everything already.
    script = (
        "import sys\n"
        "import llvmlite.binding as llvm\n"
        "from numba import _helperlib\n"
        "from alloccheck.compile.prepare import prepare\n"
        "llvm.add_symbol('numba_xxdot', _helperlib.c_helpers['xxdot'])\n"
        "assert 'scipy.linalg.cython_blas' not in sys.modules\n"
        "assert prepare(['numba_xxdot', 'other']) == {'numba_xxdot'}\n"
        "assert 'scipy.linalg.cython_blas' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("answers", [[False], [True, False]])
def test_what_fails_to_be_set_up_is_not_called_prepared(answers, monkeypatch):
    left = iter(answers)
    monkeypatch.setitem(prepare._TRIGGERS, "numba_xxdot", lambda address: next(left))
    assert prepare.prepare(["numba_xxdot"]) == frozenset()
    assert next(left, None) is None


@pytest.mark.parametrize("states", [[0, 0], [1, 2]])
def test_a_state_that_was_not_made_is_told(states, monkeypatch):
    left = iter(states)
    helper = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: next(left))
    address = ctypes.cast(helper, ctypes.c_void_p).value
    monkeypatch.setitem(_helperlib.c_helpers, "get_py_random_state", address)
    with pytest.raises(RuntimeError, match="get_py_random_state made no state for this thread"):
        prepare_thread()


draw_jit = njit(draw)


def test_after_preparation_the_first_call_takes_nothing():
    with Oracle() as oracle:
        bare = oracle.count(draw_jit, 3, calls=2, fresh=True)
        assert bare.first_call.allocations > 0
        assert bare.allocations == 0

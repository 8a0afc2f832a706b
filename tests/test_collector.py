"""The pace of Python's garbage collector while something is compiled."""

import gc
import threading

import pytest

from alloccheck import CompileError, analyze, hermetic
from alloccheck.compile.collector import THRESHOLDS, slow_collector


@pytest.fixture(autouse=True)
def usual_pace():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_slower_inside_and_as_before_after():
    with slow_collector():
        assert gc.get_threshold() == THRESHOLDS
        with slow_collector():
            pass
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == (700, 10, 10)


def test_what_somebody_sets_stands():
    with slow_collector():
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)
    for own in ((0, 10, 10), (1_000_000, 5, 5)):
        gc.set_threshold(*own)
        with slow_collector():
            assert gc.get_threshold() == own
        assert gc.get_threshold() == own


def test_blocks_of_several_threads_may_overlap():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with slow_collector():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with slow_collector():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold() == THRESHOLDS
    leave.set()
    thread.join(60)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("compile_one", [analyze, lambda f, types: hermetic(f).compile(types)])
def test_compiles_use_it_and_put_it_back(compile_one):
    seen = []

    def plain(x):
        return x + 1

    def watch(phase, info):
        seen.append(gc.get_threshold())

    compile_one(plain, "(int64,)")  # the first one imports what it needs
    gc.callbacks.append(watch)
    gc.set_threshold(1, 1, 1)
    try:
        compile_one(plain, "(float64,)")
    finally:
        gc.callbacks.remove(watch)
    assert gc.get_threshold() == (1, 1, 1)
    # Within the compile nothing of that size was reached.
    assert len(seen) < 1000, "the collector ran at its usual pace"

    def wrong(x):
        return x.nothing

    with pytest.raises(CompileError):
        compile_one(wrong, "(float64,)")
    assert gc.get_threshold() == (1, 1, 1)

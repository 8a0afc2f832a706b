"""The canonical cache yields, byte for byte, what an empty world yields, and gives up in doubt."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from numba import njit, types, vectorize
from numba.extending import overload

from alloccheck.compile import canonical
from alloccheck.compile.artifact import build
from alloccheck.compile.captures import looks_recursive
from alloccheck.compile.target import make_job

F, I = types.float64, types.int64  # noqa: E741
V, M = F[::1], F[:, ::1]
SIZE = 3
TABLE = np.arange(4.0)


@njit
def shared(a, b):
    return (a + b) - a


@njit(fastmath=True)
def fast(a, b):
    return shared(a, b)


@njit(error_model="numpy")
def quotient(a, b):
    return shared(a, b) / b


def plain(a, b):
    return shared(a, b) + fast(a, b)


def both(a, b):
    return fast(a, b) * quotient(a, b) + shared(b, a)


def total(x):
    return (x + 1.0).sum() + x.mean()


def product(m, x):
    return np.dot(m, x)[0]


def ordered(x):
    return np.sort(x)[0] + total_jit(x)


total_jit = njit(total)


@njit
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def recursive(n):
    return factorial(n) + SIZE


def words(n):
    return len(str(n) + "x")


def table(n):
    return TABLE[n] * SIZE


@vectorize
def blend(a, b):
    return shared(a, b) * 0.5


def blended(x, y):
    return blend(x, y)[0]


def kept_keys(n):
    found = {0: 1.0}
    found[n] = 2.0
    return found[0]


PROGRAMS = [
    (plain, (F, F)),
    (both, (F, F)),
    (fast, (F, F)),
    (shared, (F, F)),
    (total, (V,)),
    (product, (M, V)),
    (ordered, (V,)),
    (recursive, (I,)),
    (words, (I,)),
    (table, (I,)),
    (blended, (V, V)),
    (kept_keys, (I,)),
]


def answer(program, signature):
    artifact = build(make_job(program, signature)).artifact
    return artifact.digest, str(artifact.signature)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    """Each test starts from an empty cache, with the switch on."""
    monkeypatch.setenv(canonical.SWITCH, "1")
    canonical.shared.clear()
    yield
    canonical.shared.clear()


@pytest.fixture(scope="module")
def cold_answers():
    """What a world of its own says of each program."""
    patch = pytest.MonkeyPatch()
    patch.setenv(canonical.SWITCH, "0")
    found = {program: answer(program, signature) for program, signature in PROGRAMS}
    patch.undo()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_give_what_a_cold_world_gives(seed, cold_answers):
    history = PROGRAMS * 2
    random.Random(seed).shuffle(history)
    for program, signature in history:
        assert answer(program, signature) == cold_answers[program], program.__name__


def test_callees_of_earlier_jobs_are_not_compiled_again(monkeypatch):
    answer(total, (V,))
    before = canonical.shared.functions()
    assert before > 5
    answer(total, (V,))
    # Not even the copy that the artifact is closed from is kept.
    assert canonical.shared.functions() == before


def test_the_switch_turns_it_off(monkeypatch):
    monkeypatch.setenv(canonical.SWITCH, "0")
    answer(total, (V,))
    assert canonical.shared.functions() == 0


def test_rebound_global_gives_a_new_answer(monkeypatch):
    first = answer(table, (I,))
    monkeypatch.setitem(globals(), "SIZE", 5)
    second = answer(table, (I,))
    assert first[0] != second[0]
    monkeypatch.setitem(globals(), "SIZE", 3)
    assert answer(table, (I,)) == first


def test_rebound_global_of_a_callee_gives_a_new_answer(monkeypatch):
    caller = njit(lambda n: scaled(n) + 1)
    first = answer(caller, (I,))
    monkeypatch.setitem(globals(), "SIZE", 7)
    assert answer(caller, (I,))[0] != first[0]


@njit
def scaled(n):
    return n * SIZE


def test_a_function_that_borrows_a_librarys_name_is_still_the_users():
    size = 1

    @functools.wraps(np.isscalar)
    def function(element):
        return element + size

    assert function.__module__ == "numpy"
    first = answer(function, (I,))
    size = 2
    assert answer(function, (I,))[0] != first[0]


def test_changed_content_of_a_captured_array_gives_a_new_answer():
    first = answer(table, (I,))
    TABLE[2] = 99.0
    try:
        assert answer(table, (I,))[0] != first[0]
    finally:
        TABLE[2] = 2.0
    assert answer(table, (I,)) == first


def pick(x):
    raise NotImplementedError


def test_new_overload_is_seen():
    @overload(pick)
    def for_integers(x):
        if isinstance(x, types.Integer):
            return lambda x: x + 1
        return None

    def user(x):
        return pick(x) * 2.0

    before = answer(user, (I,))

    @overload(pick, prefer_literal=False)
    def for_floats(x):
        if isinstance(x, types.Float):
            return lambda x: x - 1.0
        return None

    assert canonical.shared.functions() > 0
    answer(user, (F,))
    # The declarations changed, so the world of the first answer is gone; the answer stands.
    assert answer(user, (I,)) == before


def test_failed_compile_leaves_no_trace(cold_answers):
    def wrong(x):
        return total_jit(x) + missing(x)  # noqa: F821

    for _ in range(2):
        with pytest.raises(Exception, match="missing"):
            build(make_job(wrong, (V,)))
        assert answer(total, (V,)) == cold_answers[total]


def test_recursion_does_not_stay(cold_answers):
    @njit
    def down(n):
        return 0 if n <= 0 else down(n - 1)

    answer(plain, (F, F))
    kept = canonical.shared.functions()
    # Seen from afar: neither tried in the kept world nor left there.
    first = answer(down, (I,))
    assert canonical.shared.functions() == kept > 0
    assert answer(down, (I,)) == first
    assert answer(recursive, (I,)) == cold_answers[recursive]


def test_recursion_that_is_not_foreseen_does_not_stay(monkeypatch, cold_answers):
    @njit
    def down(n):
        return 0 if n <= 0 else down(n - 1)

    first = answer(down, (I,))
    monkeypatch.setattr(canonical, "looks_recursive", lambda function: False)
    answer(plain, (F, F))
    assert answer(down, (I,)) == first
    # The kept world met recursion for the first time, and was given up.
    assert canonical.shared.functions() == 0
    answer(plain, (F, F))
    kept = canonical.shared.functions()
    assert answer(down, (I,)) == first
    assert canonical.shared.functions() == kept > 0
    assert answer(recursive, (I,)) == cold_answers[recursive]


@njit
def ping(n):
    return 0 if n <= 0 else pong(n - 1)


@njit
def pong(n):
    return 1 if n <= 0 else ping(n - 1)


@pytest.mark.parametrize(
    ("function", "recursive_looking"),
    [(plain, False), (total, False), (recursive, True), (ping.py_func, True)],
)
def test_recursion_is_foreseen(function, recursive_looking):
    assert looks_recursive(function) is recursive_looking
    assert looks_recursive(lambda x: function(x)) is recursive_looking


def test_changed_configuration_starts_anew(monkeypatch, cold_answers):
    from numba.core import config

    answer(total, (V,))
    monkeypatch.setattr(config, "LOOP_VECTORIZE", 0)
    other = answer(total, (V,))
    assert other[0] != cold_answers[total][0]
    monkeypatch.undo()
    monkeypatch.setenv(canonical.SWITCH, "1")
    assert answer(total, (V,)) == cold_answers[total]


def test_memory_is_bounded():
    small = canonical.CanonicalCache(function_limit=3)
    world_of = []

    def use(program, signature):
        job = make_job(program, signature)

        def run(world):
            with world.active():
                world_of.append(id(world))
                return world.compile(job).signature

        return small.use(job, run)

    assert use(plain, (F, F)) is not None
    assert small.functions() > 3
    use(total, (V,))
    assert len(set(world_of)) == 2


def test_a_nested_question_gets_a_world_of_its_own():
    job = make_job(plain, (F, F))
    inner = []

    def run(world):
        with world.active():
            inner.append(canonical.shared.use(job, lambda other: "answered"))
        return "outer"

    assert canonical.shared.use(job, run) == "outer"
    assert inner == [None]


def test_declared_signatures_changed_later_are_seen():
    open_one = njit(lambda x: x)

    def user(n):
        return open_one(n)

    assert answer(user, (I,))[1].endswith("-> int64")
    open_one.compile((F,))
    open_one.disable_compile()
    assert answer(user, (I,))[1].endswith("-> float64")

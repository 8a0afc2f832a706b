"""Each function that takes a lock or waits is counted once, whichever library calls it."""

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import oracle_cases as cases
from alloccheck.oracle import Category, Oracle, made_by

SOURCES = Path(__file__).parent / "native_sources"
LOCK, WAIT = Category.LOCK, Category.WAIT


@pytest.fixture(scope="module")
def oracle():
    with Oracle() as shared:
        yield shared


def compiled(folder, source, compiler, *flags):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    library = folder / f"{Path(source).stem}-{compiler}.so"
    command = [compiler, "-O1", "-shared", "-fPIC", *flags, "-o", library, SOURCES / source]
    subprocess.run([*command, "-lpthread"], check=True)
    return library


def numbers_of(library):
    """Return the number of each of a library's functions."""
    name_of = ctypes.CDLL(str(library)).name_of
    name_of.restype = ctypes.c_char_p
    found = {}
    while name := name_of(ctypes.c_long(len(found))):
        found[name.decode()] = len(found)
    return found


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    library = compiled(tmp_path_factory.mktemp("waits"), "waits.c", "gcc")
    return library, numbers_of(library)


@pytest.fixture(scope="module")
def in_cpp(tmp_path_factory):
    library = compiled(tmp_path_factory.mktemp("waits"), "waits.cpp", "g++", "-std=c++17")
    return library, numbers_of(library)


def tallies(oracle, library, name):
    path, numbers = library
    counts = oracle.count(made_by(cases.make_run, str(path)), numbers[name])
    assert counts.result == 0
    return {t.name: (t.category, t.count) for t in counts.steady.tallies}


LOCKS = (
    "mtx_lock mtx_timedlock cnd_timedwait call_once flockfile "
    "pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock "
    "pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_timedrdlock "
    "pthread_rwlock_timedwrlock pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock "
    "pthread_spin_lock pthread_cond_timedwait pthread_cond_clockwait pthread_barrier_wait "
    "pthread_once sem_wait sem_timedwait sem_clockwait"
).split()
WAITS = (
    "thrd_sleep thrd_yield nanosleep clock_nanosleep sleep poll ppoll select pselect epoll_wait "
    "epoll_pwait epoll_pwait2 accept4 sigtimedwait flock wait waitpid wait4 waitid"
).split()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_counted_once(oracle, in_c, name):
    assert tallies(oracle, in_c, name) == {name: (LOCK, 1)}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_counted_once(oracle, in_c, name):
    # `sleep(0)` and the like return at once: that they may wait is what counts.
    assert tallies(oracle, in_c, name) == {name: (WAIT, 1)}


@pytest.mark.parametrize(
    ("name", "created"),
    [
        ("thrd_join", "thrd_create"),
        ("pthread_join", "pthread_create"),
        ("pthread_timedjoin_np", "pthread_create"),
        ("pthread_clockjoin_np", "pthread_create"),
    ],
)
def test_threads_are_counted_once(oracle, in_c, name, created):
    assert tallies(oracle, in_c, name) == {created: (Category.ALLOCATE, 1), name: (LOCK, 1)}


@pytest.mark.parametrize(
    ("name", "created", "joined"),
    [
        ("cnd_wait", "thrd_create", "thrd_join"),
        ("pthread_cond_wait", "pthread_create", "pthread_join"),
    ],
)
def test_conditions_are_counted_once(oracle, in_c, name, created, joined):
    found = tallies(oracle, in_c, name)
    assert found.pop(name)[0] is LOCK  # it may wake up early, and is called again
    assert found == {created: (Category.ALLOCATE, 1), joined: (LOCK, 1)}


def test_what_a_callback_of_a_counted_function_does_is_counted(oracle, in_c):
    assert tallies(oracle, in_c, "pthread_once_that_waits") == {
        "pthread_once": (LOCK, 1),
        "sched_yield": (WAIT, 1),
    }


def test_trying_is_not_counted(oracle, in_c):
    assert tallies(oracle, in_c, "mtx_trylock") == {}


def test_waiting_for_a_futex(oracle, in_c):
    assert tallies(oracle, in_c, "futex_wait_by_function") == {"system call futex": (WAIT, 1)}
    if oracle.coverage.system_calls:
        assert tallies(oracle, in_c, "futex_wait") == {"system call futex": (WAIT, 1)}
    assert tallies(oracle, in_c, "futex_wake") == {}


def once(*names, category=LOCK):
    return [{name: (category, 1)} for name in names]


OF_CPP = {
    "mutex": once("pthread_mutex_lock"),
    "recursive_mutex": once("pthread_mutex_lock"),
    "timed_mutex": once("pthread_mutex_clocklock", "pthread_mutex_timedlock"),
    "shared_mutex": once("pthread_rwlock_clockrdlock", "pthread_rwlock_timedrdlock"),
    "unique_of_shared": once("pthread_rwlock_wrlock"),
    "condition_variable": once("pthread_cond_clockwait", "pthread_cond_timedwait"),
    "call_once": once("pthread_once"),
    "sleep_for": once("nanosleep", "clock_nanosleep", category=WAIT),
    "yield": once("sched_yield", category=WAIT),
    "new": [{"malloc": (Category.ALLOCATE, 1), "free": (Category.FREE, 1)}],
    "new_aligned": [{"aligned_alloc": (Category.ALLOCATE, 1), "free": (Category.FREE, 1)}],
}
"""What the library may make of it, by its version."""


@pytest.mark.parametrize("name", OF_CPP)
def test_what_cpp_uses_is_counted_once(oracle, in_cpp, name):
    assert tallies(oracle, in_cpp, name) in OF_CPP[name]


def test_threads_of_cpp(oracle, in_cpp):
    found = tallies(oracle, in_cpp, "thread")
    assert found["pthread_create"] == (Category.ALLOCATE, 1)
    assert found["pthread_join"] == (LOCK, 1)
    assert found["malloc"] == (Category.ALLOCATE, 1)  # the thread's state, which the thread frees


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("past"), "past.c", "gcc")


WAYS = ["the library's own name", "the second name", "deep binding", "the next one"]


@pytest.mark.parametrize("way", WAYS)
def test_allocations_that_pass_the_dynamic_linkers_order(oracle, past, way):
    counts = oracle.count(made_by(cases.make_allocating, way, str(past)))
    assert (counts.result, counts.allocations, counts.frees) == (0, 1, 1)
    assert {t.name for t in counts.steady.tallies} == {"malloc", "free"}


def test_other_functions_of_these_names_are_left_alone(oracle, past):
    assert oracle.count(made_by(cases.found_by_name, str(past))).result == (True, False)


X86_64 = {
    0: ({"system call mmap": 1}, False),
    1: ({"system call mmap": 1}, True),
    2: ({}, False),
    3: ({}, False),
    4: ({}, False),
    5: ({"system call map_shadow_stack": 1}, True),
}
"""Of each function of ``past.c``: what is seen at least, and whether all was."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ways of x86-64")
@pytest.mark.parametrize("which", X86_64)
def test_system_calls_by_other_ways(oracle, past, which):
    if not oracle.coverage.system_calls:
        pytest.skip("this kernel does not hand system calls to user space")
    expected, complete = X86_64[which]
    run = made_by(cases.make_run, str(past))
    if which == 0 and os.fork() == 0:  # not every kernel has them
        ctypes.CDLL(str(past)).run(0)
        os._exit(0)
    if which == 0 and os.wait()[1]:
        pytest.skip("this kernel has no system calls of 32-bit programs")
    counts = oracle.count(run, which)
    assert counts.result == 0
    seen = {t.name: t.count for t in counts.steady.tallies if t.category is Category.ALLOCATE}
    assert seen == expected
    assert {c.complete for c in counts.calls} == {complete}
    # The next window sees all again.
    assert oracle.count(cases.scalar_loop, 1.0, 3).steady.complete
    assert oracle.count(cases.inline_mmap).allocations == 1

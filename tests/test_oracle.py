"""The oracle counts exactly what functions of known behaviour do, and says so when it cannot."""

import json
import os
import platform
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import njit

import oracle_cases as cases
from alloccheck.effects import Effect, Guarantee
from alloccheck.errors import UsageError
from alloccheck.oracle import (
    Category,
    FunctionReference,
    Oracle,
    OracleUnavailable,
    Remote,
    RemoteError,
    WorkerCrashed,
    WorkerTimeout,
    build,
    count_effects,
    default_oracle,
    encoding,
    made_by,
    transport,
)

CASES = Path(cases.__file__)


@pytest.fixture(scope="module")
def oracle():
    with Oracle() as shared:
        yield shared


def tallied(call):
    return {t.name: t.count for t in call.tallies}


def text(value):
    return np.frombuffer(value + b"\0", np.uint8).copy()


class TestHeap:
    def test_scalar_loop_does_nothing(self, oracle):
        counts = oracle.count(cases.scalar_loop, 1.0, 100)
        assert [tallied(c) for c in counts.calls] == [{}, {}, {}]
        assert counts.first_call.effects == frozenset()
        assert counts.result == sum(1.0 / (i + 1) for i in range(100))
        assert counts.signature == "(float64, int64) -> float64"

    @pytest.mark.parametrize("n", [0, 1, 7])
    def test_one_malloc_and_free_per_empty(self, oracle, n):
        counts = oracle.count(cases.empties, n, calls=2)
        for call in counts.calls:
            assert (call.allocations, call.frees) == (n, n)
            assert call.count("malloc") == n
            assert call.bytes >= sum(8 * (i + 1) for i in range(n))

    def test_returned_array_is_one_allocation_and_no_free(self, oracle):
        counts = oracle.count(cases.new_array, 5)
        assert [(c.allocations, c.frees) for c in counts.calls] == [(1, 0)] * 3
        assert counts.result.tolist() == [1.0] * 5

    def test_every_function_of_the_family(self, oracle):
        counts = oracle.count(cases.whole_family, np.zeros(1, np.int64))
        expected = {
            "malloc": 1,
            "calloc": 1,
            "realloc": 2,
            "reallocarray": 1,
            "memalign": 1,
            "aligned_alloc": 1,
            "posix_memalign": 1,
            "valloc": 1,
            "pvalloc": 1,
            "mmap": 1,
            "munmap": 1,
            "free": 9,
        }
        assert tallied(counts.steady) == expected
        assert counts.result == 0
        assert counts.steady.bytes == 10 + 15 + 7 + 20 + 8 + 64 + 128 + 96 + 1 + 1 + 4096
        assert counts.allocations == sum(expected.values()) - 9 - 1

    def test_sizes_and_callers_of_events(self, oracle):
        events = oracle.count(cases.whole_family, np.zeros(1, np.int64)).events
        assert [(e.name, e.size) for e in events if e.category is Category.ALLOCATE] == [
            ("malloc", 10),
            ("calloc", 15),
            ("realloc", 7),
            ("realloc", 20),
            ("reallocarray", 8),
            ("memalign", 64),
            ("aligned_alloc", 128),
            ("posix_memalign", 96),
            ("valloc", 1),
            ("pvalloc", 1),
            ("mmap", 4096),
        ]
        assert all("whole_family" in e.caller.symbol for e in events)
        assert all(e.caller.module == "<jit>" for e in events)

    def test_allocation_inside_libc(self, oracle):
        counts = oracle.count(cases.through_libc, text(b"abc"))
        (allocation,) = (e for e in counts.events if e.category is Category.ALLOCATE)
        assert tallied(counts.steady) == {"malloc": 1, "free": 1}
        assert allocation.size == 4
        assert "strdup" in allocation.caller.symbol
        assert "libc" in allocation.caller.module
        assert "through_libc" in allocation.site.symbol

    def test_runtime_callers_are_named(self, oracle):
        malloc, free = oracle.count(cases.empties, 1).events
        assert malloc.caller.symbol.startswith("NRT_")
        assert "_nrt_python" in malloc.caller.module
        assert free.caller.symbol.startswith("NRT_")
        assert "empties" in malloc.site.symbol
        assert 0 < malloc.site.offset < 4096

    def test_moving_the_break(self, oracle):
        assert tallied(oracle.count(cases.break_moves).steady) == {"sbrk": 2}

    def test_list_append_reallocates(self, oracle):
        counts = oracle.count(cases.append, made_by(cases.make_list, 1), 100, calls=1)
        assert set(tallied(counts.steady)) == {"realloc"}
        assert 1 <= counts.allocations < 100

    def test_direct_call_through_ctypes(self, oracle):
        assert tallied(oracle.count(cases.direct_malloc, 3).steady) == {"malloc": 3, "free": 3}

    def test_exception_with_arguments_allocates_when_it_is_raised(self, oracle):
        counts = oracle.count(cases.raises_with, 5)
        assert counts.allocations == 2
        assert counts.steady.outcome == "raised"
        assert counts.steady.exception == "ValueError: ('n is', 5)"
        assert Effect.RAISE in counts.steady.effects
        assert oracle.count(cases.raises_with, 1).allocations == 0

    def test_constant_exception_does_not(self, oracle):
        counts = oracle.count(cases.raises_const, 5)
        assert counts.steady.exception == "IndexError: too many"
        assert counts.steady.tallies == ()


class TestKernel:
    @pytest.fixture(autouse=True)
    def _kernel(self, oracle):
        if not oracle.coverage.system_calls:
            pytest.skip("this kernel does not hand system calls to user space")

    def test_inline_system_call_that_obtains_memory(self, oracle):
        counts = oracle.count(cases.inline_mmap)
        assert tallied(counts.steady) == {"system call mmap": 1, "system call munmap": 1}
        assert (counts.allocations, counts.frees) == (1, 1)
        assert counts.result == 0
        assert counts.steady.complete

    def test_harmless_system_calls_are_listed_not_judged(self, oracle):
        counts = oracle.count(cases.raw_brk_query_and_getpid)
        assert counts.steady.tallies == ()
        assert counts.steady.system_calls == {"brk": 1, "getpid": 1}

    def test_wait_inside_libc(self, oracle, tmp_path):
        with (tmp_path / "out").open("w") as out:
            counts = oracle.count(cases.prints_through_libc, text(b"x"), _open_there(out.name))
        assert counts.steady.count("system call write") == 1
        assert counts.first_call.waits >= 1
        assert (tmp_path / "out").read_text() == "xxx"

    def test_a_counted_call_is_not_counted_again_by_its_system_call(self, oracle):
        counts = oracle.count(cases.sleeps)
        assert tallied(counts.steady) == {"usleep": 1}
        assert counts.steady.system_calls == {"clock_nanosleep": 1}

    def test_signal_masks_survive(self, oracle):
        wanted = np.full(1, 1 << (signal.SIGUSR1 - 1), np.uint64)
        before, now = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
        counts = oracle.count(cases.blocks_signal, wanted, before, now)
        assert int(counts.result) == int(wanted[0])
        assert counts.steady.system_calls == {"rt_sigprocmask": 3}

    def test_thread_creation_obtains_memory_and_ends_completeness(self, oracle):
        start = made_by(cases.thread_start)
        counts = oracle.count(cases.starts_thread, np.zeros(1, np.int64), start)
        assert counts.steady.count("pthread_create") == 1
        assert counts.steady.count("pthread_join") == 1
        assert counts.result == 0
        assert not counts.steady.complete
        assert oracle.count(cases.scalar_loop, 1.0, 3).steady.complete


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names x86-64 calls")
def test_kernel_without_system_call_dispatch():
    script = CASES.with_name("without_dispatch.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "system_calls": False,
        "heap": True,
        "mallocs": 1,
        "complete": False,
        "listed": None,
        "mmap": {"system call mmap": 1, "system call munmap": 1},
    }


def _open_there(path):
    return made_by(cases.open_for_append, path)


class TestWaiting:
    def test_locks(self, oracle):
        counts = oracle.count(cases.locks, np.zeros(64, np.uint8), 4)
        assert tallied(counts.steady) == {"pthread_mutex_lock": 4}
        assert (counts.locks, counts.waits) == (4, 0)
        assert counts.steady.effects == {Effect.BLOCK}

    @pytest.mark.parametrize(
        ("case", "arguments", "name"),
        [
            (cases.sleeps, (), "usleep"),
            (cases.polls, (), "poll"),
            (cases.writes, (np.zeros(1, np.uint8), _open_there(os.devnull)), "write"),
        ],
    )
    def test_waits(self, oracle, case, arguments, name):
        counts = oracle.count(case, *arguments)
        assert tallied(counts.steady) == {name: 1}
        assert counts.waits == 1

    def test_gil(self, oracle):
        if not oracle.coverage.gil:
            pytest.skip("this Python is linked statically: its functions cannot be wrapped")
        counts = oracle.count(cases.takes_gil)
        assert counts.gil == 1
        assert counts.steady.effects >= {Effect.PYTHON}

    def test_other_threads_are_told_apart(self, oracle):
        work = made_by(cases.make_churning, 3_000_000)
        with Oracle() as own:  # its busy thread ends with it
            counts = own.count(work, 2.0)
        assert [c.tallies for c in counts.calls] == [(), (), ()]
        assert counts.refutations(Guarantee.NONALLOCATING) == ()
        found = counts.refutations(Guarantee.NONALLOCATING, other_threads=True)
        assert all("malloc" in f and "in other threads" in f for f in found)
        assert found
        others = {t.name: t.count for t in counts.steady.other_threads}
        assert others["malloc"] > 10


class TestArguments:
    @pytest.mark.parametrize(
        "pair",
        [
            (np.arange(12.0), np.arange(12.0)[::-1]),
            (np.arange(24.0).reshape(4, 6)[1:3, ::2], np.asfortranarray(np.ones((3, 2)))),
            (np.empty((0, 5)), np.empty((3, 0), order="F")),
            (np.broadcast_to(np.float64(3), (4,)), np.arange(10.0)[-2:2:-3]),
            (np.arange(6, dtype=np.int16).reshape(2, 3).T, np.ones(1, np.complex64)),
        ],
        ids=["reversed", "sliced-and-fortran", "empty", "zero-stride", "transposed"],
    )
    def test_arrays_arrive_as_they_lie(self, oracle, pair):
        a, b = pair
        result = oracle.count(cases.facts, a, b, calls=1).result
        assert result == (a.shape, a.strides, b.shape, b.strides, a.sum(), b.sum())

    def test_overlap_arrives(self, oracle):
        base = np.arange(5)
        overlapping = oracle.count(cases.write_first_read_second, base[:4], base[1:], calls=1)
        apart = oracle.count(cases.write_first_read_second, base[:4], base[1:].copy(), calls=1)
        assert (overlapping.result, apart.result) == (77, 1)
        assert base.tolist() == [0, 1, 2, 3, 4]

    def test_address_keeps_its_place_in_the_page(self, oracle):
        array = np.zeros(100, np.uint8)[3:]
        counts = oracle.count(cases.address_mod_4096, array, calls=1)
        assert counts.result == array.ctypes.data % 4096

    def test_record(self, oracle):
        record = np.array([(3, 2.5)], np.dtype([("x", "i4"), ("y", "f8")], align=True))[0]
        counts = oracle.count(cases.record_fields, record)
        assert counts.result == (3, 2.5)
        assert counts.allocations == 0

    def test_default_and_starred_arguments(self, oracle):
        assert oracle.count(cases.with_default, 2.0).result == 6.0
        assert oracle.count(cases.with_default, 2.0, 5.0).result == 10.0
        assert oracle.count(cases.starred, 1, 2.0, 3).result == 6.0

    def test_optional_result(self, oracle):
        assert oracle.count(cases.maybe, 5).result == 5
        assert oracle.count(cases.maybe, -5).result is None

    def test_declared_signature_is_the_one_called(self, oracle):
        assert oracle.count(cases.eager, 5).signature == "(int32,) -> int32"

    def test_chosen_signature(self, oracle):
        counts = oracle.count(cases.scalar_loop, 1.0, 3, signature="(float32, int32)")
        assert counts.signature == "(float32, int32) -> float64"

    def test_function_as_argument(self, oracle):
        counts = oracle.count(cases.takes_function, cases.callee, 4)
        assert (counts.result, counts.allocations) == (4, 1)

    def test_arguments_stay_the_same_objects_unless_fresh(self, oracle):
        kept = oracle.count(cases.increments, np.zeros(1, np.int64))
        fresh = oracle.count(cases.increments, np.zeros(1, np.int64), fresh=True)
        assert [c.result for c in kept.calls] == [1, 2, 3]
        assert [c.result for c in fresh.calls] == [1, 1, 1]

    def test_arrays_stand_for_pointers(self, oracle):
        x, out = np.array([3.0, 1.0, 2.0]), np.zeros(1)
        counts = oracle.count(cases.lowest, x[1:], 2, out, None)
        assert counts.result == 1.0
        assert counts.allocations == 0
        assert oracle.count(cases.lowest, x, 3, out, np.full(1, 0.25)).result == 0.25
        copies = oracle.count(cases.copies_behind_pointer, np.arange(4, dtype=np.float32), 4)
        assert (copies.allocations, copies.result) == (1, 6.0)

    def test_an_array_of_something_else_does_not(self, oracle):
        with pytest.raises(RemoteError, match="no overload"):
            oracle.count(cases.copies_behind_pointer, np.arange(4.0), 4)
        with pytest.raises(RemoteError, match="is no float32"):
            oracle.count(cases.copies_behind_pointer, np.arange(4.0), 4, signature=cases.POINTERS)

    def test_value_that_cannot_travel(self, oracle):
        with pytest.raises(UsageError, match="made_by"):
            oracle.count(cases.scalar_loop, object(), 3)
        with pytest.raises(UsageError, match="Python objects"):
            oracle.count(cases.scalar_loop, np.array([None]), 3)

    def test_result_that_cannot_travel(self, oracle):
        result = oracle.count(cases.same_list, made_by(cases.make_list, 2)).result
        assert isinstance(result, Remote)
        assert "0, 1" in result.text


class TestFinding:
    def test_factory(self, oracle):
        assert oracle.count(made_by(cases.make_adder, 5), 2).result == 7
        assert oracle.count(made_by(cases.make_adder, 6), 2).result == 8

    def test_file_without_module(self, oracle, tmp_path):
        path = tmp_path / "generated.py"
        for size in (1, 2):
            body = " + ".join(["np.ones(n).sum()"] * size)
            path.write_text(
                f"import numpy as np\nfrom numba import njit\n@njit\ndef f(n):\n    return {body}\n"
            )
            counts = oracle.count(FunctionReference(None, "f", str(path)), 3)
            assert (counts.allocations, counts.result) == (size, 3.0 * size)

    def test_alias_of_a_compiled_function(self, oracle):
        assert oracle.count(cases.compiled_alias, 4).result == 4

    def test_local_function_is_refused(self, oracle):
        @njit
        def local(x):
            return x

        with pytest.raises(UsageError, match="module level"):
            oracle.count(local, 1)

    def test_plain_function_is_refused(self, oracle):
        with pytest.raises(RemoteError, match="dispatcher"):
            oracle.count(cases.not_compiled, 1)

    def test_wrong_arguments_are_refused(self, oracle):
        with pytest.raises(RemoteError, match="missing a required argument"):
            oracle.count(cases.scalar_loop, 1.0)

    def test_function_that_does_not_compile(self, oracle):
        with pytest.raises(RemoteError, match="TypingError"):
            oracle.count(cases.scalar_loop, "text", 3)

    def test_function_that_changed_since_is_refused(self):
        with (
            Oracle(environment={"ORACLE_CASES_CHANGING": "1"}) as elsewhere,
            pytest.raises(RemoteError, match="another function"),
        ):
            elsewhere.count(cases.changed, 1)

    def test_no_call_at_all_is_refused(self, oracle):
        with pytest.raises(UsageError, match="at least 1"):
            oracle.count(cases.scalar_loop, 1.0, 3, calls=0)


class TestArtifact:
    def test_artifact_is_measured_rather_than_the_overload(self, oracle):
        counts = oracle.count(made_by(cases.make_with_artifacts), 4)
        # The artifact is `callee`, which returns zeros; the overload would return ones.
        assert counts.result.tolist() == [0.0] * 4
        assert counts.artifact
        assert counts.digest == "0123abcd"
        assert not oracle.count(cases.callee, 4).artifact

    def test_c_entry_is_measured_where_there_is_one(self, oracle):
        assert oracle.count(made_by(cases.make_with_c_entry, True), 4).result == 8
        counts = oracle.count(made_by(cases.make_with_c_entry, True), 4, entry="c")
        assert counts.result == -4
        assert [c.tallies for c in counts.calls] == [()] * 3
        with pytest.raises(RemoteError, match="no C entry"):
            oracle.count(made_by(cases.make_with_c_entry, False), 4, entry="c")
        with pytest.raises(RemoteError, match="not checked"):
            oracle.count(cases.callee, 4, entry="c")


class TestCallbacks:
    """A cfunc has one entry, for C, and that is what C would run."""

    def test_native_code_is_counted(self, oracle):
        counts = oracle.count(cases.callback_with_copies, 2.0)
        assert [(c.allocations, c.frees, c.result) for c in counts.calls] == [(2, 2, 4.0)] * 3
        assert counts.signature == "(float64,) -> float64"
        assert counts.function == "oracle_cases:callback_with_copies"
        assert "callback_with_copies" in counts.events[0].site.symbol
        assert oracle.count(cases.callback_with_copies, 2.0, entry="c").allocations == 2

    def test_what_it_raises_is_told(self, oracle):
        counts = oracle.count(cases.callback_with_copies, -1.0)
        assert {c.outcome for c in counts.calls} == {"raised"}
        assert counts.steady.exception == "ValueError: negative"
        assert counts.gil >= 1  # Numba prints it from there

    def test_memory_stands_for_pointers(self, oracle):
        counts = oracle.count(cases.callback_on_memory, np.arange(4.0), 4)
        assert [c.tallies for c in counts.calls] == [(), (), ()]
        assert counts.result is None
        assert oracle.count(cases.callback_of_pointer, np.full(1, 7.0)).result == 7.0

    def test_closures_and_arguments(self, oracle):
        assert oracle.count(made_by(cases.make_callback, 5), 2).result == 7
        counts = oracle.count(cases.calls_function, cases.callback_with_copies, 2.0)
        assert (counts.allocations, counts.result) == (2, 4.0)

    def test_only_its_own_signature_is_taken(self, oracle):
        assert oracle.count(cases.c_entry, 3, signature="int64(int64)").result == -3
        for arguments in ((), (1.0, 2.0)):
            with pytest.raises(RemoteError, match="values are too"):
                oracle.count(cases.callback_with_copies, *arguments)
        with pytest.raises(RemoteError, match="is no float64"):
            oracle.count(cases.callback_with_copies, "text")
        with pytest.raises(RemoteError, match=r"is .int64,. -> int64, not float64"):
            oracle.count(cases.c_entry, 3.0, signature="float64(float64)")


class TestUfuncs:
    """NumPy runs a ufunc: one is refused, with the way that does count."""

    @pytest.mark.parametrize(
        "name",
        ["static_ufunc", "dynamic_ufunc", "parallel_ufunc", "static_gufunc", "dynamic_gufunc"],
    )
    def test_they_are_refused(self, oracle, name):
        with pytest.raises(UsageError, match=r"is a ufunc.*numba\.njit"):
            oracle.count(getattr(cases, name), np.ones(3), np.ones(3))
        with pytest.raises(RemoteError, match=r"is a ufunc.*numba\.njit"):
            oracle.count(FunctionReference("oracle_cases", name), np.ones(3))

    def test_also_where_they_are_made(self, oracle):
        with pytest.raises(RemoteError, match="is a ufunc"):
            oracle.count(made_by(cases.make_ufunc), 1.0)

    def test_what_is_advised_counts(self, oracle):
        assert oracle.count(cases.kernel, 2.0).allocations == 1
        assert oracle.count(cases.calls_ufunc, np.ones(5), np.zeros(5)).allocations == 5


class TestRefutation:
    def test_guarantees_forbid_their_own_effects(self, oracle):
        locks = oracle.count(cases.locks, np.zeros(64, np.uint8), 2, calls=1)
        assert locks.refutations(Guarantee.NONALLOCATING) == ()
        (found,) = locks.refutations(Guarantee.NONBLOCKING)
        assert "pthread_mutex_lock x 2" in found
        assert "locks" in found

    def test_blas_prepares_itself_in_the_first_call(self):
        a = np.eye(2)
        with Oracle() as fresh:
            counts = fresh.count(cases.product, a, a, np.zeros((2, 2)))
        assert counts.first_call.allocations > counts.allocations == 0
        assert counts.first_call.gil == 1
        assert counts.first_call.effects >= {Effect.ALLOCATE, Effect.PYTHON}
        assert counts.refutations(Guarantee.NONALLOCATING, first_call=True)
        assert not counts.refutations(Guarantee.NONALLOCATING, first_call=False)


class TestProcess:
    def test_crash_is_reported_and_survived(self):
        with Oracle() as own:
            first = own.pid
            with pytest.raises(WorkerCrashed) as caught:
                own.count(cases.crashes)
            assert "SIGSEGV while measuring oracle_cases:crashes" in str(caught.value)
            assert caught.value.returncode == -signal.SIGSEGV
            assert "Segmentation fault" in caught.value.output
            assert own.count(cases.scalar_loop, 1.0, 3).allocations == 0
            assert own.pid != first

    def test_timeout_ends_the_process(self):
        with Oracle() as own:
            first = own.pid
            with pytest.raises(WorkerTimeout, match="spins"):
                own.count(cases.spins, 1, timeout=2)
            assert own.pid != first
            assert not Path(f"/proc/{first}").exists()

    def test_two_threads_share_one_process(self, oracle):
        found = {}

        def ask(n):
            found[n] = oracle.count(cases.empties, n, calls=1).allocations

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {n: n for n in range(4)}

    def test_a_fork_starts_a_process_of_its_own(self):
        with Oracle() as own:
            first = own.pid
            there, here = os.pipe()
            child = os.fork()
            if not child:
                try:
                    found = [own.count(cases.empties, 3, calls=1).allocations for _ in range(20)]
                    os.write(here, json.dumps([own.pid, found]).encode())
                    own.close()
                finally:
                    os._exit(0)
            os.close(here)
            found = [own.count(cases.empties, 1, calls=1).allocations for _ in range(20)]
            with open(there, "rb") as answer:
                other, others = json.loads(answer.read())
            os.waitpid(child, 0)
            assert found == [1] * 20 and others == [3] * 20
            assert other != first == own.pid
            assert own.count(cases.empties, 2, calls=1).allocations == 2

    def test_a_copy_that_measured_code_makes_does_not_answer(self):
        with Oracle() as own:
            forked = own.count(cases.forks, calls=2)
            assert [c.result > 0 for c in forked.calls] == [True, True]
            assert forked.allocations >= 1 and not forked.steady.complete
            assert own.count(made_by(cases.make_by_forking, 1), 4).result == 8
            for n in (1, 2, 3):
                counts = own.count(cases.empties, n, calls=1)
                assert (counts.function, counts.allocations) == ("oracle_cases:empties", n)

    def test_module_level_convenience_shares_one_oracle(self):
        assert count_effects(cases.direct_malloc, 2, calls=1).allocations == 2
        assert default_oracle() is default_oracle()
        default_oracle().close()

    def test_print_in_measured_module_does_not_disturb(self, oracle, tmp_path):
        path = tmp_path / "chatty.py"
        path.write_text(
            "import numba\nprint('hello', flush=True)\n@numba.njit\ndef f():\n    return 3\n"
        )
        assert oracle.count(FunctionReference(None, "f", str(path))).result == 3

    def test_main_script(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(
            "import numpy as np\nfrom numba import njit\n"
            "from alloccheck.oracle import count_effects\n"
            "@njit\ndef f(n):\n    return np.ones(n).sum()\n"
            "if __name__ == '__main__':\n    print(count_effects(f, 3).allocations)\n"
        )
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout.strip() == "1", done.stderr


class TestBuild:
    @pytest.fixture
    def cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALLOCCHECK_CACHE_DIR", str(tmp_path / "cache"))
        return tmp_path / "cache"

    def test_library_is_private_and_reused(self, cache):
        library = build.interposer()
        made = library.stat()
        assert library.is_relative_to(cache)
        assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
        again = build.interposer()
        assert again == library
        assert again.stat().st_mtime_ns == made.st_mtime_ns
        assert [p.name for p in library.parent.iterdir()] == [library.name]

    def test_a_damaged_library_is_built_anew(self, cache):
        library = build.interposer()
        whole = library.read_bytes()
        for damaged in (whole[:2000], b"", b"x" * 99):
            library.write_bytes(damaged)
            assert build.interposer() == library
            assert library.read_bytes() == whole
        with Oracle() as own:
            assert own.count(cases.empties, 1, calls=1).allocations == 1

    def test_missing_compiler(self, cache, monkeypatch):
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(cache))
        with pytest.raises(OracleUnavailable, match="Install one"):
            Oracle().count(cases.scalar_loop, 1.0, 3)

    def test_chosen_compiler_missing(self, cache, monkeypatch):
        monkeypatch.setenv("CC", "no-such-compiler -m64")
        with pytest.raises(OracleUnavailable, match="no-such-compiler"):
            build.interposer()

    def test_compiler_that_fails(self, cache, monkeypatch, tmp_path):
        compiler = tmp_path / "cc"
        compiler.write_text(
            '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho no headers here >&2\nexit 4\n'
        )
        compiler.chmod(0o755)
        monkeypatch.setenv("CC", str(compiler))
        with pytest.raises(OracleUnavailable, match="no headers here"):
            build.interposer()
        assert list((cache / "interposer").iterdir()) == []

    def test_a_cached_library_needs_no_compiler(self, cache, monkeypatch):
        library = build.interposer()
        monkeypatch.setenv("CC", "no-such-compiler")
        assert build.interposer() == library
        monkeypatch.delenv("CC")
        monkeypatch.setenv("PATH", str(cache))
        with Oracle() as own:
            assert own.count(cases.empties, 1, calls=1).allocations == 1

    def test_what_cannot_be_loaded_is_not_kept(self, cache, monkeypatch, tmp_path):
        compiler = tmp_path / "cc-for-another-machine"
        compiler.write_text(
            '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho strange > "$2"\n'
        )
        compiler.chmod(0o755)
        monkeypatch.setenv("CC", str(compiler))
        with pytest.raises(OracleUnavailable, match="compiler for this machine"):
            build.interposer()
        assert list((cache / "interposer").iterdir()) == []
        monkeypatch.delenv("CC")
        assert build.interposer().exists()

    @pytest.mark.parametrize("mode", [0o777, 0o750])
    def test_folder_that_others_can_enter_is_refused(self, cache, mode):
        folder = cache / "interposer"
        folder.mkdir(parents=True)
        folder.chmod(mode)
        with pytest.raises(OracleUnavailable, match="mode"):
            build.interposer()

    def test_link_is_refused(self, cache, tmp_path):
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        cache.mkdir()
        (cache / "interposer").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OracleUnavailable, match="not a folder"):
            build.interposer()

    def test_folder_of_another_user_is_refused(self, cache, monkeypatch):
        build.interposer()
        monkeypatch.setattr(build.os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(OracleUnavailable, match="belongs to user"):
            build.interposer()

    def test_path_that_ld_preload_cannot_name(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ALLOCCHECK_CACHE_DIR", str(tmp_path / "a folder"))
        with pytest.raises(OracleUnavailable, match="space or a colon"):
            build.interposer()


class TestTransport:
    def test_what_is_sent_is_received(self):
        left, right = socket.socketpair()
        with left, right:
            message = transport.Message({"a": [1, "ü"]}, (b"", b"\0" * 1000, b"x"))
            transport.send(left, message)
            assert transport.receive(right) == message

    @pytest.mark.parametrize("sent", [b"", b"acm1\0\0", b"HTTP/1.1 200 OK\r\n\r\n"])
    def test_anything_else_is_a_lost_connection(self, sent):
        left, right = socket.socketpair()
        with right:
            with left:
                left.sendall(sent)
            with pytest.raises(transport.ConnectionLost):
                transport.receive(right)


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
)


@settings(deadline=None, max_examples=40)
@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.lists(inner).map(tuple)))
def test_plain_values_travel(value):
    (back,) = encoding.decode(encoding.encode([value]))
    assert back == value
    assert type(back) is type(value)


@given(
    hnp.arrays(
        st.one_of(
            hnp.integer_dtypes(endianness="="),
            hnp.floating_dtypes(endianness="="),
            hnp.array_dtypes(hnp.integer_dtypes(endianness="="), allow_subarrays=True),
        ),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.data(),
)
@settings(deadline=None, max_examples=40)
def test_views_travel(array, data):
    view = array
    if array.ndim:
        view = np.asarray(array[data.draw(hnp.basic_indices(array.shape, allow_newaxis=True))])
    view = view.T if data.draw(st.booleans()) else view
    # Of the array of a record that is an element NumPy sets the flag to False alone.
    if view.flags.writeable and not data.draw(st.booleans()):
        view.flags.writeable = False
    back, whole = encoding.decode(encoding.encode([view, array]))
    assert back.dtype == view.dtype
    assert (back.shape, back.strides) == (view.shape, view.strides)
    assert back.tobytes() == view.tobytes()
    assert whole.tobytes() == array.tobytes()
    assert str(back.flags).replace("OWNDATA : True", "OWNDATA : False") == str(view.flags).replace(
        "OWNDATA : True", "OWNDATA : False"
    )
    assert np.shares_memory(back, whole) == np.shares_memory(view, array)
    if np.shares_memory(view, array):
        assert back.ctypes.data - whole.ctypes.data == view.ctypes.data - array.ctypes.data

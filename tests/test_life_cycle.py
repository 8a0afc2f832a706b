"""How long code lives, what it costs to keep, other processes, and the end of the process."""

import os
import subprocess
import sys
import textwrap

import pytest


def run(program, *, timeout=300, **environment):
    """Run a program in a process of its own and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Fatal" not in finished.stderr and "Exception ignored" not in finished.stderr
    return finished.stdout


def test_kept_artifacts_cost_at_most_half_a_megabyte_each():
    printed = run(
        """
        import gc, os
        import numpy as np
        from alloccheck import check_allocs

        def resident():
            gc.collect()
            pages = int(open("/proc/self/statm").read().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")

        def make(k):
            @check_allocs("void(float64[::1], float64[::1])")
            def f(out, x):
                for i in range(x.size):
                    out[i] = np.sin(x[i]) * k + np.sqrt(x[i] + k)
            return f

        kept = [make(k) for k in range(12)]  # what is made once is made now
        before = resident()
        kept += [make(k) for k in range(12, 52)]
        each = (resident() - before) / 40
        out = np.zeros(3)
        for k in (0, 30, 51):
            kept[k](out, np.ones(3))
            assert np.allclose(out, np.sin(1.0) * k + np.sqrt(1.0 + k))
        print(int(each))
        """,
        # Compiled callees that are kept for later proofs are bounded, and no part of an artifact.
        ALLOCCHECK_CANONICAL_CACHE="0",
    )
    assert int(printed) <= 500_000


def test_values_outlive_the_functions_that_made_them():
    printed = run(
        """
        import gc
        import numpy as np
        from numba import float64, njit, types
        from numba.experimental import jitclass
        from numba.typed import Dict, List
        from alloccheck import hermetic

        @jitclass([("x", float64[::1])])
        class Box:
            def __init__(self, n):
                self.x = np.ones(n)

        def make():
            @hermetic
            def made(n):
                words = List()
                table = Dict.empty(types.unicode_type, types.float64[::1])
                for i in range(n):
                    words.append(np.full(3, 1.0 * i))
                    table[str(i)] = np.full(2, 2.0 * i)
                return words, table, Box(n)

            return made(4)

        words, table, box = make()
        gc.collect()
        for i in range(4):
            assert words[i][0] == i and table[str(i)][1] == 2.0 * i
        table["more"] = np.zeros(2)
        words.append(np.zeros(3))
        assert box.x.sum() == 4.0
        del words, table, box
        gc.collect()
        print("alive")
        """,
        PYTHONMALLOC="debug",
    )
    assert printed == "alive\n"


def test_an_address_stays_valid_when_the_function_is_dropped():
    printed = run(
        """
        import ctypes, gc
        from alloccheck import nonblocking

        def address():
            @nonblocking("float64(float64)")
            def twice(x):
                return 2.0 * x
            return twice.address

        call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address())
        gc.collect()
        print(call(4.0))
        """
    )
    assert printed == "8.0\n"


PROGRAM = """
import multiprocessing, sys
sys.path.insert(0, {folder!r})
import life_cycle_subject as subject

if __name__ == "__main__":
    assert subject.twice(2.0) == 4.0
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        print(pool.map(subject.answer, [1.0, 2.0]))
"""

SUBJECT = """
from alloccheck import check_allocs

@check_allocs
def twice(x):
    return 2.0 * x

@check_allocs
def thrice(x):
    return 3.0 * x

def answer(x):
    # The one was compiled before a fork, the other is compiled after it.
    return twice(x) + thrice(x), bool(twice.verify()), bool(thrice.verify())
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_fork_and_spawn(method, tmp_path):
    (tmp_path / "life_cycle_subject.py").write_text(SUBJECT)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=str(tmp_path), method=method))
    finished = subprocess.run(
        [sys.executable, "-X", "faulthandler", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "[(5.0, True, True), (10.0, True, True)]\n"


def test_shutdown_is_clean():
    printed = run(
        """
        import atexit, threading
        import numpy as np
        from numba import njit
        from alloccheck import check_allocs, hermetic

        @check_allocs
        def total(x):
            s = 0.0
            for v in x:
                s += v
            return s

        @njit
        def caller(x):
            return total(x)

        @hermetic
        def squares(n):
            for i in range(n):
                yield i * i

        kept = squares(5)
        next(kept)
        threads = [threading.Thread(target=caller, args=(np.ones(5),)) for _ in range(4)]
        for one in threads: one.start()
        for one in threads: one.join()
        atexit.register(lambda: print(caller(np.ones(3)), next(kept)))
        """,
        PYTHONMALLOC="debug",
        PYTHONDEVMODE="1",
    )
    assert printed == "3.0 1\n"

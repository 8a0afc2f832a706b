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


FREED = """
    import ctypes, gc, weakref
    import numpy as np
    from numba import njit, types
    from alloccheck import analyze, check_allocs, hermetic, nonblocking
    from alloccheck.compile.lifetime import loaded_artifacts

    SMALL, LARGE = np.arange(5.0), np.zeros(200_000)

    def scalar(x):
        return 2.0 * x

    def raising(x):
        if x < 0.0:
            raise ValueError("negative", x)
        return x**0.5

    def array(x):
        out = np.zeros(3)
        out[1] = x
        return out

    def constant(x):
        return SMALL[int(x)] + LARGE[int(x)]

    def library(x):
        return np.dot(np.eye(3) * x, np.ones(3))

    @njit
    def fibonacci(x):
        return x if x < 2.0 else fibonacci(x - 1.0) + fibonacci(x - 2.0)

    def recursive(x):
        return fibonacci(x)

    ALL = (scalar, raising, array, constant, library, recursive)

    def drop(reference):
        gc.collect()
        assert reference() is None, reference
        return loaded_artifacts()

"""


def test_code_goes_with_the_function_where_nothing_pins_it():
    printed = run(
        FREED
        + """
    start = loaded_artifacts()
    for function in ALL:
        # In a namespace that refers to the function, as a module does.
        inside = {"made": hermetic(function)}
        made = inside["made"]
        inside["cycle"] = inside
        made.namespace = inside
        value = made(3.0)
        assert loaded_artifacts() == start + 1, function
        (artifact,) = made.artifacts.values()
        assert artifact.lifetime.reason is None
        del artifact, inside
        made = weakref.ref(made)
        assert drop(made) == start, function
        # What it made needs nothing of it.
        assert np.all(np.isfinite(value)), (function, value)
        del value
        analyze(function, "(float64,)")
        gc.collect()
        assert loaded_artifacts() == start, function
    try:
        made = hermetic(raising)
        made(-1.0)
    except ValueError as error:
        made = weakref.ref(made)
        kept = error.with_traceback(None)
    assert drop(made) == start
    assert kept.args == ("negative", -1.0)
    print("gone")
    """,
        PYTHONMALLOC="debug",
    )
    assert printed == "gone\n"


def test_a_function_goes_with_its_last_reference():
    printed = run(
        FREED
        + """
    start = loaded_artifacts()
    gc.collect()
    gc.disable()
    for decorate in (hermetic, check_allocs):
        made = decorate(scalar)
        made(3.0)
        assert loaded_artifacts() == start + 1
        made = weakref.ref(made)
        assert made() is None
        assert loaded_artifacts() == start
    print("gone")
    """
    )
    assert printed == "gone\n"


def test_memory_of_dropped_functions_comes_back():
    printed = run(
        """
        import gc
        from alloccheck import check_allocs
        from alloccheck.compile import canonical

        def maps():
            gc.collect()
            with open("/proc/self/maps") as lines:
                return sum("r-xp 00000000 00:00" in line for line in lines)

        def make(k):
            @check_allocs("float64(float64)")
            def f(x):
                return x * k
            return f

        for k in range(3):
            make(k)
        before = maps()
        kept = [make(k) for k in range(3, 23)]
        assert maps() - before >= 5  # each has code of its own
        kept.clear()
        print(maps() - before)
        """
    )
    assert int(printed) <= 2


PINS = {
    "its address": "pins.append(made.address)",
    "its other address": "pins.append(made.status_address)",
    "ctypes": "pins.append(ctypes.cast(made.ctypes, ctypes.c_void_p).value)",
    "cffi": "pins.append(int(ffi.cast('uintptr_t', made.cffi(ffi))))",
    "an address by Numba's own way": (
        "result = made.get_compile_result(types.float64(types.float64))\n"
        "pins.append(result.library.get_pointer_to_function("
        "result.fndesc.llvm_cfunc_wrapper_name))"
    ),
}


@pytest.mark.parametrize("pin", PINS)
def test_an_address_pins_the_code(pin):
    printed = run(
        textwrap.dedent(FREED)
        + textwrap.dedent(
            """
            import cffi

            ffi, pins, start = cffi.FFI(), [], loaded_artifacts()
            made = nonblocking("float64(float64)", on_failure="report")(scalar)
            """
        )
        + PINS[pin]
        + textwrap.dedent(
            """
            made, result = weakref.ref(made), None
            assert drop(made) == start + 1
            shape = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
            if "status" not in PIN:
                print(shape(pins[0])(4.0))
            else:
                print(8.0)
            """
        ).replace("PIN", repr(PINS[pin])),
        PYTHONMALLOC="debug",
    )
    assert printed == "8.0\n"


def test_jitted_callers_and_first_class_values_pin_the_code():
    printed = run(
        FREED
        + """
    start = loaded_artifacts()

    def in_a_caller():
        made = hermetic(scalar)

        @njit
        def caller(x):
            return made(x) + 1.0

        caller(1.0)
        # A caller may be inlined into others and dropped itself.
        @njit
        def further(x):
            return caller(x) * 2.0

        further(1.0)
        return further

    def as_a_value():
        made = hermetic("float64(float64)")(scalar)

        shape = types.FunctionType(types.float64(types.float64))

        @njit(types.float64(types.float64, shape))
        def apply(x, f):
            return f(x)

        assert apply(2.0, made) == 4.0
        return weakref.ref(made)

    further = in_a_caller()
    assert drop(as_a_value()) == start + 2
    assert further(4.0) == 18.0
    print("pinned")
    """,
        PYTHONMALLOC="debug",
    )
    assert printed == "pinned\n"


def test_values_with_addresses_in_them_pin_the_code():
    printed = run(
        FREED
        + """
    from numba.typed import Dict, List

    def typed_list(n):
        made = List()
        made.append(np.full(n, 1.0))
        return made

    def typed_dict(n):
        made = Dict()
        made[n] = "text " + str(n)
        return made

    def generator(n):
        for i in range(n):
            yield np.full(n, 1.0 * i)

    def literal(n):
        made = List()
        made.append("a text" if n else "another")
        return made

    def closure(n):
        return SMALL

    def large(n):
        return LARGE

    start = loaded_artifacts()
    values = []
    makers = (typed_list, typed_dict, generator, literal, closure, large)
    for function in makers:
        made = hermetic(function)
        values.append(made(3))
        (artifact,) = made.artifacts.values()
        assert artifact.lifetime.reason, function
        del artifact
        made = weakref.ref(made)
        drop(made)
    assert loaded_artifacts() == start + len(makers)
    del SMALL, LARGE
    gc.collect()
    junk = [np.full(5, 7.0) for _ in range(1000)]
    listed, table, counted, words, small, large = values
    assert listed[0].sum() == 3.0
    listed.append(np.zeros(2))
    assert table[3] == "text 3"
    table[4] = "more"
    assert [one.sum() for one in counted] == [0.0, 3.0, 6.0]
    assert words[0] == "a text"
    assert list(small) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert not large.any() and large.size == 200_000
    del values, listed, table, counted, words, small, large
    gc.collect()
    print("alive")
    """,
        PYTHONMALLOC="debug",
    )
    assert printed == "alive\n"


def test_code_is_there_for_finalizers_of_objects_that_go_with_it():
    printed = run(
        FREED
        + """
    class Owner:
        def __init__(self):
            self.made = hermetic("float64(float64)")(scalar)
            self.self = self

        def __del__(self):
            print(self.made(4.0))

    start = loaded_artifacts()
    for _ in range(5):
        Owner()
        gc.collect()
    assert loaded_artifacts() == start
    """,
        PYTHONMALLOC="debug",
    )
    assert printed == "8.0\n" * 5


def test_code_that_is_replaced_stays_as_long_as_its_function():
    printed = run(
        FREED
        + """
    import os
    start = loaded_artifacts()
    made = hermetic("float64(float64)")(scalar)
    entry = made.overloads[(types.float64,)].entry_point
    os.environ["NUMBA_OPT"] = "1"
    made.recompile()
    assert loaded_artifacts() == start + 2
    assert entry(2.0) == made(2.0) == 4.0
    made = weakref.ref(made)
    # An entry point is a function of its own.
    assert drop(made) == start + 1
    assert entry(3.0) == 6.0
    del entry
    assert drop(made) == start
    print("gone")
    """,
        PYTHONMALLOC="debug",
    )
    assert printed == "gone\n"


def test_what_was_not_proved_is_not_kept():
    printed = run(
        FREED
        + """
    from alloccheck import AllocCheckError
    start = loaded_artifacts()
    for _ in range(3):
        try:
            check_allocs("(float64,)")(array)
        except AllocCheckError:
            pass
    gc.collect()
    assert loaded_artifacts() == start
    print("gone")
    """
    )
    assert printed == "gone\n"


def test_what_never_ran_is_not_kept_for_what_it_would_do():
    printed = run(
        FREED
        + """
    from numba import typed
    from alloccheck import AllocCheckError, check_call

    def listed(x):
        made = typed.List()
        made.append(np.full(2, x))
        return made

    start = loaded_artifacts()
    analyze(listed, "(float64,)")
    check_call(listed, 1.0)
    try:
        check_allocs("(float64,)")(listed)
    except AllocCheckError:
        pass
    gc.collect()
    assert loaded_artifacts() == start
    import warnings
    warnings.simplefilter("ignore")
    # This one runs: what it makes refers to it.
    made = check_allocs("(float64,)", on_failure="warn")(listed)
    value = made(2.0)
    made = weakref.ref(made)
    assert drop(made) == start + 1
    assert value[0].sum() == 4.0
    print("gone")
    """
    )
    assert printed == "gone\n"


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

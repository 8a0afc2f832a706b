"""The entries from C: shapes, statuses, hosts, threads that Python has never seen."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import cffi
import numpy as np
import pytest
from numba import carray, float32, float64, int32, njit, types
from scipy import LowLevelCallable, integrate, ndimage

import c_host
from alloccheck import (
    AllocCheckError,
    UsageError,
    analyze,
    check_allocs,
    hermetic,
    nonblocking,
)
from alloccheck.compile.status import SLOTS, UNKNOWN_STATUS
from alloccheck.oracle import OracleUnavailable
from alloccheck.oracle.build import interposer

PORTAUDIO = (
    "int32(CPointer(float32), CPointer(float32), uint64, voidptr, uint64, CPointer(float64))"
)


@pytest.fixture(scope="module")
def root():
    @nonblocking("float64(float64)", entry="c")
    def root(x):
        if x < 0.0:
            raise ValueError("negative")
        return x**0.5

    return root


@pytest.fixture(scope="module")
def gain():
    @nonblocking(PORTAUDIO, entry="c", ignore_throw=False)
    def gain(source, target, frames, time, flags, state):
        for i in range(frames):
            target[i] = source[i] * float32(state[0])
        return int32(0)

    return gain


# --- the two shapes -------------------------------------------------------------------------------


def test_value_shape_returns_the_value_and_the_chosen_one_on_raise(root):
    @check_allocs("int64(int64)", value_on_raise=-7)
    def positive(n):
        if n <= 0:
            raise ValueError("not positive")
        return n

    assert root.ctypes(9.0) == 3.0
    assert np.isnan(root.ctypes(-1.0))
    assert positive.ctypes(4) == 4
    assert positive.ctypes(-4) == -7


def test_value_on_raise_must_fit_the_return_type():
    with pytest.raises(UsageError, match="value_on_raise=300 is no value of the return type int8"):

        @check_allocs("int8(int8)", value_on_raise=300)
        def f(n):
            return n


def test_last_status_follows_each_call_of_the_thread(root):
    root.ctypes(4.0)
    assert root.last_status() == 0
    root.ctypes(-4.0)
    assert root.last_status() != 0
    root.ctypes(-4.0)
    assert root.last_status() != 0
    root.ctypes(4.0)
    assert root.last_status() == 0


def test_last_status_is_the_threads_own(root):
    seen = {}

    def other():
        seen["before"] = root.last_status()
        root.ctypes(1.0)
        seen["after"] = root.last_status()

    root.ctypes(-1.0)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == {"before": 0, "after": 0}
    assert root.last_status() != 0
    root.ctypes(1.0)


def test_status_shape_writes_the_result_or_returns_a_status(root):
    result = ctypes.c_double(-5.0)
    assert root.status_ctypes(ctypes.byref(result), 16.0) == 0
    assert result.value == 4.0
    assert root.status_ctypes(ctypes.byref(result), -16.0) != 0
    assert result.value == 4.0


def test_status_shape_of_a_function_that_returns_nothing():
    @check_allocs("void(CPointer(float64), int64)")
    def store(place, n):
        if n < 0:
            raise ValueError
        place[0] = n

    place = (ctypes.c_double * 1)()
    assert store.status_ctypes(None, place, 3) == 0
    assert place[0] == 3.0
    assert store.status_ctypes(None, place, -3) != 0
    assert store.ctypes(place, 8) is None
    assert place[0] == 8.0


@pytest.mark.parametrize(
    ("result", "arguments", "given", "expected"),
    [
        ("int8", "int8", (-100,), -101),
        ("uint8", "uint8", (255,), 254),
        ("int16", "int16", (-32767,), -32768),
        ("uint16", "uint16", (65535,), 65534),
        ("uint32", "uint32", (2**32 - 1,), 2**32 - 2),
        ("uint64", "uint64", (2**64 - 1,), 2**64 - 2),
        ("float32", "float32", (2.5,), 1.5),
    ],
)
def test_narrow_results_reach_c_whole(result, arguments, given, expected):
    @check_allocs(f"{result}({arguments})")
    def less(x):
        return x - 1

    ffi = cffi.FFI()
    assert less.ctypes(*given) == expected
    assert less.cffi(ffi)(*given) == expected


def test_booleans_are_c_booleans():
    @check_allocs("boolean(boolean, int64)")
    def both(flag, n):
        return flag and n > 0

    as_integer = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_uint8, ctypes.c_int64)(both.address)
    assert [as_integer(1, 5), as_integer(0, 5), as_integer(1, -5)] == [1, 0, 0]
    assert both.ctypes(True, 1) is True
    result = ctypes.c_bool(False)
    assert both.status_ctypes(ctypes.byref(result), True, 1) == 0
    assert result.value is True


def test_cffi_gets_both_shapes(root):
    ffi = cffi.FFI()
    value, status = root.cffi(ffi), root.cffi(ffi, status=True)
    assert ffi.typeof(value).cname == "double(*)(double)"
    assert value(25.0) == 5.0
    place = ffi.new("double *")
    assert status(place, 36.0) == 0
    assert place[0] == 6.0
    assert status(place, -1.0) != 0


def test_types_without_a_c_form_are_refused_by_name():
    @check_allocs("float64(float64[::1])")
    def total(x):
        return x[0]

    with pytest.raises(UsageError, match=r"array\(float64, 1d, C\) has no C form.*carray"):
        _ = total.ctypes
    with pytest.raises(UsageError, match="has no C form"):
        total.cffi(cffi.FFI())


def test_dynamic_exceptions_leave_nothing_behind():
    @hermetic("float64(float64)")
    def f(x):
        if x < 0.0:
            raise ValueError("negative", x)
        return x

    call, status = f.ctypes, f.status_ctypes
    place = ctypes.c_double()
    resident = _resident()
    for _ in range(200_000):
        call(-1.0)
        status(ctypes.byref(place), -1.0)
    assert _resident() - resident < 4_000_000  # each would leave at least 48 bytes
    assert f.last_status() != 0


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_first_class_functions_use_the_artifact(root):
    function_type = types.FunctionType(float64(float64))

    @njit(float64(function_type, float64))
    def apply(f, x):
        return f(x)

    assert apply(root, 49.0) == 7.0
    with pytest.raises(ValueError, match="negative"):
        apply(root, -1.0)


# --- what is proved of them ----------------------------------------------------------------------


def test_reachable_raise_is_a_finding_of_a_c_callback_unless_ignored():
    def f(x):
        if x < 0.0:
            raise ValueError("negative")
        return x

    ask = {"guarantee": "nonblocking", "entry": "c"}
    assert analyze(f, "float64(float64)", **ask).ok
    report = analyze(f, "float64(float64)", ignore_throw=False, **ask)
    assert "raise" in {str(one.effect) for one in report.findings}
    assert report.certificate.entry == "c"


def test_what_the_entry_adds_is_checked_with_the_body():
    def f(x):
        return np.zeros(3)[0] + x

    for entry in ("python", "c"):
        report = analyze(f, "float64(float64)", entry=entry)
        assert [str(one.effect) for one in report.findings].count("allocate") == 1


def test_a_function_that_cannot_raise_has_no_status_table():
    @nonblocking("float64(float64)", entry="c", error_model="numpy")
    def twice(x):
        return 2.0 * x

    artifact = next(iter(twice.artifacts.values()))
    names = {one.name for one in artifact.object_file().symbols}
    assert not any(name.startswith("alloccheck.status") for name in names)
    assert twice.last_status() == 0


# --- hosts ---------------------------------------------------------------------------------------


def test_a_solver_in_c_calls_its_right_hand_side_by_address():
    number, value = types.CPointer(types.int32), types.CPointer(types.float64)

    @nonblocking(types.void(number, value, value, value), entry="c", ignore_throw=False)
    def oscillator(n, t, y, ydot):
        ydot[0] = y[1]
        ydot[1] = -y[0] if n[0] == 2 and t[0] >= 0.0 else np.nan

    state = (ctypes.c_double * 3)(0.0, 1.0, 0.0)
    work = c_host.run(c_host.ODE, oscillator.address, 2000, data=ctypes.addressof(state))
    assert state[0] == pytest.approx(2.0)
    assert work.total == pytest.approx(np.cos(2.0), abs=1e-10)
    assert state[2] == pytest.approx(-np.sin(2.0), abs=1e-10)


def test_a_foreign_thread_gets_values_and_statuses(root):
    works = c_host.run(c_host.UNARY, root.address, 700, reader=root.last_status_address)
    # x runs over -1, 0, ..., 5; the first call raises.
    assert np.isnan(works.total)
    assert works.first != 0
    assert works.last == 0
    work = c_host.run(c_host.UNARY_STATUS, root.status_address, 700)
    assert work.total == pytest.approx(100 * sum(x**0.5 for x in range(6)))
    assert work.first != 0


def test_statuses_of_many_threads_at_once():
    @check_allocs("float64(float64)", value_on_raise=1000)
    def root(x):
        if x < 0.0:
            raise ValueError("negative")
        return x

    def work():
        return c_host.Work(c_host.UNARY, root.address, root.last_status_address, 0, 70_000)

    for one in c_host.run_many([work() for _ in range(8)]):
        assert one.total == 10_000 * (1000 + 15)
        assert one.first != 0
        assert one.last == 0
    root.ctypes(1.0)
    assert root.last_status() == 0


def test_a_full_table_says_that_it_does_not_know():
    @check_allocs("float64(float64)")
    def root(x):
        if x < 0.0:
            raise ValueError("negative")
        return x

    count = SLOTS + 3
    barrier, statuses = threading.Barrier(count), []

    def raise_and_wait():
        root.ctypes(-1.0)
        barrier.wait()
        try:
            statuses.append(root.last_status())
        except RuntimeError as error:
            statuses.append(str(error))
        barrier.wait()
        root.ctypes(1.0)

    threads = [threading.Thread(target=raise_and_wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unknown = [one for one in statuses if isinstance(one, str)]
    assert len(unknown) == 3
    assert all("not known" in one for one in unknown)
    assert UNKNOWN_STATUS not in statuses
    assert 0 not in statuses


def test_portaudio_style_host(gain):
    state = (ctypes.c_double * 1)(0.5)
    work = c_host.run(c_host.PORTAUDIO, gain.address, 1000, data=ctypes.addressof(state))
    assert work.total == 1000 * 31.5
    assert work.last == 0


def test_jack_style_host():
    @nonblocking("int32(uint32, CPointer(float64))", entry="c", ignore_throw=False)
    def process(frames, state):
        for i in range(frames):
            state[0] += state[1]
        return int32(0)

    state = (ctypes.c_double * 2)(0.0, 0.25)
    work = c_host.run(c_host.JACK, process.address, 100, data=ctypes.addressof(state))
    assert (work.last, state[0]) == (0, 100 * 64 * 0.25)


def test_quad():
    @nonblocking("float64(float64)", entry="c")
    def bell(x):
        return np.exp(-x * x)

    value, _ = integrate.quad(LowLevelCallable(bell.ctypes), -10.0, 10.0)
    assert value == pytest.approx(np.sqrt(np.pi), rel=1e-10)


def test_generic_filter():
    @nonblocking("int32(CPointer(float64), intp, CPointer(float64), voidptr)", entry="c")
    def spread(values, count, result, data):
        low = high = values[0]
        for i in range(1, count):
            low, high = min(low, values[i]), max(high, values[i])
        result[0] = high - low
        return 1

    image = np.random.default_rng(5).normal(size=(20, 30))
    found = ndimage.generic_filter(image, LowLevelCallable(spread.ctypes), size=3)
    expected = ndimage.maximum_filter(image, 3) - ndimage.minimum_filter(image, 3)
    assert np.array_equal(found, expected)


def test_lsoda_style_right_hand_side():
    @nonblocking(
        "void(float64, CPointer(float64), CPointer(float64), CPointer(float64))", entry="c"
    )
    def decay(t, y, dy, rates):
        state, change = carray(y, (2,)), carray(dy, (2,))
        change[0] = -rates[0] * state[0]
        change[1] = rates[0] * state[0] - rates[1] * state[1]

    call = decay.ctypes
    rates = np.array([2.0, 0.5])

    def right_hand_side(t, y):
        change = np.empty(2)
        call(t, *(a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (y, change, rates)))
        return change

    found = integrate.solve_ivp(
        right_hand_side, (0.0, 1.0), [1.0, 0.0], method="LSODA", rtol=1e-9, atol=1e-12
    )
    a, b = rates
    expected = [np.exp(-a), a / (b - a) * (np.exp(-a) - np.exp(-b))]
    assert found.y[:, -1] == pytest.approx(expected, rel=1e-6)


MILLION = """
import ctypes, sys
import numpy as np
from numba import int32, float32
import c_host
from alloccheck import hermetic, nonblocking

PORTAUDIO = {portaudio!r}

@nonblocking(PORTAUDIO, entry="c", ignore_throw=False)
def gain(source, target, frames, time, flags, state):
    for i in range(frames):
        target[i] = source[i] * float32(state[0])
    return int32(0)

@nonblocking("float64(float64)", entry="c")
def root(x):
    if x < 0.0:
        raise ValueError("negative")
    return x

@hermetic(PORTAUDIO)
def allocating(source, target, frames, time, flags, state):
    copy = np.empty(frames, np.float32)
    for i in range(frames):
        copy[i] = source[i]
        target[i] = copy[i]
    return int32(0)

state = (ctypes.c_double * 1)(2.0)
place = ctypes.addressof(state)
for kind, address, calls in (
    (c_host.PORTAUDIO, gain.address, 1_000_000),
    (c_host.UNARY, root.address, 1_000_000),
    (c_host.UNARY_STATUS, root.status_address, 1_000_000),
    (c_host.PORTAUDIO, allocating.address, 1000),
):
    reader = root.last_status_address if kind == c_host.UNARY else 0
    work = c_host.run(kind, address, calls, reader=reader, data=place)
    print(work.events, work.complete, work.total)
"""


def test_a_million_calls_from_a_foreign_thread_while_python_holds_its_lock():
    try:
        preload = interposer()
    except OracleUnavailable as error:
        pytest.fail(f"the allocation counter is needed here: {error}")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(preload),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    command = [sys.executable, "-c", MILLION.format(portaudio=PORTAUDIO)]
    # A callback that needed the interpreter's lock would never return: the time limit tells.
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    gain, root, status, allocating = (line.split() for line in finished.stdout.splitlines())
    assert gain == ["0", "1", str(1e6 * 126.0)]
    assert root[:2] == ["0", "1"]
    assert status[:2] == ["0", "1"]
    assert int(allocating[0]) == 2 * 1000  # one malloc and one free a call: the counter counts


def test_decorator_refuses_a_callback_that_allocates():
    with pytest.raises(AllocCheckError):

        @nonblocking(PORTAUDIO, entry="c")
        def process(source, target, frames, time, flags, state):
            target[0] = np.zeros(3, np.float32)[1]
            return int32(0)

"""What runs is the artifact: every way to a checked function ends in its own machine code.

Callers are disassembled, and each call is followed to where it leads.
"""

import contextlib
import ctypes
import io
import itertools
import math
import sys

import iced_x86
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from numba import carray, cfunc, float64, njit, types
from numba.core.dispatcher import Dispatcher

from alloccheck import check_allocs, hermetic
from alloccheck.check import Policy, _entry_symbols
from alloccheck.compile.artifact import build
from alloccheck.compile.target import make_job

MARK = 0x1DE4_D00D_5EED_CAFE
"""A constant that only the checked helper's body holds."""


@njit
def leaf(x):
    total = 0.0
    for i in range(7):
        total += x / (i + 1.5)
    return total


def make_helper(decorate):
    @decorate
    def helper(x, n):
        if n < 0:
            raise ValueError("negative")
        for i in range(n):
            x = leaf(x) + (i ^ MARK) * 1e-30
        return x

    return helper


def artifact_of(function):
    (artifact,) = function.artifacts.values()
    return artifact


def code_of(artifact):
    return artifact.image.ranges(artifact.object_file())


def inside(address, ranges):
    return any(low <= address < high for low, high in ranges)


def constants(address, data):
    """Yield the 64-bit constants that code loads, and the targets of its direct calls."""
    decoder = iced_x86.Decoder(64, data, ip=address)
    for instruction in decoder:
        assert instruction.code != iced_x86.Code.INVALID
        for i in range(instruction.op_count):
            kind = instruction.op_kind(i)
            if kind == iced_x86.OpKind.IMMEDIATE64:
                yield instruction.immediate(i)
            elif kind == iced_x86.OpKind.NEAR_BRANCH64:
                yield instruction.near_branch64


def symbol_code(dispatcher, signature):
    """Return address and bytes of the native function of a plain jitted function, in memory."""
    result = dispatcher.overloads[signature]
    name = result.fndesc.llvm_func_name
    address = result.library.get_pointer_to_function(name)
    elf = ELFFile(io.BytesIO(result.library._get_compiled_object()))
    (symbol,) = [s for s in elf.get_section_by_name(".symtab").iter_symbols() if s.name == name]
    return address, ctypes.string_at(address, symbol["st_size"])


@pytest.mark.parametrize("order", ["helper first", "elsewhere first", "leaf first"])
def test_a_jitted_caller_calls_the_artifact_by_address_and_holds_no_copy(order):
    if order == "elsewhere first":
        # The same body, compiled by plain Numba, with other flags, before the proof.
        assert make_helper(njit(fastmath=True))(1.0, 2) != 0.0
        assert make_helper(njit)(1.0, 2) != 0.0
    if order == "leaf first":
        leaf(1.0)
    helper = make_helper(check_allocs)

    @njit
    def caller(x, n):
        return helper(x, n) + 1.0

    if order == "helper first":
        helper(1.0, 2)
    assert caller(2.0, 3) == helper(2.0, 3) + 1.0
    artifact = artifact_of(helper)
    address, data = symbol_code(caller, (types.float64, types.int64))
    ranges = code_of(artifact)
    # The address may be loaded as a constant or from a word of the caller's own data.
    found = set(constants(address, data))
    words = {
        ctypes.c_uint64.from_address(one).value
        for one in found
        if not inside(one, ranges) and one % 8 == 0 and _readable(one)
    }
    leading = [one for one in found | words if inside(one, ranges)]
    assert leading == [artifact.address]
    assert MARK not in found
    assert MARK in set(constants(*_body(artifact)))
    # No copy of the helper or of what it calls is in the caller's library.
    text = caller.inspect_llvm((types.float64, types.int64))
    defined = [line for line in text.splitlines() if line.startswith("define")]
    assert not [line for line in defined if "helper" in line or "leaf" in line]
    assert str(MARK) not in text


def test_a_small_function_that_cannot_raise_is_called_without_status_or_memory():
    @check_allocs("float64(float64)", error_model="numpy")
    def curve(x):
        return 1.0 / (1.0 + x * x) if x != 0.5 else float(MARK)

    @njit
    def caller(n):
        x = 0.25
        for _ in range(n):
            x = curve(x)
        return x

    artifact = artifact_of(curve)
    assert artifact.direct
    assert caller(3) == curve(curve(curve(0.25)))
    assert str(artifact.c_address) in caller.inspect_llvm((types.int64,))
    assert str(artifact.address) not in caller.inspect_llvm((types.int64,))
    # The entry is the body: nothing is called from it, and it stores nothing.
    (symbol,) = [one for one in artifact.object_file().symbols if one.name == artifact.c_symbol]
    code = list(iced_x86.Decoder(64, ctypes.string_at(artifact.c_address, symbol.size), ip=0))
    flows = {one.flow_control for one in code}
    assert iced_x86.FlowControl.CALL not in flows
    assert iced_x86.FlowControl.INDIRECT_CALL not in flows
    # The caller's loop has no status to look at: its only branches are those of the loop.
    assert str(float(MARK)) not in caller.inspect_llvm((types.int64,))


def test_the_entry_that_holds_the_body_is_checked_as_the_body_is():
    def small(x):
        return x * x

    def raising(x):
        if x > 0.0:
            raise ValueError
        return x

    space = {"math": math, "__name__": __name__}
    exec("def large(x):\n" + "    x = math.sin(x) + 1.5\n" * 80 + "    return x", space)

    def of_arrays(a):
        return a.size

    for function, signature, inlined in (
        (small, "float64(float64)", True),
        (raising, "float64(float64)", False),
        (space["large"], "float64(float64)", False),
        (of_arrays, "int64(float64[::1])", False),
    ):
        built = build(make_job(function, signature, {"error_model": "numpy"}))
        entries = built.artifact.c_entries
        assert entries.inlined is built.artifact.direct is inlined, function
        symbols = _entry_symbols(built, Policy())
        assert symbols == ((built.artifact.symbol, entries.value)[: 1 + inlined])


@pytest.mark.parametrize(
    ("function", "signature", "values"),
    [
        (lambda x: x, "int8(int8)", [-128, -1, 127]),
        (lambda x: x > 0, "boolean(float64)", [-1.0, 1.0]),
        (lambda x: x, "uint16(uint16)", [0, 65535]),
        (lambda x: -x, "float32(float32)", [1.5]),
        (lambda x: not x, "boolean(boolean)", [True, False]),
        (lambda x: x, "int64(uint8)", [0, 255]),
    ],
)
def test_arguments_and_values_cross_a_direct_call(function, signature, values):
    checked = hermetic(signature)(function)
    plain = njit(signature)(function)
    assert artifact_of(checked).direct

    @njit
    def both(x):
        return checked(x), plain(x)

    ((argument,),) = checked.artifacts
    for value in values:
        mine, theirs = both(np.dtype(str(argument).replace("boolean", "bool")).type(value))
        assert mine == theirs and type(mine) is type(theirs)


def _readable(address):
    with open("/proc/self/maps") as lines:
        for line in lines:
            bounds, mode = line.split()[:2]
            low, high = (int(one, 16) for one in bounds.split("-"))
            if low <= address < high:
                return mode.startswith("r")
    return False


def _body(artifact):
    (symbol,) = [one for one in artifact.object_file().symbols if one.name == artifact.symbol]
    return artifact.address, ctypes.string_at(artifact.address, symbol.size)


def test_the_caller_is_not_cached_on_disk(tmp_path, monkeypatch):
    helper = make_helper(check_allocs)

    @njit(cache=True)
    def caller(x):
        return helper(x, 2)

    with pytest.warns(Warning, match="dynamic globals"):
        caller(1.0)


def lost_references(decorate):
    """Call through jitted callers and return the references that each kind of call loses."""

    @decorate
    def last(x):
        if x.size == 0:
            raise IndexError("empty")
        return x[-1:]

    @njit
    def catching(x):
        try:
            return last(x)[0]
        except Exception:
            return -1.0

    @njit
    def passing(x):
        return last(x)

    data = np.arange(3.0)
    empty = data[:0]
    assert catching(data) == 2.0
    assert catching(empty) == -1.0
    assert passing(data)[0] == 2.0
    with pytest.raises(IndexError, match="empty"):
        passing(empty)
    lost = []
    for function, argument in itertools.product((catching, passing), (data, empty)):
        before = sys.getrefcount(argument)
        for _ in range(50):
            with contextlib.suppress(IndexError):
                function(argument)
        lost.append(sys.getrefcount(argument) - before)
    return lost


def test_exceptions_and_reference_counts_cross_the_call_as_with_njit():
    # Numba itself loses the references of a frame that an exception leaves; nothing else may.
    lost = lost_references(check_allocs)
    assert lost == lost_references(njit)
    assert lost[:3] == [0, 0, 0]


def test_every_entry_runs_the_one_body():
    helper = make_helper(hermetic("float64(float64, int64)"))
    artifact = artifact_of(helper)
    ranges = code_of(artifact)
    for address in (
        artifact.address,
        artifact.c_address,
        artifact.status_address,
        artifact.last_status_address,
    ):
        assert inside(address, ranges)
    # One body: the marked constant stands once, in the native function.
    symbols = [one for one in artifact.object_file().symbols if one.function]
    holders = []
    for one in symbols:
        start = artifact.image.sections[one.section] + one.offset
        if MARK in set(constants(start, ctypes.string_at(start, one.size))):
            holders.append(start)
    assert holders == [artifact.address]
    for name in (artifact.c_entries.value, artifact.c_entries.status):
        (one,) = [s for s in symbols if s.name == name]
        start = artifact.image.sections[one.section] + one.offset
        assert artifact.address in set(constants(start, ctypes.string_at(start, one.size)))


def test_numbas_views_of_the_function_lead_to_the_artifact():
    helper = make_helper(hermetic("float64(float64, int64)"))
    artifact = artifact_of(helper)
    result = helper.get_compile_result(float64(float64, types.int64))
    library, descriptor = result.library, result.fndesc
    assert library.get_pointer_to_function(descriptor.llvm_func_name) == artifact.address
    assert library.get_pointer_to_function(descriptor.llvm_cfunc_wrapper_name) == helper.address


def test_a_cfunc_that_calls_a_checked_function_goes_to_the_artifact():
    helper = make_helper(check_allocs("float64(float64, int64)"))

    @cfunc("float64(float64)")
    def callback(x):
        return helper(x, 3)

    assert callback.ctypes(2.0) == helper(2.0, 3)
    assert str(MARK) not in callback.inspect_llvm()


def test_a_checked_caller_holds_the_function_in_its_own_artifact():
    helper = make_helper(check_allocs)

    @check_allocs
    def caller(x, n):
        return helper(x, n)

    assert caller(2.0, 3) == helper(2.0, 3)
    own, other = artifact_of(caller), artifact_of(helper)
    assert isinstance(helper, Dispatcher)
    for low, high in code_of(own):
        found = set(constants(low, ctypes.string_at(low, high - low)))
        assert not [one for one in found if inside(one, code_of(other))]


def test_arrays_from_pointers_reach_the_artifact():
    @check_allocs
    def total(x):
        s = 0.0
        for v in x:
            s += v
        return s

    @cfunc("float64(CPointer(float64), intp)")
    def callback(values, n):
        return total(carray(values, (n,)))

    data = np.arange(5.0)
    assert callback.ctypes(data.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), 5) == 10.0

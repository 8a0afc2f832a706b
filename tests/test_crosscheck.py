"""Two readers of one artifact: machine code that is not what the IR shows is found."""

import ctypes
import re
from dataclasses import replace
from functools import cache

import iced_x86 as iced
import llvmlite.binding as ll
import numpy as np
import pytest
from iced_x86 import BlockEncoder, Code, Instruction, MemoryOperand, Register
from numba import types

from alloccheck import check
from alloccheck.analysis.contracts import load_contracts
from alloccheck.compile.artifact import build
from alloccheck.compile.target import make_job
from alloccheck.crosscheck import _reached, compare
from alloccheck.effects import Effect
from alloccheck.native_evidence import NativeEvidence
from alloccheck.program.llvm import read_module
from alloccheck.program.machine.calls import SiteKind, read_calls

BASE = 0x7F0000001000
MALLOC, SIN, OTHER = 0x111122223333, 0x444455556666, 0x777788889999
R = Register


# --- the reader, on code written by hand ----------------------------------------------------------


def code(*instructions):
    """Encode instructions from `BASE` on; integers among them are targets of branches."""
    encoder = BlockEncoder(64)
    for one in instructions:
        encoder.add(one)
    return encoder.encode(BASE)


def constant(register, value):
    return Instruction.create_reg_u64(Code.MOV_R64_IMM64, register, value)


def call(register):
    return Instruction.create_reg(Code.CALL_RM64, register)


def move(to, source):
    return Instruction.create_reg_reg(Code.MOV_R64_RM64, to, source)


def slot(distance):
    return MemoryOperand(R.RSP, displ=distance, displ_size=1)


def spill(distance, register):
    return Instruction.create_mem_reg(Code.MOV_RM64_R64, slot(distance), register)


def reload(register, distance):
    return Instruction.create_reg_mem(Code.MOV_R64_RM64, register, slot(distance))


def push(register):
    return Instruction.create_reg(Code.PUSH_R64, register)


def pop(register):
    return Instruction.create_reg(Code.POP_R64, register)


RET = Instruction.create(Code.RETNQ)
NOP = Instruction.create(Code.NOPD)


def sites(*instructions, word=lambda address: None, tables=None):
    data = code(*instructions)
    return read_calls(data, BASE, word, {} if tables is None else tables)


def targets(*instructions, **more):
    return [set(one.targets) for one in sites(*instructions, **more)]


def test_constants_reach_calls_through_registers_stack_and_pushes():
    assert targets(constant(R.RAX, MALLOC), call(R.RAX), RET) == [{MALLOC}]
    kept = (constant(R.RBX, SIN), constant(R.RAX, MALLOC), call(R.RAX), call(R.RBX), RET)
    assert targets(*kept) == [{MALLOC}, {SIN}]
    assert targets(constant(R.RAX, SIN), move(R.R12, R.RAX), call(R.R12), RET) == [{SIN}]
    spilled = (constant(R.RAX, SIN), spill(8, R.RAX), constant(R.RAX, 1), reload(R.RCX, 8))
    assert targets(*spilled, call(R.RCX), RET) == [{SIN}]
    moved = (constant(R.RAX, SIN), spill(8, R.RAX), push(R.RBX), reload(R.RCX, 16), call(R.RCX))
    assert targets(*moved, pop(R.RBX), RET) == [{SIN}]
    pushed = (constant(R.RAX, SIN), push(R.RAX), constant(R.RAX, 1), pop(R.RBX), RET)
    assert targets(*pushed) == []
    memory = (constant(R.RAX, 0x5000), Instruction.create_mem(Code.CALL_RM64, MemoryOperand(R.RAX)))
    assert targets(*memory, RET, word={0x5000: OTHER}.get) == [{OTHER}]


@pytest.mark.parametrize(
    "before",
    [
        (),
        (constant(R.RAX, MALLOC), constant(R.RBX, SIN), call(R.RBX)),
        (constant(R.RAX, MALLOC), Instruction.create_reg_i32(Code.ADD_RM64_IMM8, R.RAX, 8)),
        (constant(R.RAX, MALLOC), Instruction.create_reg(Code.MUL_RM64, R.RCX)),
        (constant(R.RAX, MALLOC), Instruction.create_reg_reg(Code.CMOVE_R64_RM64, R.RAX, R.RCX)),
        (constant(R.RAX, MALLOC), Instruction.create_reg_i32(Code.MOV_R8_IMM8, R.AL, 1)),
        (constant(R.RCX, MALLOC), spill(8, R.RCX), spill(4, R.RDX), reload(R.RAX, 8)),
        (constant(R.RAX, 0x5000), Instruction.create_reg_mem(
            Code.MOV_R64_RM64, R.RAX, MemoryOperand(R.RAX))),
    ],
    ids="argument clobbered added implied conditional partial overlapping variable".split(),
)  # fmt: skip
def test_what_is_not_surely_a_constant_is_a_pointer(before):
    last = sites(*before, call(R.RAX), RET)[-1]
    assert (last.kind, last.indirect) == (SiteKind.POINTER, True)


def branch(kind, target):
    return Instruction.create_branch(kind, target)


def test_a_call_after_two_paths_may_reach_what_either_sets():
    # je over; mov rbx, SIN; jmp both; over: mov rbx, MALLOC; both: call rbx
    data = bytes.fromhex("740c48bb") + SIN.to_bytes(8, "little") + bytes.fromhex("eb0a48bb")
    data += MALLOC.to_bytes(8, "little") + bytes.fromhex("ffd3c3")
    [site] = read_calls(data, BASE, lambda address: None, {})
    assert site.targets == {SIN, MALLOC}
    # Without the constant on one of them it is anything.
    data = bytes.fromhex("740a48bb") + SIN.to_bytes(8, "little") + bytes.fromhex("ffd3c3")
    [site] = read_calls(data, BASE, lambda address: None, {})
    assert site.kind is SiteKind.POINTER


def test_padding_that_nothing_reaches_adds_nothing():
    # mov rbx, SIN; jmp over; nop; over: call rbx
    data = bytes.fromhex("48bb") + SIN.to_bytes(8, "little") + bytes.fromhex("eb0190ffd3c3")
    [site] = read_calls(data, BASE, lambda address: None, {})
    assert site.targets == {SIN}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("0f05c3", SiteKind.SYSTEM),
        ("0f34c3", SiteKind.SYSTEM),
        ("cd80c3", SiteKind.UNREAD),
        ("06c3", SiteKind.UNREAD),
        ("eb01b800000000c3", SiteKind.UNREAD),
        ("50c3", SiteKind.UNREAD),
        ("48890424c3", SiteKind.UNREAD),
        ("4889c4c3", SiteKind.UNREAD),
        ("90", SiteKind.UNREAD),
        ("ffe0", SiteKind.POINTER),
        ("e8fb0f0000c3", SiteKind.CALL),
        ("e9fb0f0000", SiteKind.CALL),
        ("0f84fa0f0000c3", SiteKind.CALL),
    ],
    ids="syscall sysenter int80 invalid middle push-ret store-ret stack end jump call tail "
    "branch".split(),
)
def test_each_way_out_of_a_function_is_a_site(data, kind):
    found = read_calls(bytes.fromhex(data), BASE, lambda address: None, {})
    assert [one.kind for one in found] == [kind]
    if kind is SiteKind.CALL:
        assert found[0].targets == {BASE + 0x1000}


@pytest.mark.parametrize("data", "c3 0f0b cc 58c3 4883c408c3 c9c3 4839042474fac3".split())
def test_plain_code_has_no_site(data):
    assert read_calls(bytes.fromhex(data), BASE, lambda address: None, {}) == ()


def test_a_jump_table_stays_inside_and_its_entries_are_instructions():
    # mov rcx, table; jmp [rcx + 8 * rax]; a: ret; b: xor eax, eax; ret
    table = 0x500000
    data = bytes.fromhex("48b9") + table.to_bytes(8, "little") + bytes.fromhex("ff24c1c331c0c3")
    good = {table: BASE + 13, table + 8: BASE + 14}
    assert read_calls(data, BASE, lambda address: None, good) == ()
    bad = {table: BASE + 13, table + 8: BASE + 15}
    [site] = read_calls(data, BASE, lambda address: None, bad)
    assert site.kind is SiteKind.UNREAD
    for tables in ({}, None, {table + 8: BASE + 14}):
        [site] = read_calls(data, BASE, lambda address: None, tables)
        assert site.kind is SiteKind.POINTER


# --- the comparison, on artifacts -----------------------------------------------------------------


def allocating(n):
    return np.ones(n)


def growing(n):
    found = [0.0]
    for k in range(n):
        found.append(np.sin(k) ** 0.3)
    return len(found)


def solving(a, b):
    return np.linalg.solve(a, b)


def choosing(k, x):
    if k == 0:
        return np.sin(x)
    elif k == 1:
        return x * 2
    elif k == 2:
        return np.exp(x)
    elif k == 3:
        return x - 9
    elif k == 4:
        return x / 7
    elif k == 5:
        return np.log(x)
    return 0.0


def looking_up(values, rows, table, n, other):
    """Calls through a register that keeps its value over jump tables of whole addresses."""
    total = 0.0
    for _ in values:
        for _ in range(3):
            total += table.get(n, other)
            total += (other, total, 1.0)[n % 3]
        rows[0] = rows[1]
    return total


FUNCTIONS = {
    allocating: "(int64,)",
    growing: "(int64,)",
    solving: "(float64[:,::1], float64[::1])",
    choosing: "(int64, float64)",
    looking_up: (
        types.float64[::1],
        types.float64[:, ::1],
        types.DictType(types.int64, types.float64),
        types.int64,
        types.float64,
    ),
}


@cache
def read(function):
    built = build(make_job(function, FUNCTIONS[function]))
    programs = [read_module(built.listing, built.artifact.symbol)]
    contracts = NativeEvidence(load_contracts().lookup, built.artifact.externals)
    return built, programs, contracts, frozenset(check._undeclared(built))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_readers_agree_on_what_the_compiler_made(function):
    found = compare(*read(function))
    assert found.witnesses == ()
    assert found.functions and found.sites


def tampered(changes):
    """Return a reader of memory in which bytes at some addresses are others."""

    def read_memory(address, size):
        data = bytearray(ctypes.string_at(address, size))
        for at, new in changes.items():
            for k, byte in enumerate(new):
                if address <= at + k < address + size:
                    data[at + k - address] = byte
        return bytes(data)

    return read_memory


def instructions(built, name):
    symbol = next(one for one in built.object_file.symbols if one.name == name)
    start = built.artifact.image.sections[symbol.section] + symbol.offset
    return list(iced.Decoder(64, ctypes.string_at(start, symbol.size), ip=start))


def all_instructions(function):
    built, programs, *_ = read(function)
    return [one for name in _reached(programs) for one in instructions(built, name)]


def test_each_call_that_is_deleted_is_missed():
    built, programs, contracts, judged = read(solving)
    name = built.artifact.symbol
    externals = {address: symbol for symbol, address in built.artifact.externals.items()}
    table = load_contracts()
    calls = [
        one
        for one in read_calls(
            ctypes.string_at(built.artifact.address, _size(built, name)),
            built.artifact.address,
            lambda address: None,
            {},
        )
        if one.kind is SiteKind.CALL
    ]
    places: dict = {}
    for one in calls:
        for target in one.targets:
            places.setdefault(target, []).append(one.address)
    deleted = 0
    for target, addresses in places.items():
        symbol = externals.get(target)
        if symbol is not None and not table.lookup(symbol).effects:
            continue
        gone = {}
        for address in addresses:
            size = len(next(iter(iced.Decoder(64, ctypes.string_at(address, 15)))))
            gone[address] = b"\x90" * size
        found = compare(built, programs, contracts, judged, tampered(gone))
        assert found.witnesses, symbol
        shown = {one.symbol for one in found.witnesses}
        assert symbol in shown or symbol is None
        assert all("only the IR shows it" in one.reason for one in found.witnesses)
        deleted += 1
    assert deleted >= 3


def _size(built, name):
    return next(one.size for one in built.object_file.symbols if one.name == name)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_instruction_that_becomes_a_system_call_is_found(function):
    built, programs, contracts, judged = read(function)
    wide = [one for one in instructions(built, built.artifact.symbol) if len(one) >= 2]
    for one in wide[:: max(1, len(wide) // 25)]:
        new = bytes.fromhex("0f05") + b"\x90" * (len(one) - 2)
        found = compare(built, programs, contracts, judged, tampered({one.ip: new}))
        assert any("enters the kernel" in w.reason for w in found.witnesses), str(one)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_that_leads_elsewhere_is_found(function):
    built, programs, contracts, judged = read(function)
    malloc = ll.address_of_symbol("malloc")
    bound = set(built.artifact.externals.values())
    changed = 0
    for one in all_instructions(function):
        moved = one.code == Code.MOV_R64_IMM64 and one.immediate64 in bound
        if not moved:
            continue
        new = malloc.to_bytes(8, "little")
        found = compare(built, programs, contracts, judged, tampered({one.ip + 2: new}))
        alone = [w for w in found.witnesses if w.symbol == "malloc"]
        assert alone and all(w.effect is Effect.UNKNOWN for w in alone)
        assert any("may allocate, but only the machine code shows it" in w.reason for w in alone)
        changed += 1
    assert changed


def test_a_pointer_where_the_ir_has_none_is_found():
    built, programs, contracts, judged = read(allocating)
    at = next(
        one
        for one in instructions(built, built.artifact.symbol)
        if one.code == Code.CALL_RM64 and len(one) == 2
    )
    found = compare(built, programs, contracts, judged, tampered({at.ip: bytes.fromhex("ffd7")}))
    assert any("calls through a pointer" in one.reason for one in found.witnesses)


def test_a_function_without_code_is_found():
    built, programs, contracts, judged = read(allocating)
    kept = tuple(one for one in built.object_file.symbols if one.name != built.artifact.symbol)
    without = replace(built, object_file=replace(built.object_file, symbols=kept))
    [witness] = compare(without, programs, contracts, judged).witnesses
    assert witness.symbol == built.artifact.symbol
    assert "seen in the IR alone" in witness.source


def test_findings_of_the_machine_code_name_the_users_line(monkeypatch):
    def blind(listing, entry):
        defined = re.sub(r"(?m)^  (%\S+) = .*@NRT_MemInfo_alloc.*$", MADE, listing)
        assert defined != listing
        return read_module(defined, entry)

    monkeypatch.setattr(check, "read_module", blind)
    report = check.analyze(allocating, "(int64,)")
    [finding] = [one for one in report.findings if one.code == "AC901"]
    assert finding.symbol.startswith("NRT_MemInfo_alloc")
    line = allocating.__code__.co_firstlineno + 1
    assert (finding.location.file, finding.location.line) == (__file__, line)
    assert "call " in finding.reason and "+0x" in finding.reason


MADE = r"  \1 = inttoptr i64 8 to ptr"
"""What a reader sees that overlooks the call of an allocator."""

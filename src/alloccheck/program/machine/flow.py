"""Forward value analysis of one x86-64 function: what indirect jumps and calls can reach.

Knows iced-x86 instructions and the abstract values; nothing of symbols or of other functions. It
runs to a fixpoint in which states only ever get weaker, so the final facts hold on every path.

Relied upon, and nothing else: a called function keeps the callee-saved registers and the stack
pointer (System V ABI), and writes into the caller's frame only if a frame address was passed on.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

import iced_x86 as iced

from alloccheck.program.machine import values as v
from alloccheck.program.machine.chunk import AccessPath
from alloccheck.program.machine.decode import (
    Flow,
    Kind,
    Listing,
    always_faults,
    branch_target,
)
from alloccheck.program.machine.tables import ConstantReader
from alloccheck.program.machine.values import (
    Abstract,
    Frame,
    Infeasible,
    Known,
    Numbers,
    Pointers,
    Range,
)

M, R, RX = iced.Mnemonic, iced.Register, iced.RegisterExt
_REGISTER, _MEMORY = iced.OpKind.REGISTER, iced.OpKind.MEMORY
_WRITES = frozenset(
    {
        iced.OpAccess.WRITE,
        iced.OpAccess.COND_WRITE,
        iced.OpAccess.READ_WRITE,
        iced.OpAccess.READ_COND_WRITE,
    }
)
_MAYBE = frozenset({iced.OpAccess.COND_WRITE, iced.OpAccess.READ_COND_WRITE})
_INFORMATION = iced.InstructionInfoFactory()
_CALL, _BRANCH = int(Kind.CALL), int(Kind.BRANCH)
_STACK = frozenset({R.RSP, R.RBP})
CALL_CLOBBERED = (R.RAX, R.RCX, R.RDX, R.RSI, R.RDI, R.R8, R.R9, R.R10, R.R11)
ARGUMENTS = (R.RDI, R.RSI, R.RDX, R.RCX, R.R8, R.R9)
_WIDEN_AFTER = 10
"""Visits of a block after which values that still change are given up."""
_SWITCH_LIMIT = 1024
_STEP_LIMIT = 300_000
_NAMED: list[Any] = list(range(R.AL, R.R15 + 1))
_FULL = {r: RX.full_register(r) for r in _NAMED if RX.is_gpr(r)}
_SIZE = {r: RX.size(r) for r in _FULL}
_HIGH_BYTES = frozenset({R.AH, R.BH, R.CH, R.DH})

MemoryKey = tuple[int, int, int]
"""Origin and offset of a frame slot, and its size."""

# Jump condition -> (relation when taken, relation when not taken).
_RELATIONS: dict[int, tuple[str, str]] = {
    M.JA: ("a", "be"),
    M.JAE: ("ae", "b"),
    M.JB: ("b", "ae"),
    M.JBE: ("be", "a"),
    M.JE: ("e", "ne"),
    M.JNE: ("ne", "e"),
    M.JG: ("g", "le"),
    M.JGE: ("ge", "l"),
    M.JL: ("l", "ge"),
    M.JLE: ("le", "g"),
    M.JS: ("s", "ns"),
    M.JNS: ("ns", "s"),
}


class Comparison(NamedTuple):
    """The operands that the flags were set from by `cmp`, or by `test` of a value with itself."""

    register: int | None
    slot: MemoryKey | None
    left: Abstract
    right: Abstract
    bits: int
    result: bool = False
    """The flags are those of an operation's result: they tell zero and sign, not order."""


@dataclass(slots=True)
class State:
    """What is known before an instruction."""

    registers: dict[int, Abstract] = field(default_factory=dict)
    slots: dict[MemoryKey, Abstract] = field(default_factory=dict)
    low_copies: dict[int, int] = field(default_factory=dict)
    """Registers with the same token have the same low 32 bits."""
    copies: dict[int, int] = field(default_factory=dict)
    """Registers with the same token are equal."""
    flags: Comparison | None = None

    def copy(self) -> State:
        """Return an independent copy."""
        return State(
            self.registers.copy(),
            self.slots.copy(),
            self.low_copies.copy(),
            self.copies.copy(),
            self.flags,
        )


class StepLimit(Exception):
    """The function is too large to follow."""


class _Escaped(Exception):
    """A frame address was given away: start again without trusting frame slots over calls."""


class Trace:
    """The value analysis of one function.

    Parameters
    ----------
    listing : Listing
        Its instructions; grows as jump tables are resolved.
    entry : int
        Relative address of the entry.
    reader : ConstantReader
        Constant data.
    absolute : bool
        Whether relative addresses are absolute ones too (jitted code, fixed-position programs).
    whole : bool
        Whether the entry is that of a function, not of a part in the middle of one.
    ends : frozenset of int, optional
        Absolute addresses of functions that never return.

    Attributes
    ----------
    edges : dict
        Feasible successors of each instruction that ends a straight line.
    targets : dict
        Value of the target of each indirect call and jump, and of the number of each system call.
    arguments : dict
        For each call or jump, what is known of the arguments.
    unbounded : set
        Loads from the table of a `switch` whose index has no proven bound.
    balanced : dict
        For each return or jump, whether the stack pointer provably is what it was at entry.
    unbalanced : set
        Returns and jumps at which it provably is not.
    rewrites_return : bool
        Whether the place of the return address is written.
    """

    def __init__(
        self,
        listing: Listing,
        entry: int,
        reader: ConstantReader,
        *,
        absolute: bool,
        whole: bool,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        self.listing = listing
        self.entry = entry
        self.reader = reader
        self.absolute = absolute
        self.whole = whole
        self.ends = ends
        # Where a frame address is plainly taken there is no need to find out by trying.
        self._escaped = not whole or any(
            i.mnemonic == M.LEA and i.memory_base == R.RSP and i.op0_register not in _STACK
            for i in listing.instructions.values()
        )
        self._reset()

    def _reset(self) -> None:
        self.reached: set[int] = set()
        self.edges: dict[int, set[int]] = {}
        self.targets: dict[int, Abstract] = {}
        self.arguments: dict[int, dict[int, Known]] = {}
        self.balanced: dict[int, bool] = {}
        self.unbalanced: set[int] = set()
        self.rewrites_return = False
        self.leaders: set[int] = {self.entry}
        self.unbounded: set[int] = set()
        self._jumps = any(
            self.listing.instructions[at].flow_control == Flow.INDIRECT_BRANCH
            for at in self.listing.kinds
        )

    def run(self) -> Trace:
        """Run to the fixpoint.

        Raises
        ------
        StepLimit
            If that takes too many steps: nothing is known then.
        """
        try:
            self._run()
        except _Escaped:
            self._escaped = True
            self._reset()
            self._run()
        return self

    def _run(self) -> None:
        for at in self.listing.kinds:
            self._note_leader(at, self.listing.instructions[at])
        start = State()
        start.registers[R.RSP] = Frame(0, 0)
        entering: dict[int, State] = {self.entry: start}
        visits: Counter[int] = Counter()
        # Lower addresses first: in compiled code that is close to the order in which control
        # goes, so that most places are looked at once, after all that leads to them.
        work = [self.entry]
        waiting = {self.entry}
        steps = 0
        while work:
            at = heappop(work)
            waiting.discard(at)
            if at not in self.listing.instructions:
                continue
            visits[at] += 1
            for target, state in self._line(at, entering[at].copy()):
                known = entering.get(target)
                if known is None:
                    entering[target] = state
                elif not _weaken(known, state, drop=visits[target] >= _WIDEN_AFTER):
                    continue
                if target not in waiting:
                    waiting.add(target)
                    heappush(work, target)
            steps += self._length
            if steps > _STEP_LIMIT:
                raise StepLimit

    def _note_leader(self, at: int, instruction: Any) -> None:
        target = None
        if instruction.flow_control not in (Flow.NEXT, Flow.CALL, Flow.INDIRECT_CALL):
            target = branch_target(instruction)
            self.leaders.add(instruction.next_ip)
        if target is not None:
            self.leaders.add(target)

    def _line(self, at: int, state: State) -> list[tuple[int, State]]:
        """Follow a straight line; return the states that leave it."""
        instructions, kinds = self.listing.instructions, self.listing.kinds
        self._length = 0
        if R.RSP not in state.registers:
            self._escape()
        while True:
            instruction = instructions.get(at)
            if instruction is None:
                return []
            self._length += 1
            self.reached.add(at)
            kind = kinds.get(at)
            if kind is None:
                handler = _steps.get(instruction.code)
                if handler is None:
                    handler = _steps[instruction.code] = _find_step(instruction)
                if handler is not _INERT and not handler(self, instruction, state):
                    self._generic(instruction, state)
            elif kind == _BRANCH:
                return self._leave(at, instruction, state)
            elif always_faults(instruction):
                return []
            elif kind != _CALL:
                return self._leave(at, instruction, state)
            elif instruction.flow_control == Flow.INTERRUPT:
                self._generic(instruction, state)
            elif self._call(at, instruction, state):
                return []
            onward = instruction.next_ip
            if onward in self.leaders or onward not in instructions:
                self.edges.setdefault(at, set()).add(onward)
                return [(onward, state)]
            at = onward

    def _leave(self, at: int, instruction: Any, state: State) -> list[tuple[int, State]]:
        flow = instruction.flow_control
        found: list[tuple[int, State]] = []
        if flow == Flow.CONDITIONAL_BRANCH:
            target = branch_target(instruction)
            if instruction.mnemonic in (M.LOOP, M.LOOPE, M.LOOPNE):
                self._write_register(R.RCX, None, state)
            ways = ((target, state.copy(), True), (instruction.next_ip, state, False))
            for onward, before, taken in ways:
                if onward is None:
                    continue
                try:
                    narrowed = self._assume(instruction.mnemonic, before, taken)
                except Infeasible:
                    continue
                found.append((onward, narrowed))
        elif flow == Flow.UNCONDITIONAL_BRANCH:
            target = branch_target(instruction)
            if target is not None:
                self._note_exit(at, state)
                found.append((target, state))
        elif flow == Flow.INDIRECT_BRANCH:
            self._note_exit(at, state)
            local = self._indirect(at, instruction, state)
            found.extend((target, state.copy()) for target in local)
        elif flow == Flow.RETURN:
            self._note_exit(at, state)
        elif flow == Flow.XBEGIN_XABORT_XEND:
            blank = State()
            target = branch_target(instruction)
            found.extend((t, blank.copy()) for t in (target, instruction.next_ip) if t is not None)
        self.edges.setdefault(at, set()).update(target for target, _ in found)
        return found

    def _note_exit(self, at: int, state: State) -> None:
        top = state.registers.get(R.RSP)
        self.balanced[at] = self.balanced.get(at, True) and top == Frame(0, 0)
        if isinstance(top, Frame) and top.origin == 0 and top.offset != 0:
            self.unbalanced.add(at)
        self._note_arguments(at, state)

    def _note_arguments(self, at: int, state: State) -> None:
        before = self.arguments.get(at)
        if before is not None and not before:
            return
        known: dict[int, Known] = {}
        for position, register in enumerate(ARGUMENTS):
            value = state.registers.get(register)
            if value is not None and not isinstance(value, Frame):
                known[position] = value
        if before is not None:
            joined = {k: v.join(before[k], n) for k, n in known.items() if k in before}
            known = {k: n for k, n in joined.items() if n is not None}
        self.arguments[at] = known

    def returns_elsewhere(self, at: int) -> bool:
        """Return whether a return leads elsewhere than to the caller, as far as is known."""
        return at in self.unbalanced or self.rewrites_return

    def _record(self, at: int, value: Abstract) -> None:
        self.targets[at] = v.join(self.targets[at], value) if at in self.targets else value

    def _indirect(self, at: int, instruction: Any, state: State) -> list[int]:
        """Record an indirect jump; return those of its targets that are in this function."""
        value = self._target(instruction, state)
        self._record(at, value)
        local = [
            target
            for path in (value.paths if isinstance(value, Pointers) else ())
            if (target := self.local_target(path)) is not None
        ]
        known = len(self.listing.instructions)
        self.listing.descend(local)
        self.leaders.update(local)
        if len(self.listing.instructions) != known:
            for address in self.listing.kinds:
                if address not in self.reached:
                    self._note_leader(address, self.listing.instructions[address])
        return local

    def local_target(self, path: AccessPath) -> int | None:
        """Return the address in this function that a path denotes, or None."""
        target: int | None = None
        if len(path) == 1:
            target = path[0]
        elif len(path) == 2 and path[1] == 0:
            target = self.reader.word(path[0])
        if target is not None and self.listing.join(target):
            return target
        return None

    def _target(self, instruction: Any, state: State) -> Abstract:
        value: Abstract = None
        if instruction.op0_kind == _REGISTER:
            value = state.registers.get(_FULL.get(instruction.op0_register, -1))
            if _SIZE.get(instruction.op0_register) != 8:
                value = None
        elif instruction.op0_kind == _MEMORY and _memory_size(instruction) == 8:
            value = self._load(self._effective(instruction, state), 8, state)
        return self._as_pointers(value)

    def _as_pointers(self, value: Abstract) -> Abstract:
        if self.absolute and isinstance(value, Numbers):
            return Pointers(frozenset((n,) for n in value.values))
        return value

    # --- operands ---------------------------------------------------------------------------

    def _effective(self, instruction: Any, state: State) -> Abstract:
        if instruction.segment_prefix in (R.FS, R.GS):
            return None
        if instruction.is_ip_rel_memory_operand:
            return v.address(v.signed(instruction.ip_rel_memory_address, 64))
        base, index = instruction.memory_base, instruction.memory_index
        value: Abstract = v.number(instruction.memory_displacement)
        for register, factor in ((base, 1), (index, instruction.memory_index_scale)):
            if register == R.NONE:
                continue
            if _SIZE.get(register) != 8:
                return None
            part = state.registers.get(register)
            value = v.add(value, part if factor == 1 else v.index_offsets(part, factor))
            if value is None:
                return None
        return self._as_pointers(value)

    def _load(self, where: Abstract, size: int, state: State) -> Abstract:
        if isinstance(where, Frame):
            return state.slots.get((where.origin, where.offset, size))
        if not isinstance(where, Pointers):
            return None
        constants = set()
        for path in where.paths:
            known = self.reader.variable(path, size)
            if known is None and size < 8 and len(path) == 1:
                known = self.reader.read(path[0], size)
            if known is None:
                break
            constants.add(known)
        else:
            return Numbers(frozenset(constants))
        if size == 8:
            return Pointers(frozenset((*path, 0) for path in where.paths))
        return None

    def _read(self, instruction: Any, operand: int, state: State) -> tuple[Abstract, int]:
        """Return the value of an operand, and its size in bytes (value: its low bits)."""
        kind = instruction.op_kind(operand)
        if kind == _REGISTER:
            register = instruction.op_register(operand)
            if register in _HIGH_BYTES or register not in _FULL:
                return None, RX.size(register)
            return state.registers.get(_FULL[register]), _SIZE[register]
        if kind == _MEMORY:
            size = _memory_size(instruction)
            return self._load(self._effective(instruction, state), size, state), size
        try:
            return v.number(instruction.immediate(operand)), 8
        except ValueError:
            return None, 8

    def _write_register(self, register: int, value: Abstract, state: State) -> None:
        full = _FULL[register]
        size = _SIZE[register]
        state.low_copies.pop(full, None)
        state.copies.pop(full, None)
        if state.flags is not None and state.flags.register == full:
            flags = state.flags
            state.flags = flags._replace(register=None, slot=None)
        if size == 4:
            value = v.low_bits(value, 32)
        elif size != 8:
            value = None
        if isinstance(value, Frame) and full not in _STACK:
            self._escape()
        if full == R.RSP and not isinstance(value, Frame):
            self._escape()
        if value is None:
            state.registers.pop(full, None)
        else:
            state.registers[full] = value

    def _escape(self) -> None:
        if not self._escaped:
            raise _Escaped

    def _store(self, where: Abstract, size: int, value: Abstract, near: bool, state: State) -> None:
        """Write to memory; `near` says that an unknown address may be in the frame."""
        if isinstance(value, Frame):
            self._escape()
        if isinstance(where, Frame) and where.origin == 0 and -size < where.offset < 8:
            self.rewrites_return = True
        if isinstance(where, Frame):
            self._forget(where, size, state)
            if value is not None and size:
                state.slots[where.origin, where.offset, size] = value
        elif near or self._escaped:
            state.slots.clear()
            self._drop_slot_flags(state)

    def _forget(self, where: Frame, size: int, state: State) -> None:
        for key in list(state.slots):
            origin, offset, length = key
            apart = offset + length <= where.offset or where.offset + size <= offset
            # Frames of two origins overlap in ways that are not known.
            if origin != where.origin or not apart:
                del state.slots[key]
        self._drop_slot_flags(state)

    @staticmethod
    def _drop_slot_flags(state: State) -> None:
        flags = state.flags
        if flags is not None and flags.slot is not None:
            state.flags = flags._replace(register=None, slot=None)

    def _write_memory(
        self, instruction: Any, value: Abstract, size: int | None, state: State
    ) -> None:
        where = self._effective(instruction, state)
        base, index = instruction.memory_base, instruction.memory_index
        near = base in _STACK or index in _STACK
        near = near or isinstance(state.registers.get(base), Frame)
        self._store(where, size or 0, value, near or size is None, state)
        if size is None:
            state.slots.clear()

    # --- transfer ---------------------------------------------------------------------------

    def _call(self, at: int, instruction: Any, state: State) -> bool:
        """Follow a call; return whether control does not come back from it."""
        called: Abstract = None
        if instruction.mnemonic in (M.SYSCALL, M.SYSENTER):
            self._record(at, state.registers.get(R.RAX))
            clobbered: tuple[int, ...] = (R.RAX, R.RCX, R.R11)
        else:
            if instruction.flow_control == Flow.INDIRECT_CALL:
                called = self._target(instruction, state)
                self._record(at, called)
            self._note_arguments(at, state)
            clobbered = CALL_CLOBBERED
        for table in (state.registers, state.low_copies, state.copies):
            if table:
                for register in clobbered:
                    table.pop(register, None)
        state.flags = None
        top = state.registers.get(R.RSP)
        if self._escaped:
            state.slots.clear()
        elif state.slots and isinstance(top, Frame):
            # Below the stack pointer the called function has its own frame.
            origin, offset = top.origin, top.offset
            for key in [one for one in state.slots if one[0] != origin or one[1] < offset]:
                del state.slots[key]
        return (
            isinstance(called, Pointers)
            and bool(called.paths)
            and all(len(path) == 1 and path[0] in self.ends for path in called.paths)
        )

    def _generic(self, instruction: Any, state: State) -> bool:
        """Forget whatever the instruction may change."""
        information = _INFORMATION.info(instruction)
        for used in information.used_registers():
            if not RX.is_gpr(used.register):
                continue
            full = _FULL[used.register]
            if used.access in _WRITES:
                self._write_register(used.register, None, state)
                if used.access in _MAYBE:
                    # Not written, the register keeps its upper half too.
                    state.registers.pop(full, None)
            elif isinstance(state.registers.get(full), Frame) and not self._addresses_only(
                instruction, full
            ):
                self._escape()
        if any(used.access in _WRITES for used in information.used_memory()):
            if instruction.op_count and instruction.op0_kind == _MEMORY:
                size = iced.MemorySizeExt.size(instruction.memory_size)
                repeated = instruction.has_rep_prefix or instruction.has_repne_prefix
                self._write_memory(instruction, None, None if repeated else size or None, state)
            else:
                state.slots.clear()
                self._drop_slot_flags(state)
        if instruction.rflags_modified:
            state.flags = None
        return True

    @staticmethod
    def _addresses_only(instruction: Any, full: int) -> bool:
        """Return whether a register serves only to address memory in this instruction."""
        return all(
            instruction.op_kind(k) != _REGISTER or _FULL.get(instruction.op_register(k), -1) != full
            for k in range(instruction.op_count)
        )

    def _move(self, instruction: Any, state: State) -> bool:
        value, size = self._read(instruction, 1, state)
        if instruction.op0_kind == _MEMORY:
            size = _memory_size(instruction)
            if size < 8:
                value = v.low_bits(value, 8 * size)
                if value == v.full(8 * size):
                    value = None
            self._write_memory(instruction, value, size, state)
            return True
        if instruction.op0_kind != _REGISTER or instruction.op0_register not in _FULL:
            return False
        target = instruction.op0_register
        if instruction.op1_kind == _REGISTER and instruction.op1_register in _FULL and size >= 4:
            source = _FULL[instruction.op1_register]
            self._write_register(target, value, state)
            if source != _FULL[target]:
                self._note_copy(source, _FULL[target], instruction.ip, size == 8, state)
            return True
        self._write_register(target, value, state)
        return True

    @staticmethod
    def _note_copy(source: int, target: int, token: int, whole: bool, state: State) -> None:
        for table in (state.low_copies, state.copies) if whole else (state.low_copies,):
            if source not in table:
                for stale in [r for r, t in table.items() if t == token]:
                    del table[stale]
                table[source] = token
            table[target] = table[source]

    def _lea(self, instruction: Any, state: State) -> bool:
        target = instruction.op0_register
        value = self._effective(instruction, state)
        for register in (instruction.memory_base, instruction.memory_index):
            if isinstance(state.registers.get(register), Frame) and _FULL[target] not in _STACK:
                self._escape()
        self._write_register(target, value, state)
        return True

    def _extend(self, instruction: Any, state: State) -> bool:
        value, size = self._read(instruction, 1, state)
        bits = 8 * size
        if instruction.mnemonic == M.MOVZX:
            self._write_register(instruction.op0_register, v.low_bits(value, bits), state)
        else:
            extended = v.sign_extend(value, bits)
            if extended is None and instruction.mnemonic == M.MOVSXD:
                extended = self._switch_offsets(instruction, state)
            self._write_register(instruction.op0_register, extended, state)
        return True

    def _switch_offsets(self, instruction: Any, state: State) -> Abstract:
        """Read the offsets of a `switch` whose index has no proven bound.

        The compiler knew that the index is in the table and left the check out. Every entry of
        such a table leads into its own function; entries are read for as long as that is so. The
        result rests on that property, so the site is noted in `unbounded`.
        """
        if instruction.op1_kind != _MEMORY or not self._jumps:
            return None
        if instruction.memory_index == R.NONE or instruction.memory_index_scale != 4:
            return None
        base = state.registers.get(_FULL.get(instruction.memory_base, -1))
        if not isinstance(base, Pointers) or len(base.paths) != 1:
            return None
        (path,) = base.paths
        if len(path) != 1:
            return None
        table = path[0] + v.signed(instruction.memory_displacement, 64)
        offsets: set[int] = set()
        for place in range(table, table + 4 * _SWITCH_LIMIT, 4):
            word = self.reader.read(place, 4)
            offset = v.signed(word, 32) if word is not None else 0
            target = path[0] + offset
            if word is None or not self.listing.join(target):
                break
            if not self.listing.is_boundary(target):
                break
            offsets.add(offset & v.MASK)
        if len(offsets) < 2:
            return None
        self.unbounded.add(instruction.ip)
        return Numbers(frozenset(offsets))

    def _cdqe(self, _instruction: Any, state: State) -> bool:
        self._write_register(R.RAX, v.sign_extend(state.registers.get(R.RAX), 32), state)
        return True

    def _arithmetic(self, instruction: Any, state: State) -> bool:
        state.flags = None
        mnemonic = instruction.mnemonic
        if instruction.op0_kind != _REGISTER or instruction.op0_register not in _FULL:
            return False
        target = instruction.op0_register
        size = _SIZE[target]
        if size < 4:
            return False
        bits = 8 * size
        same = instruction.op1_kind == _REGISTER and instruction.op1_register == target
        if same and mnemonic in (M.XOR, M.SUB):
            self._write_register(target, v.number(0), state)
            return True
        left = state.registers.get(_FULL[target])
        right, _ = self._read(instruction, 1, state)
        if _FULL[target] not in _STACK and (isinstance(left, Frame) or isinstance(right, Frame)):
            self._escape()
        if size == 4:
            left, right = v.low_bits(left, 32), v.low_bits(right, 32)
            if (mnemonic == M.SUB and isinstance(right, Numbers)) or (
                mnemonic == M.ADD and isinstance(right, Numbers)
            ):
                right = v.sign_extend(right, 32)
        value: Abstract = None
        if mnemonic == M.ADD:
            value = v.add(left, right)
        elif mnemonic == M.SUB:
            value = v.subtract(left, right)
        elif mnemonic == M.AND:
            value = self._and(instruction, left, right, bits)
            if isinstance(value, Frame):
                self._forget_origin(value.origin, state)
        elif mnemonic == M.OR:
            value = v.combine(left, right, lambda a, b: a | b)
        elif mnemonic == M.XOR:
            value = v.combine(left, right, lambda a, b: a ^ b)
        self._write_register(target, value, state)
        self._note_result(target, state)
        return True

    @staticmethod
    def _note_result(target: int, state: State) -> None:
        full = _FULL[target]
        state.flags = Comparison(
            full, None, state.registers.get(full), v.number(0), 8 * _SIZE[target], result=True
        )

    @staticmethod
    def _and(instruction: Any, left: Abstract, right: Abstract, bits: int) -> Abstract:
        if isinstance(left, Frame) and isinstance(right, Numbers):
            return Frame(instruction.ip, 0)
        if isinstance(left, Pointers | Frame) or isinstance(right, Pointers | Frame):
            return None
        if isinstance(right, Numbers) and len(right.values) == 1:
            return v.mask_with(left, next(iter(right.values)) & ((1 << bits) - 1))
        return v.combine(left, right, lambda a, b: a & b)

    @staticmethod
    def _forget_origin(origin: int, state: State) -> None:
        """Forget an earlier alignment by the same instruction: it was another address."""
        for register, value in list(state.registers.items()):
            if isinstance(value, Frame) and value.origin == origin:
                del state.registers[register]
        state.slots.clear()

    def _shift(self, instruction: Any, state: State) -> bool:
        state.flags = None
        if instruction.op0_kind != _REGISTER or instruction.op0_register not in _FULL:
            return False
        count, _ = self._read(instruction, 1, state)
        target = instruction.op0_register
        size = _SIZE[target]
        if not isinstance(count, Numbers) or len(count.values) != 1 or size < 4:
            return False
        amount = next(iter(count.values)) & (63 if size == 8 else 31)
        left = state.registers.get(_FULL[target])
        if isinstance(left, Frame):
            self._escape()
        if size == 4:
            left = v.low_bits(left, 32)
        value: Abstract = None
        if instruction.mnemonic == M.SHL:
            value = v.index_offsets(left, 1 << amount) if amount < 16 else None
        elif isinstance(left, Numbers):
            value = Numbers(frozenset(n >> amount for n in left.values))
        elif isinstance(left, Range) and left.bits == 64:
            value = Range(64, left.low >> amount, left.high >> amount)
        elif left is None or isinstance(left, Range):
            value = v.full(8 * size - amount) if amount else left
        self._write_register(target, value, state)
        return True

    def _increment(self, instruction: Any, state: State) -> bool:
        state.flags = None
        if instruction.op0_kind != _REGISTER or _SIZE.get(instruction.op0_register, 0) < 4:
            return False
        target = instruction.op0_register
        left = state.registers.get(_FULL[target])
        if isinstance(left, Frame):
            self._escape()
        if _SIZE[target] == 4:
            left = v.low_bits(left, 32)
        step = 1 if instruction.mnemonic == M.INC else -1
        self._write_register(target, v.add(left, v.number(step)), state)
        self._note_result(target, state)
        return True

    def _push(self, instruction: Any, state: State) -> bool:
        value, size = self._read(instruction, 0, state)
        if instruction.op0_kind != _REGISTER:
            size = 8
        top = state.registers.get(R.RSP)
        if instruction.stack_pointer_increment != -8 or not isinstance(top, Frame):
            state.slots.clear()
            self._write_register(R.RSP, None, state)
            return True
        where = Frame(top.origin, top.offset - 8)
        self._write_register(R.RSP, where, state)
        self._store(where, 8, value if size == 8 else None, True, state)
        return True

    def _pop(self, instruction: Any, state: State) -> bool:
        top = state.registers.get(R.RSP)
        if instruction.op0_kind != _REGISTER or instruction.stack_pointer_increment != 8:
            return False
        value = self._load(top, 8, state) if isinstance(top, Frame) else None
        onward = Frame(top.origin, top.offset + 8) if isinstance(top, Frame) else None
        self._write_register(R.RSP, onward, state)
        self._write_register(instruction.op0_register, value, state)
        return True

    def _leave_frame(self, _instruction: Any, state: State) -> bool:
        base = state.registers.get(R.RBP)
        if not isinstance(base, Frame):
            self._write_register(R.RSP, None, state)
            self._write_register(R.RBP, None, state)
            return True
        saved = self._load(base, 8, state)
        self._write_register(R.RSP, Frame(base.origin, base.offset + 8), state)
        self._write_register(R.RBP, saved, state)
        return True

    def _conditional_move(self, instruction: Any, state: State) -> bool:
        target = instruction.op0_register
        left = state.registers.get(_FULL[target])
        right, _ = self._read(instruction, 1, state)
        if _SIZE[target] == 4:
            left, right = v.low_bits(left, 32), v.low_bits(right, 32)
        if isinstance(left, Frame) or isinstance(right, Frame):
            self._escape()
        self._write_register(target, v.join(left, right), state)
        return True

    def _compare(self, instruction: Any, state: State) -> bool:
        left, left_size = self._read(instruction, 0, state)
        right, right_size = self._read(instruction, 1, state)
        size = left_size if instruction.op0_kind in (_REGISTER, _MEMORY) else right_size
        register = slot = None
        if instruction.op0_kind == _REGISTER:
            if instruction.op0_register not in _HIGH_BYTES:
                register = _FULL.get(instruction.op0_register)
        else:
            where = self._effective(instruction, state)
            if isinstance(where, Frame):
                slot = (where.origin, where.offset, size)
        if instruction.mnemonic == M.TEST:
            same = (
                instruction.op0_kind == instruction.op1_kind == _REGISTER
                and instruction.op0_register == instruction.op1_register
            )
            if not same:
                left = v.combine(left, right, lambda a, b: a & b)
                register = slot = None
            right = v.number(0)
        state.flags = Comparison(register, slot, left, right, 8 * size)
        return True

    def _nothing(self, _instruction: Any, _state: State) -> bool:
        return True

    # --- conditions -------------------------------------------------------------------------

    def _assume(self, mnemonic: int, state: State, taken: bool) -> State:
        """Narrow a state by a branch.

        Raises
        ------
        Infeasible
            If the branch cannot go this way.
        """
        flags, relations = state.flags, _RELATIONS.get(mnemonic)
        if flags is None or relations is None or not flags.bits:
            return state
        relation = relations[0 if taken else 1]
        if flags.result and relation not in ("e", "ne", "s", "ns"):
            return state
        bits = flags.bits
        left, right = flags.left, flags.right
        if (
            isinstance(left, Numbers)
            and isinstance(right, Numbers)
            and len(left.values) * len(right.values) <= 256
            and not any(_holds(relation, a, b, bits) for a in left.values for b in right.values)
        ):
            raise Infeasible
        if not isinstance(right, Numbers) or len(right.values) != 1:
            return state
        span = _span(relation, next(iter(right.values)), bits, left)
        if span is None:
            return state
        v.restrict(left, bits, *span)
        if flags.register is not None:
            alike = {flags.register}
            for table in (state.copies, state.low_copies if bits <= 32 else {}):
                token = table.get(flags.register)
                alike |= {r for r, t in table.items() if token is not None and t == token}
            for register in alike:
                narrowed = v.restrict(state.registers.get(register), bits, *span)
                if register != R.RSP:
                    state.registers[register] = narrowed
        elif flags.slot is not None:
            state.slots[flags.slot] = v.restrict(state.slots.get(flags.slot), bits, *span)
        return state


_OPERAND_KINDS = {
    value: name for name, value in vars(iced.OpCodeOperandKind).items() if isinstance(value, int)
}
_NO_GENERAL_REGISTER = ("XMM", "YMM", "ZMM", "ST", "K_", "MEM", "IMM")
"""How the names of those operands begin that are no general register, whatever is encoded."""


def _is_inert(instruction: Any) -> bool:
    """Return whether all instructions of one encoding change nothing that is followed.

    That is arithmetic on vector registers: no operand is a general register, none is memory that is
    written, none is implied, and the flags stay.
    """
    information, encoding = _INFORMATION.info(instruction), instruction.op_code()
    if instruction.rflags_modified or instruction.is_string_instruction:
        return False
    for number in range(encoding.op_count):
        kind = _OPERAND_KINDS[encoding.op_kind(number)]
        if not kind.startswith(_NO_GENERAL_REGISTER):
            return False
        if "MEM" in kind and information.op_access(number) in _WRITES:
            return False
    addressing = {instruction.memory_base, instruction.memory_index}
    return not any(
        RX.is_gpr(used.register) and used.register not in addressing
        for used in information.used_registers()
    ) and not any(used.access in _WRITES for used in information.used_memory())


def _memory_size(instruction: Any) -> int:
    return int(iced.MemorySizeExt.size(instruction.memory_size))


_UNSIGNED = {
    "a": operator.gt,
    "ae": operator.ge,
    "b": operator.lt,
    "be": operator.le,
    "e": operator.eq,
    "ne": operator.ne,
}
_SIGNED = {"g": operator.gt, "ge": operator.ge, "l": operator.lt, "le": operator.le}


def _holds(relation: str, left: int, right: int, bits: int) -> bool:
    """Return whether a relation holds between the low bits of two words.

    Examples
    --------
    >>> _holds("b", 1, -1, 32), _holds("l", 1, -1, 32), _holds("s", 1, 2, 8)
    (True, False, True)
    """
    top = (1 << bits) - 1
    sign = top ^ (top >> 1)
    a, b = left & top, right & top
    if relation in _UNSIGNED:
        return bool(_UNSIGNED[relation](a, b))
    if relation in _SIGNED:
        return bool(_SIGNED[relation](a ^ sign, b ^ sign))
    return bool((a - b) & sign) == (relation == "s")


def _span(relation: str, constant: int, bits: int, left: Abstract) -> tuple[int, int] | None:
    """Return the unsigned interval that a relation to a constant confines a value to, if it is one.

    Examples
    --------
    >>> _span("be", 7, 32, None), _span("le", 7, 32, None), _span("g", 7, 8, None)
    ((0, 7), None, (8, 127))
    """
    top = (1 << bits) - 1
    c, middle = constant & top, top >> 1
    if relation in ("le", "l") and c <= middle:
        # Signed bounds from above confine only what is known not to be negative.
        known = v.low_bits(left, bits)
        if not isinstance(known, Range) or known.high > middle:
            return None
        relation = "be" if relation == "le" else "b"
    spans = {
        "a": (c + 1, top),
        "ae": (c, top),
        "b": (0, c - 1),
        "be": (0, c),
        "e": (c, c),
        "ne": (1, top) if c == 0 else None,
        "g": (c + 1, middle) if c <= middle else None,
        "ge": (c, middle) if c <= middle else None,
        "l": (middle + 1, c - 1),
        "le": (middle + 1, c),
        "s": (middle + 1, top) if c == 0 else None,
        "ns": (0, middle) if c == 0 else None,
    }
    return spans[relation]


def _weaken(known: State, new: State, *, drop: bool) -> bool:
    """Weaken a state so that it holds for a new way in too; return whether that changed it."""
    changed = False
    tables: tuple[tuple[dict[Any, Abstract], dict[Any, Abstract]], ...] = (
        (known.registers, new.registers),
        (known.slots, new.slots),
    )
    for table, other in tables:
        # What is the same object needs no look: copies of a state share their values.
        for key in [key for key, value in table.items() if other.get(key) is not value]:
            before = table[key]
            after = v.join(before, other.get(key))
            if after == before:
                continue
            changed = True
            if after is None or drop:
                del table[key]
            else:
                table[key] = after
    for copies, others in ((known.low_copies, new.low_copies), (known.copies, new.copies)):
        stale = [one for one, token in copies.items() if others.get(one) != token]
        for register in stale:
            del copies[register]
            changed = True
    if known.flags != new.flags and known.flags is not None:
        known.flags = None
        changed = True
    return changed


_Handler = Callable[[Trace, Any, State], bool]
_INERT = Trace._nothing
_steps: dict[int, _Handler] = {}
"""By iced's code of the encoding: a fact about the instruction set, found when first needed."""


def _find_step(instruction: Any) -> _Handler:
    """Return what follows the values over all instructions of one encoding."""
    handler = _HANDLERS.get(instruction.mnemonic)
    if handler is not None:
        return handler
    return _INERT if _is_inert(instruction) else Trace._generic


_HANDLERS: dict[int, _Handler] = {
    M.MOV: Trace._move,
    M.LEA: Trace._lea,
    M.MOVZX: Trace._extend,
    M.MOVSX: Trace._extend,
    M.MOVSXD: Trace._extend,
    M.CDQE: Trace._cdqe,
    M.SHL: Trace._shift,
    M.SHR: Trace._shift,
    M.INC: Trace._increment,
    M.DEC: Trace._increment,
    M.PUSH: Trace._push,
    M.POP: Trace._pop,
    M.LEAVE: Trace._leave_frame,
    M.CMP: Trace._compare,
    M.TEST: Trace._compare,
}
_HANDLERS.update(dict.fromkeys((M.ADD, M.SUB, M.AND, M.OR, M.XOR), Trace._arithmetic))
_HANDLERS.update(
    dict.fromkeys(
        (
            M.CMOVA,
            M.CMOVAE,
            M.CMOVB,
            M.CMOVBE,
            M.CMOVE,
            M.CMOVNE,
            M.CMOVG,
            M.CMOVGE,
            M.CMOVL,
            M.CMOVLE,
            M.CMOVS,
            M.CMOVNS,
        ),
        Trace._conditional_move,
    )
)
_HANDLERS.update(dict.fromkeys((M.NOP, M.ENDBR64), _INERT))

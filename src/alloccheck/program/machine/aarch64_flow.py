"""Forward value analysis of one aarch64 function: what indirect jumps and calls can reach.

Knows the A64 encodings and the abstract values; nothing of symbols or of other functions. What an
instruction does that is not known here is forgotten: every register that it may name is anything
afterwards. Relied upon: a called function keeps the callee-saved registers and the stack pointer
(AAPCS64), and writes into the caller's frame only if a frame address was passed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TypeVar

from alloccheck.program.machine import values as v
from alloccheck.program.machine.chunk import AccessPath
from alloccheck.program.machine.tables import ConstantReader
from alloccheck.program.machine.values import (
    Abstract,
    Frame,
    Infeasible,
    Numbers,
    Pointers,
    Range,
)

SP = 31
_ZERO = -1
"""The zero register: reads as 0, and what is written to it is lost."""
_FRAME_REGISTERS = (29, SP)
_CLOBBERED = (*range(19), 30)
_WIDEN_AFTER = 10
_STEP_LIMIT = 200_000

Branch = Callable[[int, int], tuple[str, int | None] | None]
"""Classifies an instruction word at an address; see `aarch64.branch`."""
Slot = tuple[int, int]
"""Offset in the frame, and size."""
_Key = TypeVar("_Key", int, Slot)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The operands that the flags were set from: a register or slot, and a constant."""

    register: int | None
    slot: Slot | None
    constant: int
    bits: int


@dataclass(slots=True)
class State:
    """What is known before an instruction."""

    registers: dict[int, Abstract] = field(default_factory=dict)
    slots: dict[Slot, Abstract] = field(default_factory=dict)
    origins: dict[int, Slot] = field(default_factory=dict)
    """Registers that hold what a slot holds."""
    flags: Comparison | None = None

    def copy(self) -> State:
        """Return an independent copy."""
        return State(dict(self.registers), dict(self.slots), dict(self.origins), self.flags)

    def read(self, register: int, bits: int = 64) -> Abstract:
        """Return what a register holds."""
        if register == _ZERO:
            return v.number(0)
        value = self.registers.get(register)
        return value if bits == 64 else v.low_bits(value, bits)

    def write(self, register: int, value: Abstract, bits: int = 64) -> None:
        """Set a register; a write of 32 bits clears the upper half."""
        if register == _ZERO:
            return
        self.origins.pop(register, None)
        if self.flags is not None and self.flags.register == register:
            self.flags = replace(self.flags, register=None)
        if bits == 32:
            value = v.low_bits(value, 32)
        if value is None:
            self.registers.pop(register, None)
        else:
            self.registers[register] = value

    def forget_slots(self) -> None:
        """Forget the frame."""
        self.slots.clear()
        self.origins.clear()
        if self.flags is not None:
            self.flags = replace(self.flags, slot=None)

    def weaken(self, other: State, *, drop: bool) -> bool:
        """Make this state hold for another way in too; return whether that changed it."""
        changed = _weaken(self.registers, other.registers, drop=drop)
        changed |= _weaken(self.slots, other.slots, drop=drop)
        for register in [r for r, s in self.origins.items() if other.origins.get(r) != s]:
            del self.origins[register]
            changed = True
        if self.flags is not None and self.flags != other.flags:
            self.flags = None
            changed = True
        return changed


def _weaken(table: dict[_Key, Abstract], other: dict[_Key, Abstract], *, drop: bool) -> bool:
    changed = False
    for key, before in list(table.items()):
        after = v.join(before, other.get(key))
        if after == before:
            continue
        changed = True
        if after is None or drop:
            del table[key]
        else:
            table[key] = after
    return changed


class StepLimit(Exception):
    """The function is too large to follow."""


class _Escaped(Exception):
    """A frame address was given away: start again without trusting frame slots over calls."""


class Trace:
    """The value analysis of one function.

    Parameters
    ----------
    words : sequence of int
        Instructions of its range.
    low : int
        Relative address of the first one.
    entry : int
        Relative address where control enters.
    leaders : set of int
        Positions at which straight lines begin; grows as jump tables are resolved.
    reader : ConstantReader
        Constant data.
    branch : callable
        Classifies words.

    Attributes
    ----------
    targets : dict
        Value of the target of each indirect call and jump, and of the number of each system call.
    """

    def __init__(
        self,
        words: Sequence[int],
        low: int,
        entry: int,
        leaders: set[int],
        reader: ConstantReader,
        branch: Branch,
    ) -> None:
        self.words = words
        self.low = low
        self.high = low + 4 * len(words)
        self.entry = entry
        self.leaders = leaders
        self.reader = reader
        self.branch = branch
        self.targets: dict[int, Abstract] = {}
        self._escaped = any(map(_gives_frame_away, words))

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
            self.targets.clear()
            self._run()
        return self

    def _run(self) -> None:
        start = State({SP: Frame(0, 0)})
        entering = {self.entry: start}
        visits: Counter[int] = Counter()
        work, waiting = [self.entry], {self.entry}
        steps = 0
        while work:
            at = heappop(work)
            waiting.discard(at)
            visits[at] += 1
            length, found = self._line(at, entering[at].copy())
            steps += length
            if steps > _STEP_LIMIT:
                raise StepLimit
            for target, state in found:
                if not self.low <= target < self.high or target % 4:
                    continue
                known = entering.get(target)
                if known is None:
                    entering[target] = state
                elif not known.weaken(state, drop=visits[target] >= _WIDEN_AFTER):
                    continue
                if target not in waiting:
                    waiting.add(target)
                    heappush(work, target)

    def local(self, path: AccessPath) -> int | None:
        """Return the address in this function that a path denotes, or None."""
        target = path[0] if len(path) == 1 else None
        if len(path) == 2 and path[1] == 0:
            target = self.reader.word(path[0])
        if target is None or not self.low <= target < self.high or target % 4:
            return None
        return target

    def _line(self, at: int, state: State) -> tuple[int, list[tuple[int, State]]]:
        """Follow a straight line; return its length and the states that leave it."""
        length = 0
        while at < self.high:
            position = (at - self.low) // 4
            word = self.words[position]
            length += 1
            found = self.branch(word, at)
            kind, target = found if found is not None else ("", None)
            if kind in ("return", "die", "invalid"):
                return length, []
            if kind == "jump" and target is not None:
                return length, [(target, state)]
            if kind == "branch" and target is not None:
                return length, self._conditional(word, at, target, state)
            if kind == "jump register":
                value = self._record(at, state.read(word >> 5 & 31))
                local = [self.local(p) for p in _paths(value)]
                fresh = [one for one in local if one is not None]
                self.leaders.update((one - self.low) // 4 for one in fresh)
                return length, [(one, state.copy()) for one in fresh]
            if kind == "call register":
                self._record(at, state.read(word >> 5 & 31))
            if kind == "system":
                self._record(at, state.read(8))
                # The kernel keeps all registers but the result's; it may write where it is told.
                state.write(0, None)
                if self._escaped:
                    state.forget_slots()
            elif kind in ("call", "call register"):
                self._call(state)
            else:
                self._step(word, at, state)
            at += 4
            if position + 1 in self.leaders:
                return length, [(at, state)]
        return length, []

    def _record(self, at: int, value: Abstract) -> Abstract:
        found = v.join(self.targets[at], value) if at in self.targets else value
        self.targets[at] = found
        return value

    def _call(self, state: State) -> None:
        for register in _CLOBBERED:
            state.write(register, None)
        state.flags = None
        top = state.registers.get(SP)
        if self._escaped or not isinstance(top, Frame):
            state.forget_slots()
            return
        for slot in [slot for slot in state.slots if slot[0] < top.offset]:
            del state.slots[slot]
        state.origins = {r: s for r, s in state.origins.items() if s in state.slots}

    def _conditional(
        self, word: int, at: int, target: int, state: State
    ) -> list[tuple[int, State]]:
        comparison, condition = state.flags, word & 15
        if word >> 25 & 0x3F == 0b011010:  # cbz, cbnz
            register = word & 31
            bits = 64 if word >> 31 else 32
            comparison = Comparison(register, state.origins.get(register), 0, bits)
            condition = 0 if not word >> 24 & 1 else 1
        elif word >> 24 != 0x54:
            comparison = None
        found = []
        for onward, taken in ((target, True), (at + 4, False)):
            try:
                found.append((onward, _narrowed(state.copy(), comparison, condition, taken)))
            except Infeasible:
                continue
        return found

    # --- instructions -----------------------------------------------------------------------

    def _step(self, word: int, at: int, state: State) -> None:
        group = word >> 25 & 15
        if group in (0b1000, 0b1001):
            self._immediate(word, at, state)
        elif group & 0b0111 == 0b0101:
            self._register(word, state)
        elif group & 0b0101 == 0b0100:
            self._memory(word, at, state)
        elif group & 0b0111 == 0b0111:
            # Floating point and vectors.
            if not _keeps_flags(word):
                state.flags = None
            if not _stays_a_vector(word):
                state.write(_zr(word & 31), None)
        elif group & 0b1110 == 0b1010:
            if word == 0xD503201F:  # nop
                return
            # Barriers, hints and system registers.
            for register in (_zr(word & 31), 16, 17, 30):
                state.write(register, None)
            state.flags = None
        else:
            _forget_everything(state)

    def _immediate(self, word: int, at: int, state: State) -> None:
        kind, bits = word >> 23 & 7, 64 if word >> 31 else 32
        rd, rn = word & 31, word >> 5 & 31
        target = _zr(rd)
        if kind in (0, 1):  # adr, adrp
            offset = v.signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
            place = (at & ~0xFFF) + (offset << 12) if word >> 31 else at + offset
            state.write(target, v.address(place))
        elif kind == 2:  # add, sub
            constant = (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
            self._sum(word, rd, rn, v.number(constant), bits, state)
        elif kind == 4:  # and, orr, eor, ands
            self._logical(word, _bit_mask(word, bits), bits, state)
        elif kind == 5:  # movn, movz, movk
            shift = 16 * (word >> 21 & 3)
            constant = (word >> 5 & 0xFFFF) << shift
            operation = word >> 29 & 3
            value: Abstract = None
            if operation == 2:
                value = v.number(constant)
            elif operation == 0:
                value = v.number(~constant & ((1 << bits) - 1))
            elif operation == 3:
                keep = ~(0xFFFF << shift)
                value = v.combine(
                    state.read(target, bits), v.number(constant), lambda a, b: a & keep | b
                )
            state.write(target, value, bits)
        elif kind == 6:  # bitfields
            state.write(target, _bit_field(word, state.read(_zr(rn), bits), bits), bits)
        else:
            state.write(target, None)
            state.flags = None

    def _sum(
        self, word: int, rd: int, rn: int, right: Abstract, bits: int, state: State,
        *, stack: bool = True,
    ) -> None:  # fmt: skip
        """Add or subtract; `stack` says that register 31 is the stack pointer here."""
        negative, sets = bool(word >> 30 & 1), bool(word >> 29 & 1)
        source = rn if stack else _zr(rn)
        left = state.read(source)
        low = left if bits == 64 else v.low_bits(left, 32)
        value = v.subtract(low, right) if negative else v.add(low, right)
        if sets:
            state.flags = None
            if negative and isinstance(right, Numbers) and len(right.values) == 1:
                (constant,) = right.values
                state.flags = Comparison(source, state.origins.get(source), constant, bits)
        target = rd if stack and not sets else _zr(rd)
        state.write(target, value, bits)
        if target == SP and not isinstance(value, Frame):
            state.forget_slots()

    def _logical(self, word: int, mask: int | None, bits: int, state: State) -> None:
        operation, rn = word >> 29 & 3, _zr(word >> 5 & 31)
        value: Abstract = None
        if mask is not None:
            if operation in (0, 3):
                value = v.mask_with(state.read(rn, bits), mask)
            else:
                combine = (lambda a, b: a | b) if operation == 1 else (lambda a, b: a ^ b)
                value = v.combine(state.read(rn, bits), v.number(mask), combine)
        rd = word & 31
        if operation == 3:
            state.flags = None
            rd = _zr(rd)
        state.write(rd, value, bits)
        if rd == SP:
            # An aligned stack: which slot is where is not known any more.
            state.forget_slots()

    def _register(self, word: int, state: State) -> None:
        bits = 64 if word >> 31 else 32
        rd, rn, rm = word & 31, word >> 5 & 31, word >> 16 & 31
        if word >> 24 & 0x1F == 0b01011:  # add, sub
            if word >> 21 & 1:
                self._sum(word, rd, rn, _extended(word, rm, state), bits, state)
            else:
                right = _shifted(word, state.read(_zr(rm), bits))
                self._sum(word, rd, rn, right, bits, state, stack=False)
            return
        if word & 0x7FE0FFE0 == 0x2A0003E0:  # mov
            state.write(_zr(rd), state.read(_zr(rm)), bits)
            if bits == 64 and rm in state.origins and rd != 31:
                state.origins[rd] = state.origins[rm]
            return
        if word >> 24 & 0x1F == 0b01010 and word >> 29 & 3 in (0, 1):  # and, orr and their like
            state.write(_zr(rd), None, bits)
            return
        if word >> 21 & 0xFF != 0b11010100:
            state.flags = None
            # A conditional comparison writes nothing: not even the upper half is known.
            state.write(_zr(rd), None)
        elif not word >> 30 & 1 and not word >> 10 & 3:  # csel
            value = v.join(state.read(_zr(rn), bits), state.read(_zr(rm), bits))
            state.write(_zr(rd), value, bits)
        else:
            state.write(_zr(rd), None, bits)

    # --- memory -----------------------------------------------------------------------------

    def _memory(self, word: int, at: int, state: State) -> None:
        rt, rn = word & 31, word >> 5 & 31
        vector = bool(word >> 26 & 1)
        if word >> 27 & 7 == 0b111:
            if word >> 24 & 3 == 1:
                offset = (word >> 10 & 0xFFF) << _scale(word)
                self._access(word, state.read(rn), v.number(offset), state)
                return
            if word >> 24 & 3 == 0 and not word >> 21 & 1:
                offset = v.signed(word >> 12 & 0x1FF, 9)
                mode = word >> 10 & 3
                base = state.read(rn)
                step = v.number(offset)
                if mode in (1, 3):
                    state.write(rn, v.add(base, step))
                self._access(word, base, v.number(0) if mode == 1 else step, state)
                if mode in (1, 3) and rt == rn and not vector:  # what it then does is left open
                    state.write(rn, None)
                return
            if word >> 24 & 3 == 0 and word >> 10 & 3 == 2:
                option, shift = word >> 13 & 7, _scale(word) if word >> 12 & 1 else 0
                index = _extend(state.read(_zr(word >> 16 & 31)), option, shift)
                self._access(word, state.read(rn), index, state)
                return
        elif word >> 27 & 7 == 0b101:
            self._pair(word, state)
            return
        elif word >> 27 & 7 == 0b011 and word >> 24 & 3 == 0:  # of a constant near the code
            offset = v.signed(word >> 5 & 0x7FFFF, 19) * 4
            width = {0: 4, 1: 8, 2: 4}.get(word >> 30, 0)
            if not vector:
                value = self._load(v.address(at + offset), width, state) if width else None
                if word >> 30 == 2:
                    value = v.sign_extend(value, 32)
                state.write(_zr(rt), value, 32 if word >> 30 == 0 else 64)
            return
        # Atomic and exclusive accesses, tags, vectors of several registers.
        for shift in (0, 5, 10, 16):
            register = word >> shift & 31
            for one in (register, register + 1):
                if one < SP or (one == SP and shift == 5):
                    state.write(one, None)
        state.forget_slots()

    def _access(self, word: int, base: Abstract, offset: Abstract, state: State) -> None:
        """Load or store one register."""
        size, operation, vector = word >> 30, word >> 22 & 3, bool(word >> 26 & 1)
        rt, near = word & 31, word >> 5 & 31 in _FRAME_REGISTERS or isinstance(base, Frame)
        where = v.add(base, offset)
        if vector:
            if not operation & 1:
                self._store(where, 1 << _scale(word), None, near, state)
            return
        width = 1 << size
        if operation == 0:
            self._store(where, width, state.read(_zr(rt)), near, state)
            if isinstance(where, Frame) and rt != 31:
                state.origins[rt] = (where.offset, width)
            return
        if size == 3 and operation == 2:  # prefetch
            return
        value = self._load(where, width, state)
        bits = 64
        if operation == 1:
            value = value if width == 8 else v.low_bits(value, 8 * width)
        else:
            value = v.sign_extend(value, 8 * width)
            bits = 64 if operation == 2 else 32
        state.write(_zr(rt), value, bits)
        if operation == 1 and isinstance(where, Frame) and rt != 31:
            state.origins[rt] = (where.offset, width)

    def _pair(self, word: int, state: State) -> None:
        kind, vector, mode = word >> 30, bool(word >> 26 & 1), word >> 23 & 3
        rn = word >> 5 & 31
        if kind == 1 and not vector and not word >> 22 & 1:  # with a tag: counted otherwise
            state.write(rn, None)
            state.forget_slots()
            return
        width = (4 << kind) if vector else (8 if kind & 2 else 4)
        offset = v.number(v.signed(word >> 15 & 0x7F, 7) * width)
        base = state.read(rn)
        if mode in (1, 3):
            state.write(rn, v.add(base, offset))
        where = base if mode == 1 else v.add(base, offset)
        # What is then done to a register that is named twice is left open.
        twice = {word & 31} & {word >> 10 & 31, rn if mode in (1, 3) else _ZERO}
        twice |= {word >> 10 & 31} & {rn if mode in (1, 3) else _ZERO}
        for number, rt in enumerate((word & 31, word >> 10 & 31)):
            place = v.add(where, v.number(number * width))
            if not word >> 22 & 1:
                value = None if vector else state.read(_zr(rt))
                near = rn in _FRAME_REGISTERS or isinstance(base, Frame)
                self._store(place, width, value, near, state)
            elif not vector:
                found = self._load(place, width, state)
                if kind == 1:
                    found = v.sign_extend(found, 32)
                elif width == 4:
                    found = v.low_bits(found, 32)
                state.write(_zr(rt), None if rt in twice else found)

    def _load(self, where: Abstract, size: int, state: State) -> Abstract:
        if isinstance(where, Frame):
            return state.slots.get((where.offset, size))
        if not isinstance(where, Pointers):
            return None
        if size == 8:
            return Pointers(frozenset((*path, 0) for path in where.paths))
        found = set()
        for path in where.paths:
            known = self.reader.read(path[0], size) if len(path) == 1 else None
            if known is None:
                return None
            found.add(known)
        return Numbers(frozenset(found))

    def _store(self, where: Abstract, size: int, value: Abstract, near: bool, state: State) -> None:
        """Write to memory; `near` says that an unknown address may be in the frame."""
        if isinstance(value, Frame) and not self._escaped:
            raise _Escaped
        if not isinstance(where, Frame):
            if self._escaped or near:
                state.forget_slots()
            return
        gone = {
            slot
            for slot in state.slots
            if slot[0] < where.offset + size and where.offset < slot[0] + slot[1]
        }
        for slot in gone:
            del state.slots[slot]
        low, high = where.offset, where.offset + size
        state.origins = {
            r: s for r, s in state.origins.items() if s[0] + s[1] <= low or high <= s[0]
        }
        if state.flags is not None and state.flags.slot is not None:
            state.flags = replace(state.flags, slot=None)
        if size < 8 and value is not None:
            value = v.low_bits(value, 8 * size)
        if value is not None and not isinstance(value, Frame):
            state.slots[where.offset, size] = value


def _paths(value: Abstract) -> Iterable[AccessPath]:
    return value.paths if isinstance(value, Pointers) else ()


def _zr(register: int) -> int:
    return register if register != 31 else _ZERO


def _forget_everything(state: State) -> None:
    state.registers.clear()
    state.forget_slots()
    state.flags = None


def _gives_frame_away(word: int) -> bool:
    """Return whether an instruction puts an address in the frame into an ordinary register."""
    first, second, target = word >> 5 & 31, word >> 16 & 31, word & 31
    if target in _FRAME_REGISTERS or not word >> 31:
        return False
    if word >> 23 & 0x3F == 0b100010:  # add, sub of a constant
        return first in _FRAME_REGISTERS
    if word >> 25 & 0b1110 == 0b1000:  # other constants
        return first == 29 and word >> 24 & 0x1F != 0b10000 and word >> 23 & 7 != 5
    if word >> 25 & 7 == 5:  # registers; the stack pointer is named by one form of add and sub
        stack = word >> 24 & 0x1F == 0b01011 and bool(word >> 21 & 1) and first == SP
        return stack or 29 in (first, second)
    return False


def _keeps_flags(word: int) -> bool:
    move = word & 0xFF3FFC00 == 0x1E204000 or word & 0xFF201FE0 == 0x1E201000
    return move or word & 0x9FF80400 == 0x0F000400


def _stays_a_vector(word: int) -> bool:
    """Return whether an instruction on vector registers surely sets no general one."""
    if word & 0x5F000000 == 0x1E000000:  # all but conversions to integers
        return bool(word >> 21 & 1) and bool(word >> 10 & 63)
    if word & 0x5F000000 == 0x1F000000:  # of three sources
        return True
    # Vectors: all but copies of an element.
    return word & 0x9F000000 in (0x0E000000, 0x0F000000) and word & 0x9FE08400 != 0x0E000400


def _scale(word: int) -> int:
    size = word >> 30
    if word >> 26 & 1 and word >> 23 & 1:
        return 4 if size == 0 else size
    return size


def _extended(word: int, rm: int, state: State) -> Abstract:
    return _extend(state.read(_zr(rm)), word >> 13 & 7, word >> 10 & 7)


def _extend(value: Abstract, option: int, shift: int) -> Abstract:
    """Extend the low bits of a value and shift it left."""
    bits = 8 << (option & 3)
    if bits < 64:
        value = v.sign_extend(value, bits) if option & 4 else v.low_bits(value, bits)
    return v.index_offsets(value, 1 << shift) if shift else value


def _shifted(word: int, value: Abstract) -> Abstract:
    amount, kind = word >> 10 & 63, word >> 22 & 3
    if not amount:
        return value
    return v.index_offsets(value, 1 << amount) if kind == 0 and amount < 32 else None


def _bit_mask(word: int, bits: int) -> int | None:
    """Decode the constant of a logical instruction (Arm ARM, `DecodeBitMasks`)."""
    n, rotation, ones = word >> 22 & 1, word >> 16 & 63, word >> 10 & 63
    length = (n << 6 | ~ones & 63).bit_length() - 1
    if length < 1:
        return None
    size = 1 << length
    count, turn = (ones & (size - 1)) + 1, rotation & (size - 1)
    if count == size or size > bits:
        return None
    element = (1 << count) - 1
    element = (element >> turn | element << (size - turn)) & ((1 << size) - 1)
    mask = 0
    for at in range(0, bits, size):
        mask |= element << at
    return mask


def _bit_field(word: int, value: Abstract, bits: int) -> Abstract:
    """Return the result of `ubfm` and `sbfm` in their usual forms: shifts and extensions."""
    operation, right, last = word >> 29 & 3, word >> 16 & 63, word >> 10 & 63
    if operation == 2 and right and last + 1 == right and last < bits - 1:
        return v.low_bits(v.index_offsets(value, 1 << (bits - right)), bits)  # lsl
    if right == 0 and operation == 2:
        return v.low_bits(value, last + 1)
    if right == 0 and operation == 0:
        return v.sign_extend(value, last + 1)
    if operation == 2 and last >= right:  # lsr, ubfx
        top = (1 << (last - right + 1)) - 1
        if isinstance(value, Numbers):
            return Numbers(frozenset(one >> right & top for one in value.values))
        return Range(64, 0, top)
    return None


_SPANS: dict[int, Callable[[int, int], tuple[int, int]]] = {
    0: lambda c, top: (c, c),  # eq
    2: lambda c, top: (c, top),  # hs
    3: lambda c, top: (0, c - 1),  # lo
    8: lambda c, top: (c + 1, top),  # hi
    9: lambda c, top: (0, c),  # ls
}
"""By condition: the unsigned interval that a comparison with a constant confines a value to."""
_SIGNED = {10: 2, 11: 3, 12: 8, 13: 9}
"""Signed conditions, and the unsigned ones that say the same of numbers that are not negative."""


def _narrowed(state: State, comparison: Comparison | None, condition: int, taken: bool) -> State:
    """Narrow a state by a conditional branch.

    Raises
    ------
    Infeasible
        If the branch cannot go this way.
    """
    if comparison is None or condition >= 14:
        return state
    if not taken:
        condition ^= 1
    bits, register, slot = comparison.bits, comparison.register, comparison.slot
    top = (1 << bits) - 1
    constant = comparison.constant & top
    place: Abstract = None
    if register is not None:
        place = state.read(register)
    elif slot is not None:
        place = state.slots.get(slot)
    if condition in _SIGNED:
        known = v.low_bits(place, bits)
        low, high = (known.low, known.high) if isinstance(known, Range) else (0, top)
        if isinstance(known, Numbers):
            low, high = min(known.values), max(known.values)
        if high > top >> 1 or constant > top >> 1 or low < 0:
            return state
        condition = _SIGNED[condition]
    span = _SPANS.get(condition)
    if span is None:
        return state
    low, high = span(constant, top)
    if register is not None and register != SP:
        narrowed = v.restrict(place, bits, low, high)
        if register != _ZERO and narrowed is not None:
            state.registers[register] = narrowed
    if slot is not None and 8 * slot[1] <= bits:
        narrowed = v.restrict(state.slots.get(slot), bits, low, high)
        if narrowed is not None:
            state.slots[slot] = narrowed
    return state

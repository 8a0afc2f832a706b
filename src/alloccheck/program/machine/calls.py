"""What functions with known bounds call, by decoding each from its first byte to its last.

A second opinion on code whose IR was read as well: quick, and without value analysis but for the
constants that a call through a register or a stack slot needs, which are searched backwards from
the call. Knows x86-64 instructions; nothing of images, symbols or effects. Whatever is not a plain
call, jump or return is a site of its own kind, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import iced_x86 as iced

from alloccheck.program.machine.decode import (
    Flow,
    Mnemonic,
    always_faults,
    branch_target,
)

R, RX = iced.Register, iced.RegisterExt
_REGISTER, _MEMORY, _IMMEDIATE64 = iced.OpKind.REGISTER, iced.OpKind.MEMORY, iced.OpKind.IMMEDIATE64
_WRITES = frozenset(
    {
        iced.OpAccess.WRITE,
        iced.OpAccess.COND_WRITE,
        iced.OpAccess.READ_WRITE,
        iced.OpAccess.READ_COND_WRITE,
    }
)
_INFORMATION = iced.InstructionInfoFactory()
_CLOBBERED = frozenset({R.RAX, R.RCX, R.RDX, R.RSI, R.RDI, R.R8, R.R9, R.R10, R.R11})
"""Registers that a called function may change (System V ABI)."""
_GENERAL = frozenset(range(R.RAX, R.R15 + 1))
_SEARCH_LIMIT = 20_000
"""Most instructions that are looked at for one function's calls."""
_NEAR = 8
_MASK = (1 << 64) - 1

Word = Callable[[int], int | None]
"""The eight bytes at an address that cannot change, or None."""


class SiteKind(StrEnum):
    """What is at a site."""

    CALL = "call"
    """A call, or a jump out of the function, to known addresses."""
    POINTER = "pointer"
    """A call or jump through a pointer whose value is not known."""
    SYSTEM = "system"
    """An instruction that enters the kernel."""
    UNREAD = "unread"
    """Bytes that are no instruction, or one whose effect on control is not followed."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place where control may leave a function, other than by a return to its caller.

    Parameters
    ----------
    kind : SiteKind
    address : int
        Live address of the instruction.
    targets : frozenset of int
        Where a call may go.
    text : str
        The instruction.
    indirect : bool
        Whether it goes through a register or memory.
    """

    kind: SiteKind
    address: int
    targets: frozenset[int] = frozenset()
    text: str = ""
    indirect: bool = False


def read_calls(
    code: bytes, start: int, word: Word, tables: Mapping[int, int] | None
) -> tuple[Site, ...]:
    """Return the sites of one function.

    Parameters
    ----------
    code : bytes
        All bytes of the function, and no others.
    start : int
        Address of the first.
    word : callable
        Reads the constants through which calls may go.
    tables : mapping of int to int, or None
        All constant words that hold addresses of code: where they are, and what they hold. None
        when there are tables that are not made of such words.

    Examples
    --------
    >>> code = bytes.fromhex("48b81122334455660000ffd0c3")
    >>> [site] = read_calls(code, 0x1000, lambda address: None, {})
    >>> [hex(target) for target in site.targets]
    ['0x665544332211']

    Notes
    -----
    The compiler puts no data between instructions, so decoding from the start finds each of them;
    a branch into the middle of one is reported. Stack slots of the function are taken to change
    only by stores relative to the stack or frame pointer.
    """
    return _Reader(code, start, word, tables).read()


class _Reader:
    def __init__(
        self, code: bytes, start: int, word: Word, tables: Mapping[int, int] | None
    ) -> None:
        self.start, self.end = start, start + len(code)
        self.instructions = list(iced.Decoder(64, code, ip=start))
        self.word = word
        self.complete = tables is not None or not any(
            instruction.flow_control == Flow.INDIRECT_BRANCH for instruction in self.instructions
        )
        self.tables = {at: t for at, t in (tables or {}).items() if start < t < self.end}
        self.left = _SEARCH_LIMIT
        self.branches: list[tuple[int, int]] = []
        self.pointers: list[int] = []

    def read(self) -> tuple[Site, ...]:
        sites: list[Site] = []
        branches, pointers = self.branches, self.pointers
        returns: list[int] = []
        for number, instruction in enumerate(self.instructions):
            flow = instruction.flow_control
            if flow == Flow.NEXT:
                continue
            if flow in (Flow.CONDITIONAL_BRANCH, Flow.UNCONDITIONAL_BRANCH):
                target = branch_target(instruction)
                if target is None:
                    sites.append(self._unread(instruction))
                else:
                    branches.append((number, target))
            elif flow in (Flow.INDIRECT_CALL, Flow.INDIRECT_BRANCH):
                pointers.append(number)
            elif flow == Flow.CALL:
                sites.append(self._call(instruction))
            elif flow == Flow.RETURN and instruction.mnemonic == Mnemonic.RET:
                returns.append(number)
            elif not always_faults(instruction):
                sites.append(self._unread(instruction))
        sites += self._left_by(branches)
        sites += [site for number in pointers if (site := self._pointer(number)) is not None]
        sites += [
            self._unread(self.instructions[number])
            for number in returns
            if not self._is_plain_return(number)
        ]
        sites += self._past_the_end()
        return tuple(sorted(sites, key=lambda site: site.address))

    @staticmethod
    def _unread(instruction: Any) -> Site:
        text = str(instruction) if instruction else "bytes that are no instruction"
        return Site(SiteKind.UNREAD, instruction.ip, text=text)

    def _call(self, instruction: Any) -> Site:
        target = branch_target(instruction)
        if target is not None:
            return Site(SiteKind.CALL, instruction.ip, frozenset({target}), str(instruction))
        if instruction.mnemonic in (Mnemonic.SYSCALL, Mnemonic.SYSENTER):
            return Site(SiteKind.SYSTEM, instruction.ip, text=str(instruction))
        return self._unread(instruction)

    @cached_property
    def _places(self) -> frozenset[int]:
        return frozenset(instruction.ip for instruction in self.instructions)

    def _left_by(self, branches: Iterable[tuple[int, int]]) -> Iterable[Site]:
        """Yield the direct branches that leave the function, or lead between instructions."""
        places = self._places if branches else frozenset()
        for number, target in branches:
            instruction = self.instructions[number]
            if not self.start <= target < self.end:
                yield Site(SiteKind.CALL, instruction.ip, frozenset({target}), str(instruction))
            elif target not in places:
                text = f"{instruction}: a jump into the middle of an instruction"
                yield Site(SiteKind.UNREAD, instruction.ip, text=text)

    def _past_the_end(self) -> Iterable[Site]:
        if not self.instructions:
            yield Site(SiteKind.UNREAD, self.start, text="no code")
            return
        last = self.instructions[-1]
        ends = (Flow.RETURN, Flow.UNCONDITIONAL_BRANCH, Flow.INDIRECT_BRANCH)
        # After a call that does not return nothing follows.
        calls = (Flow.CALL, Flow.INDIRECT_CALL)
        if last.flow_control not in ends + calls and not always_faults(last) and last:
            text = f"{last}: control runs past the end of the function"
            yield Site(SiteKind.UNREAD, last.ip, text=text)

    def _is_plain_return(self, number: int) -> bool:
        """Return whether what stands before a return leaves the return address alone."""
        if number == 0:
            return True
        before = self.instructions[number - 1]
        if before.mnemonic == Mnemonic.PUSH:
            return False
        if not before.op_count or before.flow_control != Flow.NEXT:
            return True
        if before.op0_kind == _REGISTER and before.op0_register == R.RSP:
            moved = before.mnemonic in (Mnemonic.MOV, Mnemonic.XCHG)
            return not moved or before.op1_register == R.RBP
        return not (
            before.op0_kind == _MEMORY
            and before.memory_base == R.RSP
            and before.memory_displacement == 0
            and before.mnemonic not in (Mnemonic.CMP, Mnemonic.TEST)
        )

    # --- through pointers -------------------------------------------------------------------

    def _pointer(self, number: int) -> Site | None:
        instruction = self.instructions[number]
        jump = instruction.flow_control == Flow.INDIRECT_BRANCH
        if jump:
            entries = self._table(number)
            if entries is not None:
                return self._table_targets(instruction, entries)
        found: set[int] | None
        if instruction.op0_kind == _REGISTER:
            found = self._values(number, instruction.op0_register)
        else:
            found = self._loaded(number, instruction)
        if found is None:
            return Site(SiteKind.POINTER, instruction.ip, text=str(instruction), indirect=True)
        return Site(SiteKind.CALL, instruction.ip, frozenset(found), str(instruction), True)

    def _table(self, number: int) -> frozenset[int] | None:
        """Return the entries of the table that a jump goes through: ``jmp [base + 8 * index]``.

        The table ends where its words no longer lead into the function.
        """
        load = self._table_load(number) if self.tables else None
        if load is None:
            return None
        instruction = self.instructions[load]
        if instruction.memory_base not in _GENERAL:
            return None
        bases = self._values(load, instruction.memory_base)
        if bases is None:
            return None
        found = set()
        for base in bases:
            place = (base + instruction.memory_displacement) & _MASK
            if place not in self.tables:
                return None
            while place in self.tables:
                found.add(self.tables[place])
                place += 8
        return frozenset(found)

    def _table_load(self, number: int) -> int | None:
        """Return the instruction that reads the table's word: the jump, or a move before it."""
        instruction = self.instructions[number]
        if instruction.op0_kind == _MEMORY:
            return number if _is_element(instruction) else None
        register = instruction.op0_register
        for earlier in range(number - 1, max(-1, number - _NEAR), -1):
            instruction = self.instructions[earlier]
            if instruction.flow_control != Flow.NEXT:
                return None
            if register in _written(instruction):
                moves = instruction.mnemonic == Mnemonic.MOV and instruction.op1_kind == _MEMORY
                return earlier if moves and _is_element(instruction) else None
        return None

    def _table_targets(self, instruction: Any, entries: frozenset[int]) -> Site | None:
        if entries <= self._places:
            return None
        text = f"{instruction}: a jump table with entries between instructions"
        return Site(SiteKind.UNREAD, instruction.ip, text=text)

    def _loaded(self, number: int, instruction: Any) -> set[int] | None:
        """Return what the words that a memory operand may mean hold."""
        places = self._operand_places(number, instruction)
        if places is None:
            slot = _slot(instruction)
            return None if slot is None else self._values(number, slot)
        words = {self.word(place) for place in places}
        return None if None in words else {one for one in words if one is not None}

    def _operand_places(self, number: int, instruction: Any) -> set[int] | None:
        """Return the addresses that a memory operand may mean, where these are constants."""
        if instruction.segment_prefix != R.NONE:
            return None
        if instruction.is_ip_rel_memory_operand:
            return {instruction.ip_rel_memory_address}
        base, index = instruction.memory_base, instruction.memory_index
        if index != R.NONE or base not in _GENERAL or base in (R.RSP, R.RBP):
            return None
        found = self._values(number, base)
        if found is None:
            return None
        distance = instruction.memory_displacement
        return {(one + distance) & _MASK for one in found}

    def _values(self, number: int, wanted: _Wanted) -> set[int] | None:
        """Return the constants that a register or stack slot may hold before an instruction.

        Goes back along every path to where it was set; None when it is anything else somewhere.
        What nothing leads to, such as padding, adds nothing.
        """
        found: set[int] = set()
        work: list[tuple[int, _Wanted]] = [(number, wanted)]
        seen: set[tuple[int, _Wanted]] = set()
        while work:
            place = work.pop()
            if place in seen:
                continue
            seen.add(place)
            self.left -= 1
            before = self._before(place[0])
            if self.left < 0 or place[0] == 0:
                return None
            if not before and not self.complete:
                return None
            for one in before:
                step = self._step(one, place[1])
                if step is None:
                    return None
                if isinstance(step, set):
                    found |= step
                else:
                    work.append((one, step[0]))
        return found

    def _step(self, number: int, wanted: _Wanted) -> set[int] | tuple[_Wanted] | None:
        """Return the constants that an instruction gives what is wanted, or where to look on."""
        instruction = self.instructions[number]
        if isinstance(wanted, tuple):
            return self._step_of_slot(number, instruction, wanted)
        if instruction.flow_control in (Flow.CALL, Flow.INDIRECT_CALL):
            return None if wanted in _CLOBBERED else (wanted,)
        if wanted not in _written(instruction):
            return (wanted,)
        return self._given(number, instruction)

    def _given(self, number: int, instruction: Any) -> set[int] | tuple[_Wanted] | None:
        """Return what an instruction that writes one whole register gives it."""
        mnemonic = instruction.mnemonic
        if mnemonic == Mnemonic.LEA and instruction.is_ip_rel_memory_operand:
            return {instruction.ip_rel_memory_address}
        if mnemonic == Mnemonic.XOR and instruction.op0_register == instruction.op1_register:
            return {0}
        if mnemonic != Mnemonic.MOV or RX.size(instruction.op0_register) < 4:
            return None
        kind = instruction.op1_kind
        if kind == _REGISTER:
            source = instruction.op1_register
            return (source,) if source in _GENERAL else None
        if RX.size(instruction.op0_register) == 4:
            # The upper half becomes zero.
            immediate = kind == iced.OpKind.IMMEDIATE32
            return {instruction.immediate32} if immediate else None
        if kind == _MEMORY:
            places = self._operand_places(number, instruction)
            if places is None:
                slot = _slot(instruction)
                return None if slot is None else (slot,)
            words = {self.word(place) for place in places}
            return None if None in words else {one for one in words if one is not None}
        if kind in (_IMMEDIATE64, iced.OpKind.IMMEDIATE32TO64):
            return {instruction.immediate(1) & _MASK}
        return None

    def _step_of_slot(
        self, number: int, instruction: Any, slot: tuple[int, int]
    ) -> set[int] | tuple[_Wanted] | None:
        base, distance = slot
        mnemonic = instruction.mnemonic
        if instruction.flow_control in (Flow.CALL, Flow.INDIRECT_CALL):
            return (slot,)
        if base == R.RSP and mnemonic == Mnemonic.PUSH:
            if distance != 0:
                return ((base, distance - 8),)
            register = instruction.op0_register
            return (register,) if register in _GENERAL else None
        if base == R.RSP and mnemonic == Mnemonic.POP:
            popped = instruction.op0_kind == _REGISTER and instruction.op0_register != R.RSP
            return ((base, distance + 8),) if popped else None
        if base in _written(instruction):
            moved = _moved(instruction, base)
            return None if moved is None else ((base, distance + moved),)
        if not instruction.op_count or instruction.op0_kind != _MEMORY:
            return (slot,)
        if instruction.memory_base not in (R.RSP, R.RBP):
            return (slot,)
        if mnemonic in (Mnemonic.CMP, Mnemonic.TEST):
            return (slot,)
        size = iced.MemorySizeExt.size(instruction.memory_size)
        at = _signed(instruction.memory_displacement)
        if instruction.memory_index != R.NONE or not size:
            return None
        if instruction.memory_base != base:
            # The other of stack and frame pointer: which slot it means is not known here.
            return None
        if at + size <= distance or at >= distance + 8:
            return (slot,)
        if at != distance or size != 8 or mnemonic != Mnemonic.MOV:
            return None
        if instruction.op1_kind == _REGISTER:
            return (instruction.op1_register,)
        if instruction.op1_kind == iced.OpKind.IMMEDIATE32TO64:
            return {instruction.immediate(1) & _MASK}
        return None

    # --- what runs before what --------------------------------------------------------------

    def _before(self, number: int) -> list[int]:
        """Return the instructions that may run just before one; none for the entry."""
        if number == 0:
            return []
        found = list(self._sources.get(self.instructions[number].ip, ()))
        before = self.instructions[number - 1]
        ends = (Flow.RETURN, Flow.UNCONDITIONAL_BRANCH, Flow.INDIRECT_BRANCH)
        if before.flow_control not in ends and not always_faults(before):
            found.append(number - 1)
        return found

    @cached_property
    def _sources(self) -> Mapping[int, list[int]]:
        sources: dict[int, list[int]] = {}
        for number, target in self.branches:
            sources.setdefault(target, []).append(number)
        jumps = [
            n for n in self.pointers if self.instructions[n].flow_control == Flow.INDIRECT_BRANCH
        ]
        for target in self.tables.values():
            sources.setdefault(target, []).extend(jumps)
        return sources


_Wanted = int | tuple[int, int]
"""A register, or a stack slot: base register and distance."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _slot(instruction: Any) -> tuple[int, int] | None:
    base = instruction.memory_base
    if base not in (R.RSP, R.RBP) or instruction.memory_index != R.NONE:
        return None
    if instruction.segment_prefix != R.NONE:
        return None
    return base, _signed(instruction.memory_displacement)


def _is_element(instruction: Any) -> bool:
    return bool(
        instruction.memory_index != R.NONE
        and instruction.memory_index_scale == 8
        and instruction.segment_prefix == R.NONE
    )


def _moved(instruction: Any, base: int) -> int | None:
    """Return by how much an instruction lifts the stack pointer."""
    if base != R.RSP or instruction.op0_kind != _REGISTER or instruction.op0_register != R.RSP:
        return None
    constants = (iced.OpKind.IMMEDIATE8TO64, iced.OpKind.IMMEDIATE32TO64)
    if instruction.mnemonic in (Mnemonic.ADD, Mnemonic.SUB) and instruction.op1_kind in constants:
        by = _signed(instruction.immediate(1) & _MASK)
        return by if instruction.mnemonic == Mnemonic.ADD else -by
    return None


_NEVER_IMPLIED = frozenset(range(R.R12, R.R15 + 1))
_NOTHING_IMPLIED = frozenset(
    {Mnemonic.MOV, Mnemonic.LEA, Mnemonic.ADD, Mnemonic.SUB, Mnemonic.XOR, Mnemonic.AND}
)


@dataclass(frozen=True, slots=True)
class _Form:
    """Which operands and other registers the instructions of one encoding write."""

    operands: tuple[int, ...]
    others: frozenset[int]


_forms: dict[int, _Form] = {}
"""By iced's code of the encoding: a fact about the instruction set, found when first needed."""


def _written(instruction: Any) -> frozenset[int]:
    """Return the general registers, in full, that an instruction may write."""
    form = _forms.get(instruction.code)
    if form is None:
        information = _INFORMATION.info(instruction)
        written = {
            RX.full_register(used.register)
            for used in information.used_registers()
            if used.access in _WRITES
        }
        operands = tuple(
            k for k in range(instruction.op_count) if information.op_access(k) in _WRITES
        )
        named = {
            RX.full_register(instruction.op_register(k))
            for k in operands
            if instruction.op_kind(k) == _REGISTER
        }
        if instruction.is_string_instruction:
            written |= {R.RCX, R.RSI, R.RDI}
        if named <= _NEVER_IMPLIED or instruction.mnemonic in _NOTHING_IMPLIED:
            # Else one of the registers might be written by its name and by implication.
            _forms[instruction.code] = _Form(operands, frozenset(written - named))
        return frozenset(written) & _GENERAL
    found = form.others
    for operand in form.operands:
        if instruction.op_kind(operand) == _REGISTER:
            found = found | {RX.full_register(instruction.op_register(operand))}
    return found & _GENERAL

"""Writable variables that nothing ever writes, such as the error mode of libm.

Knows images and x86-64 operands. A variable counts as constant only if it is an exported integer
of known size; no relocation gives its address to anybody but its own library; and every
instruction of that library that mentions it, directly or through the library's own GOT slot, only
reads it. What remains (somebody looks the symbol up by name and writes to it) is an assumption
that the user of this module must name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import iced_x86 as iced
import numpy as np

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import AccessPath, ConstantGlobal, Part
from alloccheck.program.machine.decode import Flow, Listing, branch_target
from alloccheck.program.machine.images import EM_X86_64, PF_W, PF_X, Image
from alloccheck.program.machine.symbols import Symbol

_LARGEST_CODE = 4 << 20
_SIZES = (1, 2, 4)
_GLOB_DAT = 6
_SLOT = 8
"""Bytes of a slot of the GOT."""
_IMMEDIATE_BYTES = (0, 1, 2, 4)
"""How many bytes of an instruction may follow its displacement."""
_LONGEST_HEAD = 10
"""How many bytes of an instruction may precede its displacement."""
_WIDEST = 64
"""Bytes of the widest memory access."""
_READS = frozenset({iced.OpAccess.NONE, iced.OpAccess.READ, iced.OpAccess.COND_READ})
_INFORMATION = iced.InstructionInfoFactory()
R, RX = iced.Register, iced.RegisterExt
_DEAD_AFTER_CALL = frozenset({R.RAX, R.R10, R.R11})
"""Registers that a call may destroy and that carry no argument."""
_ARGUMENTS = frozenset({R.RDI, R.RSI, R.RDX, R.RCX, R.R8, R.R9})


class ConstantVariables:
    """Decides for one image which of its variables are constant, one by one and only when asked.

    Parameters
    ----------
    image : Image
    images : iterable of Image
        All loaded images, whose relocations might give a variable away.
    """

    def __init__(self, image: Image, images: Iterable[Image]) -> None:
        self.image = image
        self._images = tuple(images)
        self._variables: dict[int, Symbol] = {}
        self._slots: dict[int, Symbol] = {}
        self._decided: dict[int, ConstantGlobal | None] = {}
        if image.machine == EM_X86_64 and image.code_size <= _LARGEST_CODE:
            self._collect()

    def _collect(self) -> None:
        image = self.image
        for symbol in image.exports.small_objects(_SIZES):
            segment = image.segment(symbol.address)
            if segment is not None and segment.flags & PF_W and not image.in_relro(symbol.address):
                self._variables[symbol.address - image.base] = symbol
        names = {symbol.name: symbol for symbol in self._variables.values()}
        if names:
            for slot, relocation in image.relocations.items():
                if relocation.kind == _GLOB_DAT and relocation.symbol in names:
                    self._slots[slot - image.base] = names[relocation.symbol]

    @cached_property
    def mentions(self) -> frozenset[int]:
        """Relative addresses of the candidates and of the GOT slots that lead to them."""
        return frozenset(self._variables) | frozenset(self._slots)

    def find(self, path: AccessPath) -> ConstantGlobal | None:
        """Return the constant variable that an access path leads to, or None."""
        symbol = None
        if len(path) == 1:
            symbol = self._variables.get(path[0])
        elif len(path) == 2 and path[1] == 0:
            symbol = self._slots.get(path[0])
        if symbol is None:
            return None
        relative = symbol.address - self.image.base
        if relative not in self._decided:
            try:
                self._decided[relative] = self._decide(symbol)
            except ProgramError:
                self._decided[relative] = None
        return self._with_present_value(self._decided[relative], symbol)

    def _with_present_value(
        self, decided: ConstantGlobal | None, symbol: Symbol
    ) -> ConstantGlobal | None:
        # Its library does not write it, but others may have before they were looked at.
        if decided is None:
            return None
        value = int.from_bytes(self.image.memory.read(symbol.address, symbol.size), "little")
        return decided if value == decided.value else replace(decided, value=value)

    def still(self, constant: ConstantGlobal) -> bool:
        """Return whether a variable that its own library never writes still has the same value.

        What may have changed since the library was read is the value, and who else is loaded.
        """
        symbol = self._variables.get(constant.address)
        if symbol is None or symbol.size != constant.size:
            return False
        try:
            value = int.from_bytes(self.image.memory.read(symbol.address, symbol.size), "little")
            return value == constant.value and self._is_private(symbol)
        except ProgramError:
            return False

    def _decide(self, symbol: Symbol) -> ConstantGlobal | None:
        image = self.image
        if not self._is_private(symbol) or not self._only_read(symbol):
            return None
        data = image.memory.read(symbol.address, symbol.size)
        name = f"{image.short}!{symbol.name}"
        value = int.from_bytes(data, "little")
        return ConstantGlobal(symbol.address - image.base, symbol.size, value, name)

    def _is_private(self, symbol: Symbol) -> bool:
        """Return whether relocations give the address to nothing but GOT slots of the image."""
        span = range(symbol.address, symbol.address + symbol.size)
        if any(address in self.image.relative_targets for address in span):
            return False
        overlapping = self.image.exports.overlapping(span.start, span.stop)
        names = {other.name for other in overlapping}
        for image in self._images:
            if not any(image.mentions(name) for name in names):
                continue
            for relocation in image.relocations.values():
                own = image is self.image and relocation.kind == _GLOB_DAT
                if relocation.symbol in names and not own:
                    return False
        return True

    def _only_read(self, symbol: Symbol) -> bool:
        image = self.image
        own = (symbol.address, symbol.size)
        slots = [(slot + image.base, _SLOT) for slot, s in self._slots.items() if s == symbol]
        for header in image.loads:
            if not header.flags & PF_X:
                continue
            data = image.memory.read(header.start, header.size)
            for target, found in _instructions(image, data, header.start, (own, *slots)):
                if _is_near(target, *own) and (found is None or _may_change(found, *own)):
                    return False
                for slot in slots:
                    if _is_near(target, *slot) and (
                        found is None or not self._reads_through(found, slot[0])
                    ):
                        return False
        return True

    def _reads_through(self, load: Any, slot: int) -> bool:
        """Return whether a load of the GOT slot is followed by nothing but reads through it."""
        if not _overlaps(load, slot, _SLOT):
            return True
        if load.mnemonic != iced.Mnemonic.MOV or load.op0_kind != iced.OpKind.REGISTER:
            return False
        register = load.op0_register
        frame = self.image.frames.find(load.ip)
        if frame is None or RX.size(register) != 8:
            return False
        low, high = frame
        part = Part(low, high, self.image.memory.read(low, high - low))
        listing = Listing(part, self.image.partner)
        listing.descend((load.next_ip,))
        return _stays_a_base(listing, load.next_ip, register)


_REACH = _WIDEST + max(_IMMEDIATE_BYTES)
"""How far below a place an access may begin that reaches into it."""


def _is_near(target: int, address: int, size: int) -> bool:
    """Return whether what is accessed at `target`, or a little behind it, may be in a place."""
    # Bytes of an immediate may follow; and a wide access that starts below may reach in.
    return address - _REACH < target < address + size


def _mention_places(
    data: bytes, start: int, spans: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return where four bytes may be a displacement from the instruction pointer to some places.

    Returns
    -------
    list of (int, int)
        Where the four bytes begin, and where they lead; in order.
    """
    spans = tuple(spans)
    found: list[tuple[int, int]] = []
    for shift in range(min(4, len(data) - 3)):
        words = np.frombuffer(data, "<i4", (len(data) - shift) // 4, shift)
        # All is relative to the start, and wraps around; what is found is looked at exactly.
        target = words + np.arange(shift + 4, shift + 4 + 4 * len(words), 4, dtype=np.int32)
        near = np.zeros(len(words), bool)
        for address, size in spans:
            low = (address - start - _REACH) & 0xFFFFFFFF
            near |= (target.view(np.uint32) - np.uint32(low)) < size + _REACH
        for index in np.flatnonzero(near).tolist():
            place = start + shift + 4 * index
            leads = place + 4 + int(words[index])
            if any(_is_near(leads, address, size) for address, size in spans):
                found.append((place, leads))
    return sorted(found)


def _instructions(
    image: Image, data: bytes, start: int, spans: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, Any | None]]:
    """Yield the instructions that may access some places relative to the instruction pointer.

    With each, where its displacement leads. None stands for one that could not be made out.
    """
    low = high = 0
    decoder: Iterator[Any] = iter(())
    instruction = None
    for place, target in _mention_places(data, start, spans):
        if not low <= place < high:
            frame = image.frames.find(place)
            if frame is None:
                yield from ((target, guess) for guess in _guesses(data, start, place))
                continue
            low, high = frame
            decoder = iter(iced.Decoder(64, data[low - start : high - start], ip=low))
            instruction = next(decoder)
        while instruction is not None and instruction.next_ip <= place:
            instruction = next(decoder, None)
        if instruction is not None:
            yield target, instruction or None


def _guesses(data: bytes, start: int, place: int) -> Iterator[Any]:
    """Yield every instruction that could have its displacement at `place`."""
    for head in range(2, _LONGEST_HEAD):
        at = place - head - start
        if at < 0:
            continue
        decoder = iced.Decoder(64, data[at : at + 15], ip=place - head)
        instruction = decoder.decode()
        if instruction and instruction.is_ip_rel_memory_operand:
            offsets = decoder.get_constant_offsets(instruction)
            if offsets.displacement_offset == head:
                yield instruction


def _overlaps(instruction: Any, address: int, size: int) -> bool:
    if not instruction.is_ip_rel_memory_operand:
        return False
    at = instruction.ip_rel_memory_address
    if instruction.mnemonic == iced.Mnemonic.LEA:
        return bool(address <= at < address + size)
    length = max(iced.MemorySizeExt.size(instruction.memory_size), 1)
    return bool(at < address + size and at + length > address)


def _may_change(instruction: Any, address: int, size: int) -> bool:
    """Return whether an instruction may write a variable or take its address."""
    if not _overlaps(instruction, address, size):
        return False
    if instruction.mnemonic == iced.Mnemonic.LEA:
        return True
    return any(used.access not in _READS for used in _INFORMATION.info(instruction).used_memory())


def _stays_a_base(listing: Listing, start: int, register: int) -> bool:
    """Return whether a register is only a base of reads on every path until it is overwritten.

    In the result register it may be left over at a return once it was read through: a function
    that hands the address out has no reason to do that.
    """
    work: list[tuple[int, bool]] = [(start, False)]
    seen = set()
    while work:
        place = work.pop()
        if place in seen:
            continue
        seen.add(place)
        at, read = place
        instruction = listing.instructions.get(at)
        if instruction is None:
            return False
        flow = instruction.flow_control
        use = _use(instruction, register)
        read = read or use == "read"
        if use == "leak":
            return False
        if use == "gone":
            continue
        leaving = flow == Flow.RETURN
        target = branch_target(instruction) if flow != Flow.CALL else None
        if target is not None:
            if listing.holds(target):
                work.append((target, read))
            else:
                leaving = True
        if flow in (Flow.CALL, Flow.INDIRECT_CALL):
            if register in _ARGUMENTS:
                return False
            if register in _DEAD_AFTER_CALL or listing.part_of(instruction.next_ip) is None:
                continue
        if leaving and (register in _ARGUMENTS or not (read and register == R.RAX)):
            return False
        if flow == Flow.INDIRECT_BRANCH:
            return False
        if flow not in (Flow.UNCONDITIONAL_BRANCH, Flow.EXCEPTION, Flow.RETURN):
            work.append((instruction.next_ip, read))
    return True


def _use(instruction: Any, register: int) -> str:
    """Classify what an instruction does with a register: ``read``, ``gone``, ``leak`` or ``""``."""
    if instruction.flow_control in (Flow.CALL, Flow.RETURN):
        return ""
    information = _INFORMATION.info(instruction)
    full = [
        used for used in information.used_registers() if RX.full_register(used.register) == register
    ]
    if not full:
        return ""
    base = instruction.memory_base == register and instruction.memory_index != register
    explicit = any(
        instruction.op_kind(k) == iced.OpKind.REGISTER
        and RX.full_register(instruction.op_register(k)) == register
        and information.op_access(k) not in (iced.OpAccess.NONE, iced.OpAccess.WRITE)
        for k in range(instruction.op_count)
    )
    if explicit:
        return "leak"
    if base:
        if instruction.mnemonic == iced.Mnemonic.LEA:
            return "leak"
        if any(used.access not in _READS for used in information.used_memory()):
            return "leak"
    elif any(used.access != iced.OpAccess.WRITE for used in full):
        return "leak"
    if any(used.access == iced.OpAccess.WRITE for used in full):
        return "gone"
    return "read"

"""Writable variables that nothing ever writes, such as the error mode of an old libm.

Knows images and x86-64 operands. A variable counts as constant only if it is an exported object of
known size, no relocation anywhere makes its address available, and every instruction of its own
library that mentions it only reads it. What remains (somebody looks the symbol up by name and
writes to it) is an assumption that the caller must name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import iced_x86 as iced
import numpy as np

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import ConstantGlobal
from alloccheck.program.machine.images import EM_X86_64, PF_W, PF_X, Image
from alloccheck.program.machine.memory import Unreadable
from alloccheck.program.machine.symbols import STT_OBJECT, Symbol

_LARGEST_CODE = 4 << 20
_LARGEST_VARIABLE = 8
_IMMEDIATE_BYTES = (0, 1, 2, 4)
"""How many bytes of an instruction may follow its displacement."""
_READS = frozenset({iced.OpAccess.NONE, iced.OpAccess.READ, iced.OpAccess.COND_READ})
_INFORMATION = iced.InstructionInfoFactory()


def candidates(image: Image) -> tuple[Symbol, ...]:
    """Return the small exported variables of an image that is small enough to be searched."""
    if image.machine != EM_X86_64 or image.code_size > _LARGEST_CODE:
        return ()
    found = []
    for symbol in image.exports.ordered:
        segment = image.segment(symbol.address)
        if (
            symbol.kind == STT_OBJECT
            and 0 < symbol.size <= _LARGEST_VARIABLE
            and segment is not None
            and segment.flags & PF_W
            and not image.in_relro(symbol.address)
        ):
            found.append(symbol)
    return tuple(found)


@lru_cache(maxsize=64)
def constant_globals(image: Image, images: tuple[Image, ...]) -> dict[int, ConstantGlobal]:
    """Return the variables of an image that are constant, by relative address.

    Parameters
    ----------
    image : Image
    images : tuple of Image
        All loaded images, whose relocations might give the variable away.
    """
    found: dict[int, ConstantGlobal] = {}
    try:
        if image.has_packed_relocations:
            return found
        for symbol in candidates(image):
            if not _address_known(symbol, image, images) and _only_read(image, symbol):
                data = image.memory.read(symbol.address, symbol.size)
                relative = symbol.address - image.base
                value = int.from_bytes(data, "little")
                name = f"{image.short}!{symbol.name}"
                found[relative] = ConstantGlobal(relative, symbol.size, value, name)
    except (Unreadable, ProgramError):
        return {}
    return found


def _address_known(symbol: Symbol, image: Image, images: Iterable[Image]) -> bool:
    span = range(symbol.address, symbol.address + symbol.size)
    if any(address in image.relative_targets for address in span):
        return True
    overlapping = [
        other
        for other in image.exports.ordered
        if other.kind == STT_OBJECT
        and other.address < span.stop
        and other.address + max(other.size, 1) > span.start
    ]
    names = {other.name for other in overlapping}
    return any(
        relocation.symbol in names
        for other in images
        if any(other.mentions(name) for name in names)
        for relocation in other.relocations.values()
    )


def _only_read(image: Image, symbol: Symbol) -> bool:
    """Return whether every mention of a variable in the image's code provably only reads it."""
    for header in image.loads:
        if not header.flags & PF_X:
            continue
        data = image.memory.read(header.start, header.size)
        for position in _mentions(data, header.start, symbol):
            frame = image.frames.find(position)
            if frame is None:
                return False
            code = data[frame[0] - header.start : frame[1] - header.start]
            if not _reads(code, frame[0], position, symbol):
                return False
    return True


def _mentions(data: bytes, start: int, symbol: Symbol) -> list[int]:
    """Return where four bytes are a displacement from the instruction pointer to the variable."""
    size = len(data) - 3
    if size <= 0:
        return []
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    word = raw[:size] | raw[1 : size + 1] << 8 | raw[2 : size + 2] << 16 | raw[3 : size + 3] << 24
    word = np.where(word >= 1 << 31, word - (1 << 32), word)
    places = start + np.arange(size)
    found: set[int] = set()
    for following in _IMMEDIATE_BYTES:
        target = places + 4 + following + word
        # A wide access that starts below the variable may reach into it.
        hit = (target > symbol.address - 64) & (target < symbol.address + symbol.size)
        found.update(places[hit].tolist())
    return sorted(found)


def _reads(code: bytes, start: int, position: int, symbol: Symbol) -> bool:
    for instruction in iced.Decoder(64, code, ip=start):
        if instruction.next_ip <= position:
            continue
        if not instruction:
            return False
        return not instruction.is_ip_rel_memory_operand or not _touches(instruction, symbol)
    return False


def _touches(instruction: Any, symbol: Symbol) -> bool:
    """Return whether an instruction may write the variable or take its address."""
    address = instruction.ip_rel_memory_address
    inside = symbol.address <= address < symbol.address + symbol.size
    if instruction.mnemonic == iced.Mnemonic.LEA:
        return bool(inside)
    accesses = _INFORMATION.info(instruction).used_memory()
    size = max(iced.MemorySizeExt.size(instruction.memory_size), 1)
    overlaps = address < symbol.address + symbol.size and address + size > symbol.address
    return bool(overlaps) and any(used.access not in _READS for used in accesses)

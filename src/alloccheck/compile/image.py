"""An artifact's machine code as it lies in memory, compared with the object that was checked.

Reads bytes at the addresses where the loader put the sections. Every byte outside relocations must
be the object's; every relocated word must be what its target's address makes it. Knows ELF
objects and addresses; nothing of Numba, proofs or reports.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from alloccheck.compile.objectfile import ObjectFile, Relocation, Section
from alloccheck.errors import ProgramError

_WIDTHS = {1: 8, 2: 4, 4: 4, 10: 4, 11: 4, 24: 8}
"""Bytes that a relocation changes, by its kind (System V ABI for x86-64, table 4.9)."""
_ABSOLUTE = {1, 10, 11}
"""Kinds whose word is the target's address; that of the others is relative to the word itself."""
_COMMON = "common"


@dataclass(frozen=True, slots=True)
class Slot:
    """A word of the artifact that was filled in after loading, and what must stand there."""

    symbol: str
    address: int
    value: int


@dataclass(frozen=True, slots=True)
class Image:
    """Where an artifact lies.

    Parameters
    ----------
    sections : mapping of str to int
        Address of each section that code or data of the artifact refers to.
    commons : mapping of str to int
        Address of each symbol without a section.
    slots : tuple of Slot
        Words filled in after loading.
    """

    sections: Mapping[str, int]
    commons: Mapping[str, int]
    slots: tuple[Slot, ...] = ()

    def ranges(self, object_file: ObjectFile) -> tuple[tuple[int, int], ...]:
        """Return the address ranges (start, end) of the code."""
        return tuple(
            (self.sections[one.name], self.sections[one.name] + len(one.data))
            for one in object_file.sections
            if one.executable and one.data and one.name in self.sections
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where memory is not what was checked.

    Parameters
    ----------
    kind : {"code", "data", "relocation", "symbol", "slot"}
        Bytes of code or data; a relocated word; an external symbol that now has another address
        than the code is bound to; a word that was filled in after loading.
    subject : str
        Symbol or section concerned.
    message : str
        One sentence.
    """

    kind: str
    subject: str
    message: str


def locate(object_file: ObjectFile, address_of: Callable[[str], int]) -> Image:
    """Find where the loader put an object's sections.

    Parameters
    ----------
    object_file : ObjectFile
        What was loaded.
    address_of : callable
        Address of a symbol that the object exports, 0 for one that it does not.

    Returns
    -------
    Image
        Of everything that can be reached from exported functions; without slots.

    Raises
    ------
    ProgramError
        When relocations contradict each other about a section's address.
    """
    commons = {}
    sections: dict[str, int] = {}
    waiting: list[str] = []

    def place(name: str, address: int) -> None:
        known = sections.setdefault(name, address)
        if known != address:
            raise ProgramError(f"section {name} is loaded at {known:#x} and at {address:#x}")
        if name not in waiting:
            waiting.append(name)

    for symbol in object_file.symbols:
        address = address_of(symbol.name)
        if symbol.section == _COMMON:
            commons[symbol.name] = address
        elif address:
            place(symbol.section, address - symbol.offset)
    for name in waiting:
        for one in object_file.relocations:
            if one.section != name or one.external or one.target == _COMMON:
                continue
            target, offset = _inside(one)
            place(target, _target_in_memory(one, sections[name]) - offset)
    return Image(sections, commons)


def _inside(relocation: Relocation) -> tuple[str, int]:
    """Return section and offset of a target that the object defines."""
    section, _, offset = relocation.target.rpartition("+")
    return section, int(offset, 16)


def _width(relocation: Relocation) -> int:
    width = _WIDTHS.get(relocation.kind)
    if width is None:
        raise ProgramError(
            f"relocation kind {relocation.kind} at {relocation.section}+{relocation.offset:#x} "
            "is not one that can be read"
        )
    return width


def _target_in_memory(relocation: Relocation, base: int) -> int:
    """Return the address (of the target, without addend) that a relocated word holds."""
    place = base + relocation.offset
    width = _width(relocation)
    word = int.from_bytes(
        ctypes.string_at(place, width), "little", signed=relocation.kind not in (1, 10)
    )
    value = word if relocation.kind in _ABSOLUTE else word + place
    return value - relocation.addend


def differences(
    object_file: ObjectFile,
    image: Image,
    bound: Mapping[str, int],
    resolve: Callable[[str], int | None],
) -> Iterator[Difference]:
    """Compare memory with the object that was checked.

    Parameters
    ----------
    object_file : ObjectFile
        What was checked.
    image : Image
        Where it was loaded.
    bound : mapping of str to int
        Addresses to which its undefined symbols were bound.
    resolve : callable
        The present address of an external symbol, or None.

    Yields
    ------
    Difference
        One for each place; nothing when memory is as it was checked.
    """
    for section in object_file.sections:
        if section.name in image.sections:
            yield from _changed_bytes(object_file, section, image.sections[section.name])
    for one in object_file.relocations:
        if one.section in image.sections:
            yield from _changed_binding(one, image, bound)
    for symbol in sorted(bound):
        now = resolve(symbol)
        if now != bound[symbol]:
            found = "nothing" if now is None else f"{now:#x}"
            yield Difference(
                "symbol",
                symbol,
                f"the code is bound to {symbol} at {bound[symbol]:#x}, but the process now "
                f"resolves that name to {found}",
            )
    for slot in image.slots:
        now = ctypes.c_uint64.from_address(slot.address).value
        if now != slot.value:
            yield Difference(
                "slot",
                slot.symbol,
                f"{slot.symbol} held {slot.value:#x} after loading and holds {now:#x} now",
            )


def _changed_bytes(object_file: ObjectFile, section: Section, base: int) -> Iterator[Difference]:
    expected = bytearray(section.data)
    found = bytearray(ctypes.string_at(base, len(expected)))
    for one in object_file.relocations:
        if one.section == section.name:
            hidden = slice(one.offset, one.offset + _width(one))
            expected[hidden] = found[hidden] = bytes(_width(one))
    if expected == found:
        return
    kind = "code" if section.executable else "data"
    changed = [i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b]
    by_subject: dict[str, list[int]] = {}
    for offset in changed:
        by_subject.setdefault(_symbol_at(object_file, section.name, offset), []).append(offset)
    for subject, offsets in by_subject.items():
        first = offsets[0]
        yield Difference(
            kind,
            subject,
            f"{len(offsets)} byte{'s' if len(offsets) > 1 else ''} of {kind} in {subject} changed "
            f"since the proof, the first at {base + first:#x} ({section.name}+{first:#x}): "
            f"{expected[first]:#04x} was checked, {found[first]:#04x} is there",
        )


def _symbol_at(object_file: ObjectFile, section: str, offset: int) -> str:
    for one in object_file.symbols:
        if one.section == section and one.offset <= offset < one.offset + max(one.size, 1):
            return one.name
    return section


def _changed_binding(
    relocation: Relocation, image: Image, bound: Mapping[str, int]
) -> Iterator[Difference]:
    if relocation.external:
        wanted = bound.get(relocation.symbol)
    elif relocation.target == _COMMON:
        wanted = image.commons.get(relocation.symbol)
    else:
        section, offset = _inside(relocation)
        start = image.sections.get(section)
        wanted = None if start is None else start + offset
    held = _target_in_memory(relocation, image.sections[relocation.section])
    if held != wanted:
        subject = relocation.symbol or relocation.target
        expected = "nothing known" if wanted is None else f"{wanted:#x}"
        yield Difference(
            "relocation",
            subject,
            f"the word at {relocation.section}+{relocation.offset:#x} must lead to {subject} at "
            f"{expected}, but leads to {held:#x}",
        )

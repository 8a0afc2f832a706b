"""What an artifact's object file says: undefined symbols, code, relocations, and their digest.

The digest names machine code and what it is bound to. It is independent of symbol names inside
the object (Numba's carry counters and addresses) and of where the code is loaded. ELF is read with
pyelftools; the format is the System V ABI (https://refspecs.linuxfoundation.org/elf/gabi4+/).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from alloccheck.errors import ProgramError

_SHF_EXECINSTR = 0x4
_SHF_WRITE = 0x1
_SHF_ALLOC = 0x2


@dataclass(frozen=True, slots=True)
class Section:
    """A section that is loaded: its name, bytes, and whether it is code or writable data."""

    name: str
    data: bytes
    executable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in a section that the loader fills in.

    Parameters
    ----------
    section : str
        The section that is changed.
    offset, kind, addend : int
        As in ELF.
    target : str
        An external symbol's own name, or ``section+offset`` for what the object defines.
    external : bool
        Whether the target lies outside the object.
    symbol : str
        The target symbol's name, where it has one. No part of the digest.
    """

    section: str
    offset: int
    kind: int
    target: str
    addend: int
    external: bool
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol that the object defines."""

    name: str
    section: str
    offset: int
    size: int
    function: bool


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file, read once."""

    sections: tuple[Section, ...]
    relocations: tuple[Relocation, ...]
    symbols: tuple[Symbol, ...]
    undefined: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over code, read-only data and relocation targets, in hexadecimal."""
        state = hashlib.sha256()
        for section in sorted(self.sections, key=lambda one: one.name):
            if section.writable:
                # Writable data holds run-time addresses (captured objects, environments).
                continue
            state.update(f"{section.name}\0{len(section.data)}\0".encode())
            state.update(section.data)
        for one in sorted(self.relocations, key=lambda one: (one.section, one.offset)):
            if not one.section.startswith((".text", ".ltext")):
                continue
            state.update(
                f"{one.section}\0{one.offset}\0{one.kind}\0{one.target}\0{one.addend}\n".encode()
            )
        return state.hexdigest()

    def code_size(self) -> int:
        """Return the number of bytes of code."""
        return sum(len(one.data) for one in self.sections if one.executable)


def read_object(data: bytes) -> ObjectFile:
    """Read a relocatable ELF object.

    Parameters
    ----------
    data : bytes
        The object as the compiler emitted it.

    Raises
    ------
    ProgramError
        When the bytes are not such an object.

    Examples
    --------
    >>> read_object(b"not an object")
    Traceback (most recent call last):
        ...
    alloccheck.errors.ProgramError: not a readable ELF object: Magic number does not match
    """
    try:
        return _read(ELFFile(io.BytesIO(data)))
    except (ELFError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise ProgramError(f"not a readable ELF object: {error}") from None


def _read(elf: Any) -> ObjectFile:
    table = elf.get_section_by_name(".symtab")
    if table is None or elf["e_type"] != "ET_REL":
        raise ProgramError("not a relocatable ELF object with a symbol table")
    names = [section.name for section in elf.iter_sections()]
    sections = tuple(_sections(elf))
    symbols, undefined = [], []
    described: list[tuple[str, bool, str]] = []
    for symbol in table.iter_symbols():
        index = symbol["st_shndx"]
        kind = symbol["st_info"]["type"]
        if index == "SHN_UNDEF":
            described.append((symbol.name, True, symbol.name))
            if symbol.name:
                undefined.append(symbol.name)
        elif isinstance(index, int):
            place = f"{names[index]}+{symbol['st_value']:#x}"
            described.append((place, False, symbol.name))
            if symbol.name and kind != "STT_SECTION":
                symbols.append(
                    Symbol(
                        symbol.name,
                        names[index],
                        symbol["st_value"],
                        symbol["st_size"],
                        kind == "STT_FUNC",
                    )
                )
        elif index == "SHN_COMMON":
            described.append(("common", False, symbol.name))
            symbols.append(Symbol(symbol.name, "common", 0, symbol["st_size"], False))
        else:
            described.append((str(index), False, symbol.name))
    relocations = tuple(_relocations(elf, names, described))
    return ObjectFile(sections, relocations, tuple(symbols), tuple(sorted(set(undefined))))


def _sections(elf: Any) -> Iterator[Section]:
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if flags & _SHF_ALLOC and not section.name.startswith(".eh_frame"):
            data = b"" if section["sh_type"] == "SHT_NOBITS" else section.data()
            yield Section(
                section.name, data, bool(flags & _SHF_EXECINSTR), bool(flags & _SHF_WRITE)
            )


def _relocations(
    elf: Any, names: list[str], described: list[tuple[str, bool, str]]
) -> Iterator[Relocation]:
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        changed = names[section["sh_info"]]
        if changed.startswith((".eh_frame", ".debug")):
            continue
        for one in section.iter_relocations():
            target, external, symbol = described[one["r_info_sym"]]
            addend = one["r_addend"] if one.is_RELA() else 0
            yield Relocation(
                changed, one["r_offset"], one["r_info_type"], target, addend, external, symbol
            )

"""What an artifact's object file says: undefined symbols, code, relocations, and their digest.

The digest names machine code and what it is bound to. It is independent of symbol names inside
the object (Numba's carry counters and addresses) and of where the code is loaded. The format is the
System V ABI's (https://refspecs.linuxfoundation.org/elf/gabi4+/).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

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
    alloccheck.errors.ProgramError: not a readable ELF object: it does not begin as one
    """
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ProgramError(f"not a readable ELF object: {error}") from None


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_REL = struct.Struct("<QQ")

_ET_REL = 1
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 2, 4, 8, 9
_SHN_UNDEF, _SHN_LORESERVE, _SHN_ABS, _SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
_STT_FUNC, _STT_SECTION = 2, 3


@dataclass(frozen=True, slots=True)
class _Header:
    """A section header; fields as in ELF."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


def _read(data: bytes) -> ObjectFile:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(
            "it does not begin as one"
            if data[:4] != b"\x7fELF"
            else "it is not one of 64 bits, little-endian"
        )
    header = _HEADER.unpack_from(data)
    kind, table, entry_size, count, names_at = header[1], header[6], *header[11:14]
    if entry_size != _SECTION.size:
        raise ValueError("its section headers have another size")
    raw = [_SECTION.unpack_from(data, table + i * entry_size) for i in range(count)]
    texts = _content(data, raw[names_at][4], raw[names_at][5])
    headers = [
        _Header(_text(texts, one[0]), one[1], one[2], one[4], one[5], one[6], one[7]) for one in raw
    ]
    tables = [one for one in headers if one.name == ".symtab" and one.kind == _SHT_SYMTAB]
    if kind != _ET_REL or len(tables) != 1:
        raise ProgramError("not a relocatable ELF object with a symbol table")
    described, symbols, undefined = _symbols(data, headers, tables[0])
    return ObjectFile(
        tuple(_sections(data, headers)),
        tuple(_relocations(data, headers, described)),
        tuple(symbols),
        tuple(sorted(set(undefined))),
    )


def _content(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError("a section lies outside the file")
    return data[offset : offset + size]


def _text(texts: bytes, offset: int) -> str:
    if offset >= len(texts):
        raise ValueError("a name lies outside its table")
    return texts[offset : texts.index(b"\0", offset)].decode()


_Described = list[tuple[str, bool, str]]
"""Of each symbol: what a relocation's target is called, whether it is external, its name."""


def _symbols(
    data: bytes, headers: list[_Header], table: _Header
) -> tuple[_Described, list[Symbol], list[str]]:
    texts = _content(data, headers[table.link].offset, headers[table.link].size)
    described: _Described = []
    symbols: list[Symbol] = []
    undefined: list[str] = []
    for name_at, info, _, index, value, size in _SYMBOL.iter_unpack(
        _content(data, table.offset, table.size)
    ):
        kind = info & 0xF
        name = _text(texts, name_at)
        if index == _SHN_UNDEF:
            described.append((name, True, name))
            if name:
                undefined.append(name)
        elif index < _SHN_LORESERVE:
            section = headers[index].name
            described.append((f"{section}+{value:#x}", False, name))
            if name and kind != _STT_SECTION:
                symbols.append(Symbol(name, section, value, size, kind == _STT_FUNC))
        elif index == _SHN_COMMON:
            described.append(("common", False, name))
            symbols.append(Symbol(name, "common", 0, size, False))
        else:
            described.append(("SHN_ABS" if index == _SHN_ABS else str(index), False, name))
    return described, symbols, undefined


def _sections(data: bytes, headers: list[_Header]) -> Iterator[Section]:
    for one in headers:
        if one.flags & _SHF_ALLOC and not one.name.startswith(".eh_frame"):
            content = b"" if one.kind == _SHT_NOBITS else _content(data, one.offset, one.size)
            yield Section(
                one.name, content, bool(one.flags & _SHF_EXECINSTR), bool(one.flags & _SHF_WRITE)
            )


def _relocations(
    data: bytes, headers: list[_Header], described: _Described
) -> Iterator[Relocation]:
    for table in headers:
        if table.kind not in (_SHT_RELA, _SHT_REL):
            continue
        changed = headers[table.info].name
        if changed.startswith((".eh_frame", ".debug")):
            continue
        content = _content(data, table.offset, table.size)
        form = _RELA if table.kind == _SHT_RELA else _REL
        for offset, info, *rest in form.iter_unpack(content):
            target, external, symbol = described[info >> 32]
            addend = rest[0] if rest else 0
            yield Relocation(changed, offset, info & 0xFFFFFFFF, target, addend, external, symbol)

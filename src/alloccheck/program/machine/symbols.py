"""Names for addresses and addresses for names: `.dynsym` in memory, `.symtab` of the file.

Knows symbol tables; nothing of code. The dynamic table decides (it is what the linker uses); the
file's own table only makes messages better, so a stripped file costs names and nothing else.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 6, 10

SYMBOL_RECORD = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)


class Symbol(NamedTuple):
    """A defined symbol; `address` is live."""

    address: int
    name: str
    size: int
    kind: int


class SymbolIndex:
    r"""Symbols of one image, by name and by address.

    Symbols are made from the records of the table only when they are asked for: a library may have
    thousands of them, of which a query needs a few.

    Parameters
    ----------
    records : array of SYMBOL_RECORD
        Defined symbols.
    strings : bytes
        Their string table.
    base : int, optional
        Load address that is added to each value.

    Examples
    --------
    >>> record = np.array([(0, STT_FUNC, 0, 1, 0x10, 8)], SYMBOL_RECORD)
    >>> index = SymbolIndex(record, b"f\0")
    >>> index.describe(0x14), index.describe(0x18)
    ('f+0x4', None)
    """

    def __init__(self, records: Any, strings: bytes, base: int = 0) -> None:
        order = np.argsort(records["value"], kind="stable")
        self._records = records[order]
        self._values = self._records["value"].astype(np.int64) + base
        self._strings = strings
        self._base = base

    def _symbol(self, index: int) -> Symbol:
        start, info, _, _, _, size = self._records[index].item()
        end = self._strings.find(b"\0", start)
        name = self._strings[start : end if end >= 0 else len(self._strings)]
        return Symbol(self._addresses[index], name.decode(errors="replace"), size, info & 15)

    @cached_property
    def _addresses(self) -> list[int]:
        found: list[int] = self._values.tolist()
        return found

    @cached_property
    def ordered(self) -> tuple[Symbol, ...]:
        """All symbols by address."""
        return tuple(self._symbol(index) for index in range(len(self._records)))

    @cached_property
    def by_name(self) -> dict[str, Symbol]:
        """The first symbol of each name."""
        found: dict[str, Symbol] = {}
        for symbol in self.ordered:
            found.setdefault(symbol.name, symbol)
        return found

    def small_objects(self, sizes: tuple[int, ...]) -> tuple[Symbol, ...]:
        """Return the variables of one of these sizes."""
        wanted = (self._records["info"] & 15 == STT_OBJECT) & np.isin(self._records["size"], sizes)
        return tuple(self._symbol(int(index)) for index in np.flatnonzero(wanted))

    def overlapping(self, low: int, high: int) -> tuple[Symbol, ...]:
        """Return the symbols that share a byte with ``[low, high)``."""
        ends = self._values + np.maximum(self._records["size"].astype(np.int64), 1)
        hit = (self._values < high) & (ends > low)
        return tuple(self._symbol(int(index)) for index in np.flatnonzero(hit))

    def at(self, address: int) -> tuple[Symbol, ...]:
        """Return the symbols whose address is exactly this one."""
        low = bisect_left(self._addresses, address)
        high = bisect_right(self._addresses, address, low)
        return tuple([self._symbol(index) for index in range(low, high)])

    def covering(self, address: int) -> Symbol | None:
        """Return a symbol that starts at `address` or whose size covers it."""
        exact = self.at(address)
        if exact:
            return min(exact, key=lambda s: (s.name.startswith("_"), len(s.name), s.name))
        index = bisect_right(self._addresses, address) - 1
        first = self._addresses[index] if index >= 0 else 0
        # Aliases share an address: a sized one among them may cover what another does not.
        while index >= 0 and self._addresses[index] == first:
            if address < first + int(self._records["size"][index]):
                return self._symbol(index)
            index -= 1
        return None

    def describe(self, address: int) -> str | None:
        """Return ``name`` or ``name+0x12`` for an address, or None."""
        symbol = self.covering(address)
        if symbol is None:
            return None
        offset = address - symbol.address
        return f"{symbol.name}+{offset:#x}" if offset else symbol.name


def file_symbols(path: str, base: int) -> SymbolIndex:
    """Read the code symbols of a file's `.symtab`; empty when stripped or not readable.

    Parameters
    ----------
    path : str
        The ELF file.
    base : int
        Load address that is added to each value.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            return _read_symtab(file, base)
    except (OSError, struct.error, ValueError, IndexError):
        return SymbolIndex(np.zeros(0, SYMBOL_RECORD), b"")


def _read_symtab(file: FileIO, base: int) -> SymbolIndex:
    def part(offset: int, size: int) -> bytes:
        # Of a large library with debug information this is but a small part of the file.
        file.seek(offset)
        data = file.read(size)
        if len(data) != size:
            raise ValueError("the file ends early")
        return data

    nothing = SymbolIndex(np.zeros(0, SYMBOL_RECORD), b"")
    head = part(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        return nothing
    (offset,) = struct.unpack_from("<Q", head, 40)
    entry_size, count = struct.unpack_from("<HH", head, 58)
    table = part(offset, entry_size * count)
    sections = [struct.unpack_from("<IIQQQQIIQQ", table, entry_size * k) for k in range(count)]
    for section in sections:
        if section[1] == 2:  # SHT_SYMTAB
            records = np.frombuffer(part(section[4], section[5] // 24 * 24), SYMBOL_RECORD)
            kinds = records["info"] & 15
            code = (kinds == STT_FUNC) | (kinds == STT_GNU_IFUNC)
            strings = sections[section[6]]
            return SymbolIndex(
                records[(records["section"] != 0) & code], part(strings[4], strings[5]), base
            )
    return nothing

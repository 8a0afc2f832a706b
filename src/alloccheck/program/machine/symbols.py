"""Names for addresses and addresses for names: `.dynsym` in memory, `.symtab` of the file.

Knows symbol tables; nothing of code. The dynamic table decides (it is what the linker uses); the
file's own table only makes messages better, so a stripped file costs names and nothing else.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
    """Symbols of one image, by name and by address.

    Examples
    --------
    >>> index = SymbolIndex([Symbol(0x10, "f", 8, STT_FUNC)])
    >>> index.describe(0x14), index.describe(0x18)
    ('f+0x4', None)
    """

    def __init__(self, symbols: Iterable[Symbol]) -> None:
        self.ordered = sorted(symbols)
        self._addresses = [symbol.address for symbol in self.ordered]
        self.by_name: dict[str, Symbol] = {}
        for symbol in self.ordered:
            self.by_name.setdefault(symbol.name, symbol)

    def at(self, address: int) -> tuple[Symbol, ...]:
        """Return the symbols whose address is exactly this one."""
        low = bisect.bisect_left(self._addresses, address)
        high = bisect.bisect_right(self._addresses, address)
        return tuple(self.ordered[low:high])

    def covering(self, address: int) -> Symbol | None:
        """Return a symbol that starts at `address` or whose size covers it."""
        exact = self.at(address)
        if exact:
            return min(exact, key=lambda s: (s.name.startswith("_"), len(s.name), s.name))
        index = bisect.bisect_right(self._addresses, address) - 1
        # Aliases share an address: a sized one among them may cover what another does not.
        while index >= 0:
            symbol = self.ordered[index]
            if address < symbol.address + symbol.size:
                return symbol
            if symbol.address != self._addresses[max(index - 1, 0)]:
                return None
            index -= 1
        return None

    def describe(self, address: int) -> str | None:
        """Return ``name`` or ``name+0x12`` for an address, or None."""
        symbol = self.covering(address)
        if symbol is None:
            return None
        offset = address - symbol.address
        return f"{symbol.name}+{offset:#x}" if offset else symbol.name


def file_symbols(path: str, base: int) -> list[Symbol]:
    """Read the code symbols of a file's `.symtab`; empty when stripped or not readable.

    Parameters
    ----------
    path : str
        The ELF file.
    base : int
        Load address that is added to each value.
    """
    try:
        data = Path(path).read_bytes()
        return _parse_symtab(data, base)
    except (OSError, struct.error, ValueError, IndexError):
        return []


def _parse_symtab(data: bytes, base: int) -> list[Symbol]:
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    (offset,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, offset + entry_size * k) for k in range(count)
    ]
    symbols: list[Symbol] = []
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        records = np.frombuffer(data, SYMBOL_RECORD, section[5] // 24, section[4])
        strings = sections[section[6]][4]
        kinds = records["info"] & 15
        wanted = records[
            (records["section"] != 0) & ((kinds == STT_FUNC) | (kinds == STT_GNU_IFUNC))
        ]
        for record in wanted:
            start = strings + int(record["name"])
            name = data[start : data.index(b"\0", start)].decode(errors="replace")
            symbols.append(Symbol(base + int(record["value"]), name, int(record["size"]), STT_FUNC))
    return symbols

"""Names of functions that a shared object does not export, from its symbol table.

The dynamic linker knows exported names only; `.symtab`, where it was not stripped, has them all.
Knows ELF files; nothing of processes.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
"""``Elf64_Sym`` of a little-endian file."""

_FUNCTION = 2


def function_at(file: str, offset: int) -> tuple[str, int] | None:
    """Return the name and start of the function at an offset from the object's base address.

    Parameters
    ----------
    file : str
        Path of a 64-bit little-endian shared object.
    offset : int
        Address less the address that the object is loaded at.

    Returns
    -------
    tuple of str and int, or None
        None when the file cannot be read or no function of known size covers the offset.

    Examples
    --------
    >>> function_at("/no/such/file", 0) is None
    True
    """
    starts, ends, names = _functions(file)
    before = bisect_right(starts, offset) - 1
    if before < 0 or offset >= ends[before]:
        return None
    return names[before], starts[before]


@cache
def _functions(file: str) -> tuple[list[int], list[int], list[str]]:
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            elf = ELFFile(stream)
            if elf.elfclass != 64 or not elf.little_endian:
                return [], [], []
            section = elf.get_section_by_name(".symtab")
            if section is None:
                return [], [], []
            symbols = np.frombuffer(section.data(), _SYMBOL)
            text = elf.get_section(section["sh_link"]).data()
    except (OSError, ELFError):
        return [], [], []
    functions = symbols[((symbols["info"] & 15) == _FUNCTION) & (symbols["size"] > 0)]
    functions = np.sort(functions, order="value")
    starts: list[int] = functions["value"].tolist()
    ends: list[int] = (functions["value"] + functions["size"]).tolist()
    names = [text[i : text.index(b"\0", i)].decode(errors="replace") for i in functions["name"]]
    return starts, ends, names

"""From a live code address of a loaded object to source lines, by the object's DWARF tables.

Knows ELF objects and DWARF as pyelftools reads them; nothing of instructions. An object without
tables, or with such as cannot be read, gives no frames: lines are for messages only.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile

from alloccheck.source import Backtrace, Frame

_SYMBOL_VALUE = 8
"""Offset of ``st_value`` in a symbol of ELF64."""
_SECTION_SIZE = 32
"""Offset of ``sh_size`` in a section header of ELF64."""


def line_table(data: bytes, sections: Mapping[str, int]) -> Callable[[int], Backtrace]:
    """Return a function from live addresses to frames, innermost first.

    Parameters
    ----------
    data : bytes
        A relocatable ELF64 object.
    sections : mapping of str to int
        Where its sections were loaded.

    Examples
    --------
    >>> line_table(b"", {})(0x1234)
    ()
    """
    try:
        units = list(_units(data, sections))
    except (ELFError, DWARFError, ValueError, KeyError, AttributeError, TypeError, IndexError):
        units = []

    def frames(address: int) -> Backtrace:
        for rows, scopes in units:
            for low, high, file, line, column in rows:
                if low <= address < high:
                    return _chain(Frame(file, line, column or None, ""), scopes, address)
        return ()

    return frames


_Row = tuple[int, int, str, int, int]
"""First address, end, file, line, column."""
_Scope = tuple[int, int, str, tuple[str, int, int] | None]
"""First address, end, name of the function, and where it was inlined from."""


def _units(data: bytes, sections: Mapping[str, int]) -> Iterator[tuple[list[_Row], list[_Scope]]]:
    elf = ELFFile(io.BytesIO(_placed(data, sections)))
    if not elf.has_dwarf_info():
        return
    dwarf = elf.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        files = _files(program, unit)
        yield list(_rows(program, files)), list(_scopes(unit.get_top_DIE(), unit, files))


def _placed(data: bytes, sections: Mapping[str, int]) -> bytes:
    """Return the object with its symbols moved to live addresses, for its tables to speak of."""
    elf = ELFFile(io.BytesIO(data))
    table: Any = elf.get_section_by_name(".symtab")
    moved = bytearray(data)
    names = [section.name for section in elf.iter_sections()]
    for number, name in enumerate(names):
        if name == ".rela.eh_frame":
            # It has relocations that pyelftools does not know, and nobody asks for it here.
            at = elf["e_shoff"] + number * elf["e_shentsize"] + _SECTION_SIZE
            struct.pack_into("<Q", moved, at, 0)
    for number, symbol in enumerate(table.iter_symbols()):
        index = symbol["st_shndx"]
        if isinstance(index, int) and names[index] in sections:
            at = table["sh_offset"] + number * table["sh_entsize"] + _SYMBOL_VALUE
            value = symbol["st_value"] + sections[names[index]]
            struct.pack_into("<Q", moved, at, value)
    return bytes(moved)


def _files(program: Any, unit: Any) -> Callable[[int], str]:
    header = program.header
    first = 0 if header["version"] >= 5 else 1
    entries = header["file_entry"]
    directories = [_text(one) for one in header["include_directory"]]
    if first:
        top = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
        directories.insert(0, _text(top.value) if top is not None else "")

    def name(index: int) -> str:
        if not 0 <= index - first < len(entries):
            return ""
        entry = entries[index - first]
        file = _text(entry.name)
        directory = directories[entry.dir_index] if entry.dir_index < len(directories) else ""
        return file if file.startswith("/") or not directory else f"{directory}/{file}"

    return name


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _rows(program: Any, files: Callable[[int], str]) -> Iterator[_Row]:
    before = None
    line = 0
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None:
            # Line 0 stands for code that belongs to no line: the last one of the file is nearest.
            line = before.line or line
            yield before.address, state.address, files(before.file), line, before.column
            line = line if state.file == before.file else 0
        before = None if state.end_sequence else state


def _scopes(entry: Any, unit: Any, files: Callable[[int], str]) -> Iterator[_Scope]:
    """Yield functions and what was inlined into them, outer ones first."""
    for child in entry.iter_children():
        inlined = child.tag == "DW_TAG_inlined_subroutine"
        if inlined or child.tag == "DW_TAG_subprogram":
            attributes = child.attributes
            call = None
            if inlined and "DW_AT_call_line" in attributes:
                column = attributes.get("DW_AT_call_column")
                call = (
                    files(attributes["DW_AT_call_file"].value),
                    attributes["DW_AT_call_line"].value,
                    column.value if column is not None else 0,
                )
            for low, high in _ranges(child, unit):
                yield low, high, _name(child), call
        yield from _scopes(child, unit, files)


def _ranges(entry: Any, unit: Any) -> Iterator[tuple[int, int]]:
    attributes = entry.attributes
    if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        low = attributes["DW_AT_low_pc"].value
        yield low, low + attributes["DW_AT_high_pc"].value
    elif "DW_AT_ranges" in attributes:
        top = unit.get_top_DIE().attributes
        base = top["DW_AT_low_pc"].value if "DW_AT_low_pc" in top else 0
        lists = unit.dwarfinfo.range_lists()
        for one in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if hasattr(one, "base_address"):
                base = one.base_address
            else:
                start = 0 if getattr(one, "is_absolute", False) else base
                yield start + one.begin_offset, start + one.end_offset


def _name(entry: Any) -> str:
    for _ in range(4):
        for key in ("DW_AT_name", "DW_AT_linkage_name"):
            if key in entry.attributes:
                return _text(entry.attributes[key].value)
        if "DW_AT_abstract_origin" not in entry.attributes:
            break
        entry = entry.get_DIE_from_attribute("DW_AT_abstract_origin")
    return ""


def _chain(innermost: Frame, scopes: list[_Scope], address: int) -> Backtrace:
    """Return the frames at an address: each inlined function, then where it was inlined from."""
    inside = [scope for scope in scopes if scope[0] <= address < scope[1]]
    frames: list[Frame] = []
    place = (innermost.file, innermost.line, innermost.column)
    for _, _, name, call in reversed(inside):
        frames.append(Frame(*place, name, inlined=call is not None))
        if call is None:
            return tuple(frames)
        place = (call[0], call[1], call[2] or None)
    return (*frames, Frame(*place, ""))

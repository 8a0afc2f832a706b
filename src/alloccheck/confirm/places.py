"""Which source lines a place in an artifact's machine code stands for, from its line tables.

DWARF is read with pyelftools; the format is DWARF 4, sections 3.3.8 (inlined subroutines) and 6.2
(line numbers): https://dwarfstd.org/dwarf4std.html. Knows object files; nothing of measuring.
"""

from __future__ import annotations

import io
import zlib
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.descriptions import describe_form_class
from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from alloccheck.compile.artifact import Artifact

Line = tuple[str, int]
"""A file's name without its directory, and a line."""


class Places:
    """The line tables of one artifact.

    Parameters
    ----------
    artifact : Artifact
        Loaded code; its object keeps what the compiler knew of lines.
    """

    def __init__(self, artifact: Artifact) -> None:
        found = artifact.object_file()
        entry = next((one for one in found.symbols if one.name == artifact.symbol), None)
        size = 0
        if entry is not None:
            size = next(len(one.data) for one in found.sections if one.name == entry.section)
        self._start = entry.offset if entry is not None else 0
        self._size = size
        self._object = artifact.object_code

    def lines(self, offset: int) -> tuple[Line, ...]:
        """Return the lines at a return address, innermost first, outwards through inlining.

        Parameters
        ----------
        offset : int
            From the artifact's entry; negative for what lies before it.

        Returns
        -------
        tuple of (str, int)
            Empty when nothing is known of the place.
        """
        # The call stands before the address that it returns to.
        address = self._start + offset - 1
        if not 0 <= address < self._size:
            return ()
        try:
            return self._lines(address)
        except (DWARFError, ELFError, KeyError, IndexError):
            return ()

    def _lines(self, address: int) -> tuple[Line, ...]:
        for unit, program, rows in self._units:
            row = _row(rows, address)
            if row is None:
                continue
            chain = [(_file(program, row.file), row.line)]
            for call in reversed(_inlined(unit.get_top_DIE(), address, unit, self._dwarf)):
                attributes = call.attributes
                file = _file(program, attributes["DW_AT_call_file"].value)
                chain.append((file, attributes["DW_AT_call_line"].value))
            return tuple(chain)
        return ()

    @cached_property
    def _dwarf(self) -> Any:
        content = zlib.decompress(self._object)
        # pyelftools also relocates unwind tables, in which it does not know what LLVM writes for
        # large code. Lines do not need them: their relocations get a name that is not looked for.
        content = content.replace(b".rela.eh_frame\0", b".rxla.eh_frame\0")
        return ELFFile(io.BytesIO(content)).get_dwarf_info()

    @cached_property
    def _units(self) -> list[tuple[Any, Any, list[Any]]]:
        found = []
        for unit in self._dwarf.iter_CUs():
            program = self._dwarf.line_program_for_CU(unit)
            rows = [one.state for one in program.get_entries() if one.state is not None]
            found.append((unit, program, rows))
        return found


def _row(rows: list[Any], address: int) -> Any:
    for row, following in zip(rows, rows[1:], strict=False):
        if not row.end_sequence and row.address <= address < following.address:
            return row
    return None


def _file(program: Any, number: int) -> str:
    name = program.header["file_entry"][number - 1].name
    return PurePath(name.decode(errors="replace")).name


def _inlined(die: Any, address: int, unit: Any, dwarf: Any) -> list[Any]:
    """Return the inlined calls around an address, outermost first."""
    found: list[Any] = []
    inside = True
    while inside:
        inside = False
        for child in die.iter_children():
            if child.tag in _SCOPES and _covers(child, address, unit, dwarf):
                if child.tag == "DW_TAG_inlined_subroutine":
                    found.append(child)
                die, inside = child, True
                break
    return found


_SCOPES = ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")


def _covers(die: Any, address: int, unit: Any, dwarf: Any) -> bool:
    attributes = die.attributes
    if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        low = attributes["DW_AT_low_pc"].value
        high = attributes["DW_AT_high_pc"]
        end = high.value if describe_form_class(high.form) == "address" else low + high.value
        return bool(low <= address < end)
    if "DW_AT_ranges" not in attributes:
        return False
    base = 0
    top = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
    if top is not None:
        base = top.value
    for one in dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value):
        if hasattr(one, "base_address"):
            base = one.base_address
        elif base + one.begin_offset <= address < base + one.end_offset:
            return True
    return False

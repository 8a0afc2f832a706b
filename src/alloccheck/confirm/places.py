"""Which source lines a place in an artifact's machine code stands for, from its line tables.

DWARF is read with pyelftools; the format is DWARF 4, sections 3.3.8 (inlined subroutines) and 6.2
(line numbers): https://dwarfstd.org/dwarf4std.html. Knows object files; nothing of measuring.
"""

from __future__ import annotations

import bisect
import io
import itertools
import platform
import zlib
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.descriptions import describe_form_class
from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from alloccheck.compile.loaded import Artifact

Line = tuple[str, int]
"""A file's name without its directory, and a line."""


class Places:
    """The line tables of one artifact.

    Parameters
    ----------
    artifact : Artifact
        Loaded code; its object keeps what the compiler knew of lines.
    symbol : str, optional
        Of the entry that places are counted from; that of the native function when left out.
    """

    def __init__(self, artifact: Artifact, symbol: str | None = None) -> None:
        found = artifact.object_file()
        wanted = symbol or artifact.symbol
        entry = next((one for one in found.symbols if one.name == wanted), None)
        self._section = entry.section if entry is not None else ""
        self._start = entry.offset if entry is not None else 0
        self._code = next((one.data for one in found.sections if one.name == self._section), b"")
        self._functions = sorted(
            one.offset for one in found.symbols if one.function and one.section == self._section
        )
        self._externals = {
            one.offset: one.target
            for one in found.relocations
            if one.section == self._section and one.external
        }
        self._object = artifact.object_code

    def lines(self, offset: int) -> tuple[Line, ...]:
        """Return the lines at a return address, innermost first, outwards through inlining.

        Parameters
        ----------
        offset : int
            From the entry; negative for what lies before it.

        Returns
        -------
        tuple of (str, int)
            Empty when nothing is known of the place.
        """
        # The call stands before the address that it returns to.
        address = self._start + offset - 1
        if not 0 <= address < len(self._code):
            return ()
        try:
            return self._lines(address)
        except (DWARFError, ELFError, KeyError, IndexError):
            return ()

    def target(self, offset: int) -> str | None:
        """Return the external symbol that the call before a return address calls.

        Parameters
        ----------
        offset : int
            See `lines`.

        Returns
        -------
        str or None
            None when the code does not show it plainly.
        """
        end = self._start + offset
        before = bisect.bisect_right(self._functions, end - 1)
        if platform.machine() not in ("x86_64", "AMD64") or not 0 < end <= len(self._code):
            return None
        start = self._functions[before - 1] if before else 0
        return _called(self._code[start:end], start, self._externals)

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


def _called(code: bytes, start: int, externals: dict[int, str]) -> str | None:
    """Return the symbol whose address the last instruction calls, followed through registers.

    Every symbol is loaded by a 64-bit constant, for the code may lie anywhere. The search runs
    straight through the function: a register holds what was last put into it there.
    """
    import iced_x86 as iced

    R = iced.Register
    # What a call may change: System V AMD64 ABI, section 3.2.1.
    clobbered = (R.RAX, R.RCX, R.RDX, R.RSI, R.RDI, R.R8, R.R9, R.R10, R.R11)
    held: dict[int, str] = {}
    infos = iced.InstructionInfoFactory()
    last = None
    for instruction in iced.Decoder(64, code, ip=start):
        last = None
        if instruction.mnemonic == iced.Mnemonic.CALL:
            if instruction.op0_kind == iced.OpKind.REGISTER:
                last = held.get(instruction.op0_register)
            for register in clobbered:
                held.pop(register, None)
            continue
        for used in infos.info(instruction).used_registers():
            if used.access not in (iced.OpAccess.READ, iced.OpAccess.COND_READ):
                held.pop(iced.RegisterExt.full_register(used.register), None)
        # movabs: REX prefix, opcode, then eight bytes that the loader fills in.
        name = externals.get(instruction.ip + 2)
        if name is not None and instruction.op1_kind == iced.OpKind.IMMEDIATE64:
            held[instruction.op0_register] = name
    return last


def _row(rows: list[Any], address: int) -> Any:
    for row, following in itertools.pairwise(rows):
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

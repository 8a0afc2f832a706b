"""Landing pads: where control continues in a function when a callee throws.

Knows the unwind tables and the language-specific data that they point to; nothing of instructions.
Source: the Itanium C++ ABI's exception tables, as GCC, Clang and rustc write them.
"""

from __future__ import annotations

from collections.abc import Iterator

from alloccheck.errors import ProgramError
from alloccheck.program.machine.images import Image
from alloccheck.program.machine.memory import Memory

_OMITTED, _ULEB128, _UDATA4, _PCREL_SDATA4 = 0xFF, 0x01, 0x03, 0x1B
_POINTER_SIZES = {0x0: 8, 0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}
_LARGEST_TABLE = 1 << 20


class _Cursor:
    """A position in memory that moves on as values are read."""

    def __init__(self, memory: Memory, at: int) -> None:
        self.memory = memory
        self.at = at

    def byte(self) -> int:
        value = self.memory.read(self.at, 1)[0]
        self.at += 1
        return value

    def word(self) -> int:
        value = int.from_bytes(self.memory.read(self.at, 4), "little", signed=True)
        self.at += 4
        return value

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 63:
                raise ProgramError(f"number at {self.at:#x} is too long")


def landing_pads(image: Image, start: int) -> tuple[int, ...]:
    """Return the live addresses of the landing pads of the range that begins at `start`.

    Parameters
    ----------
    image : Image
    start : int
        Live address of the beginning of a function's (or part's) range.

    Raises
    ------
    ProgramError
        If there is a table whose form is not known.
    """
    description = image.frames.description(start)
    if description is None:
        return ()
    table = _language_data(image.memory, description)
    return tuple(sorted(set(_pads(image.memory, table, start)))) if table else ()


def _language_data(memory: Memory, description: int) -> int:
    """Return the address of the language-specific data of an FDE, or 0."""
    cursor = _Cursor(memory, description + 4)
    information = cursor.at - (cursor.word() & 0xFFFFFFFF)
    encoding = _language_encoding(memory, information)
    if encoding == _OMITTED:
        return 0
    if encoding != _PCREL_SDATA4:
        raise ProgramError(f"exception table pointer of encoding {encoding:#x} is not read")
    cursor.at = description + 16
    if cursor.uleb() < 4:
        return 0
    place = cursor.at
    offset = cursor.word()
    return place + offset if offset else 0


def _language_encoding(memory: Memory, information: int) -> int:
    """Return how a CIE says that its FDEs point to language-specific data."""
    cursor = _Cursor(memory, information + 9)
    letters = b""
    while byte := cursor.byte():
        letters += bytes((byte,))
    if not letters.startswith(b"z"):
        return _OMITTED
    for _ in range(4):  # code and data alignment, return register, length of what follows
        cursor.uleb()
    for letter in letters[1:].decode("latin-1"):
        if letter == "L":
            return cursor.byte()
        if letter == "R":
            cursor.byte()
        elif letter == "P":
            size = _POINTER_SIZES.get(cursor.byte() & 0xF, 8)
            cursor.at += size
        elif letter not in "SB":
            raise ProgramError(f"unwind augmentation {letters!r} is not read")
    return _OMITTED


def _pads(memory: Memory, table: int, start: int) -> Iterator[int]:
    cursor = _Cursor(memory, table)
    if cursor.byte() != _OMITTED:
        # Landing pads relative to another place than the function.
        cursor.at = table
        encoding = cursor.byte()
        if encoding != _PCREL_SDATA4:
            raise ProgramError(f"landing pad base of encoding {encoding:#x} is not read")
        place = cursor.at
        start = place + cursor.word()
    if cursor.byte() != _OMITTED:
        cursor.uleb()
    encoding = cursor.byte()
    if encoding not in (_ULEB128, _UDATA4):
        raise ProgramError(f"call site table of encoding {encoding:#x} is not read")
    length = cursor.uleb()
    if length > _LARGEST_TABLE:
        raise ProgramError(f"call site table of {length} bytes at {cursor.at:#x}")
    read = cursor.uleb if encoding == _ULEB128 else lambda: cursor.word() & 0xFFFFFFFF
    end = cursor.at + length
    while cursor.at < end:
        _, _, pad = read(), read(), read()
        cursor.uleb()
        if pad:
            yield start + pad

"""Constant data that code reads: jump tables and literals in memory that never changes.

Knows images and permissions; nothing of instructions. The index of a table is a proven set of
values (see `values`): a table is read at exactly those places and nowhere else, so there is no
guessing where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from alloccheck.program.machine.chunk import AccessPath, ConstantGlobal
from alloccheck.program.machine.images import Image
from alloccheck.program.machine.memory import Memory, Unreadable, is_immutable

if TYPE_CHECKING:
    from alloccheck.program.machine.globals_ import ConstantVariables


@dataclass(slots=True)
class ConstantReader:
    """Reads constants for one chunk and remembers what it relied upon.

    Parameters
    ----------
    memory : Memory
    image : Image or None
        The image that the code belongs to; None for jitted code.
    base : int
        What image-relative addresses are relative to.
    variables : ConstantVariables or None
        Writable variables that may be known to be constant.
    words : mapping
        What is known of constant words of jitted code, by address.
    """

    memory: Memory
    image: Image | None
    base: int
    variables: ConstantVariables | None
    words: Mapping[int, int] = field(default_factory=dict)
    used: dict[int, ConstantGlobal] = field(default_factory=dict)

    def read(self, relative: int, size: int) -> int | None:
        """Return the little-endian integer at an address, or None when it may change."""
        live = self.base + relative
        if self.image is None or not self.image.holds(live):
            return None
        for end in (live, live + size - 1):
            # Relocated data holds addresses: not a constant of the file.
            if not is_immutable(self.memory, end) or self.image.in_relro(end):
                return None
        try:
            return int.from_bytes(self.memory.read(live, size), "little")
        except Unreadable:
            return None

    def variable(self, path: AccessPath, size: int) -> int | None:
        """Return the value of a variable that is known never to be written, and remember it."""
        known = self.variables.find(path) if self.variables is not None else None
        if known is None or known.size != size:
            return None
        self.used[known.address] = known
        return known.value

    def word(self, relative: int) -> int | None:
        """Return the relative address that an immutable 8-byte slot of the image holds."""
        live = self.base + relative
        if self.image is None:
            return self.words.get(live)
        if not self.image.holds(live):
            return None
        if live in self.image.relocations:
            # Bound to a symbol: another process may bind it to something else.
            return None
        if not is_immutable(self.memory, live) or not is_immutable(self.memory, live + 7):
            return None
        try:
            return int.from_bytes(self.memory.read(live, 8), "little") - self.base
        except Unreadable:
            return None

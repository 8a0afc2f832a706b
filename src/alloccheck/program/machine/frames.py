"""Function ranges from the unwind tables (`.eh_frame_hdr` and the FDEs that it lists).

Knows the format of the tables; nothing of symbols or instructions. A stripped library still has
these tables, because exceptions and profilers need them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from alloccheck.errors import ProgramError
from alloccheck.program.machine.memory import Memory

_PCREL_SDATA4 = 0x1B
_DATAREL_SDATA4 = 0x3B
_UDATA4 = 0x03
_ADVANCE = (0x00, 0x01, 0x02, 0x03, 0x04)
"""DW_CFA_nop, set_loc, advance_loc1, advance_loc2, advance_loc4."""


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Sorted function ranges ``[start, end)`` of one image, as live addresses."""

    starts: list[int]
    ends: list[int]
    descriptions: list[int]
    """Addresses of the FDEs."""

    def find(self, address: int) -> tuple[int, int] | None:
        """Return the range that holds `address`, or None."""
        index = bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.ends[index]:
            return self.starts[index], self.ends[index]
        return None

    def description(self, start: int) -> int | None:
        """Return the address of the FDE whose range begins at `start`, or None."""
        index = bisect_left(self.starts, start)
        if index >= len(self.starts) or self.starts[index] != start:
            return None
        return self.descriptions[index]

    def starts_midway(self, memory: Memory, start: int) -> bool:
        """Return whether the range that begins at `start` is a part of another function.

        Compilers move unlikely code elsewhere. The unwind rules of such a part begin with the
        frame as it was at the jump; those of a function begin with an advance (or have none).
        """
        at = self.description(start)
        if at is None:
            return False
        length, back = struct.unpack("<II", memory.read(at, 8))
        augmentation = memory.read(at + 4 - back + 9, 1)
        if augmentation != b"z" or not 13 < length < 1 << 16:
            return False
        rules = memory.read(at + 16, length - 12)
        first = 1 + rules[0]
        if rules[0] >= 0x80 or first >= len(rules):
            return False
        operation = rules[first]
        return operation not in _ADVANCE and operation >> 6 != 1

    def gap(self, address: int, low: int, high: int) -> tuple[int, int]:
        """Return the largest range around `address` in ``[low, high)`` that no FDE covers."""
        index = bisect_right(self.starts, address)
        if index > 0:
            low = max(low, self.ends[index - 1])
        if index < len(self.starts):
            high = min(high, self.starts[index])
        return low, high

    def __len__(self) -> int:
        return len(self.starts)


def empty() -> FrameTable:
    """Return a table without ranges.

    Examples
    --------
    >>> empty().find(4096) is None
    True
    """
    return FrameTable([], [], [])


def read_frames(memory: Memory, header: int, size: int) -> FrameTable:
    """Read all function ranges of the `.eh_frame_hdr` at `header`.

    Parameters
    ----------
    memory : Memory
        Address space to read from.
    header, size : int
        The PT_GNU_EH_FRAME segment.

    Raises
    ------
    ProgramError
        If the table is not of the one form that linkers for Linux write, or not readable.
    """
    data = memory.read(header, size)
    if len(data) < 12 or data[0] != 1 or data[2] != _UDATA4 or data[3] != _DATAREL_SDATA4:
        raise ProgramError(f"unwind header at {header:#x} has an unknown form")
    (count,) = struct.unpack_from("<I", data, 8)
    if 12 + 8 * count > len(data):
        raise ProgramError(f"unwind header at {header:#x} claims {count} entries, too many")
    if count == 0:
        return empty()
    table = np.frombuffer(data, "<i4", 2 * count, 12).reshape(-1, 2).astype(np.int64)
    starts = table[:, 0] + header
    descriptions = table[:, 1] + header
    lowest = int(descriptions.min())
    raw = memory.read(lowest, int(descriptions.max()) + 16 - lowest)
    bytes_ = np.frombuffer(raw, np.uint8)

    def word(offset: int) -> Any:
        at = descriptions - lowest + offset
        parts = [bytes_[at + k].astype(np.int64) << (8 * k) for k in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    relative = word(8)
    relative = np.where(relative >= 1 << 31, relative - (1 << 32), relative)
    lengths = word(12)
    # The header holds every start a second time: an FDE in another encoding shows here.
    if not bool(((descriptions + 8 + relative) == starts).all()):
        raise ProgramError(f"unwind table at {lowest:#x} uses an encoding other than pcrel|sdata4")
    order = np.argsort(starts, kind="stable")
    columns = (starts, starts + lengths, descriptions)
    return FrameTable(*(column[order].tolist() for column in columns))

"""Reading the address space of this process: bytes, pointers and page permissions.

Knows nothing of ELF or of instructions. Every other module of the reader gets its bytes here, so
that a test can put an invented address space in place of the real one.
"""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from alloccheck.errors import ProgramError

LARGEST_READ = 1 << 31


class Unreadable(ProgramError):
    """Bytes that should be there are not mapped, or not readable."""


class Memory(Protocol):
    """An address space."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes, or raise `Unreadable`."""

    def permissions(self, address: int) -> str:
        """Return the permissions of the page in the form ``"r-xp"``, or ``""`` when unmapped."""


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """The address space of this process at the moment of `open`.

    Bytes are always read now; the page permissions are those of the time of creation.

    Examples
    --------
    >>> import ctypes
    >>> buffer = ctypes.create_string_buffer(b"abc")
    >>> LiveMemory.open().read(ctypes.addressof(buffer), 3)
    b'abc'
    """

    descriptor: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    modes: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Device and inode of what is mapped, ``"08:01 1234"``, or ``"00:00 0"``."""

    @classmethod
    def open(cls) -> LiveMemory:
        """Open the memory of this process and take its map."""
        starts, ends, modes, files = [], [], [], []
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, mode, _, device, inode = line.split(None, 5)[:5]
            start, _, end = span.partition("-")
            starts.append(int(start, 16))
            ends.append(int(end, 16))
            modes.append(mode)
            files.append(f"{device} {inode}")
        return cls(_descriptor(), tuple(starts), tuple(ends), tuple(modes), tuple(files))

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes at `address`, or raise `Unreadable`."""
        if size == 0:
            return b""
        if not 0 < size <= LARGEST_READ:
            raise Unreadable(f"{size} bytes at {address:#x} are more than anything has")
        try:
            data = os.pread(self.descriptor, size, address)
        except (OSError, OverflowError, ValueError):
            data = b""
        if len(data) != size:
            raise Unreadable(f"expected {size} readable bytes at {address:#x}")
        return data

    def permissions(self, address: int) -> str:
        """Return the permissions of the page at `address`, ``""`` when it is not mapped."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.ends[index]:
            return self.modes[index]
        return ""

    def file(self, address: int) -> str:
        """Return device and inode of what is mapped at `address`, ``""`` when that is nothing."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.ends[index] and self.files:
            return self.files[index]
        return ""


@dataclass(frozen=True, slots=True)
class NotedMemory:
    """An address space that remembers what was read.

    Parameters
    ----------
    memory : Memory
        Where the bytes come from.
    places : set of (int, int)
        Takes up address and size of each read.
    """

    memory: Memory
    places: set[tuple[int, int]]

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes, or raise `Unreadable`."""
        self.places.add((address, size))
        return self.memory.read(address, size)

    def permissions(self, address: int) -> str:
        """Return the permissions of a page."""
        return self.memory.permissions(address)


_OPEN: dict[int, int] = {}


def _descriptor() -> int:
    """Return this process's descriptor of its own memory (a child of fork gets its own)."""
    process = os.getpid()
    if process not in _OPEN:
        _OPEN[process] = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    return _OPEN[process]


def pointer(memory: Memory, address: int) -> int:
    """Return the 8-byte little-endian word at `address`."""
    return int.from_bytes(memory.read(address, 8), "little")


def is_immutable(memory: Memory, address: int) -> bool:
    """Return whether the page is mapped privately, readable, and nobody may write to it."""
    mode = memory.permissions(address)
    return mode[:2] == "r-" and mode[3:] == "p"


def is_executable(memory: Memory, address: int) -> bool:
    """Return whether the page may be executed."""
    return "x" in memory.permissions(address)

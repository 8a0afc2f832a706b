"""The process as it is now: its memory and its loaded modules, kept until modules come or go.

Also says which bytes a module consists of, without reading them all: the kernel tells whether a
page of a mapped file was ever written. Knows images and memory; nothing of instructions.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from alloccheck.program.machine.images import (
    PF_W,
    Image,
    ImageMap,
    ProgramHeader,
    loaded_images,
)
from alloccheck.program.machine.memory import LiveMemory

if TYPE_CHECKING:
    from alloccheck.program.machine.globals_ import ConstantVariables

_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNTOUCHED = {0x00, 0x20, 0xA0}
"""Highest bits of an entry of ``/proc/self/pagemap`` (Linux, admin-guide/mm/pagemap.rst): present,
swapped, of a file. A page that is not there yet will be read from the file; one that was written
belongs to no file any more."""


@dataclass(frozen=True, eq=False)
class View:
    """Memory and modules at one moment.

    Parameters
    ----------
    memory : LiveMemory
        Bytes are read when asked for; permissions are those of the moment.
    images : ImageMap
        Loaded modules.
    """

    memory: LiveMemory
    images: ImageMap
    kept: dict[object, Any] = field(default_factory=dict)
    """Room for what others remember of these modules."""
    _variables: dict[Image, ConstantVariables] = field(default_factory=dict)

    def named(self, name: str) -> Image | None:
        """Return the loaded module that the dynamic linker knows by a name."""
        return next((image for image in self.images.images if image.name == name), None)

    def variables(self, image: Image) -> ConstantVariables:
        """Return what is known of a module's constant variables."""
        if image not in self._variables:
            from alloccheck.program.machine.globals_ import ConstantVariables

            self._variables[image] = ConstantVariables(image, self.images.images)
        return self._variables[image]

    def identity(self, image: Image) -> str:
        """Return a text that stands for the bytes of a module that cannot be written.

        Where each of its read-only pages is still the file's, that is the file with its size and
        times; else a hash of the bytes.

        Parameters
        ----------
        image : Image
            A loaded module.

        Examples
        --------
        >>> view = current_view()
        >>> image = view.images.images[0]
        >>> view.identity(image) == view.identity(image)
        True
        """
        constant = [h for h in image.loads if not h.flags & PF_W]
        file = self._file(image)
        if file and all(
            self.memory.file(start) == file[0] and _untouched(start, size)
            for start, size in _joined(constant)
        ):
            return f"file {file[0]} {file[1]}"
        digest = hashlib.sha256()
        for header in constant:
            digest.update(self.memory.read(header.start, header.size))
        return f"bytes {digest.hexdigest()}"

    @staticmethod
    def _file(image: Image) -> tuple[str, str] | None:
        """Return device and inode of a module's file as the memory map writes them, and more."""
        try:
            status = os.stat(image.path)  # noqa: PTH116 - a good part of a query
        except OSError:
            return None
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return f"{device} {status.st_ino}", times


def _untouched(start: int, size: int) -> bool:
    """Return whether no page of a private mapping of a file was written."""
    first, end = start // _PAGE, -(-(start + size) // _PAGE)
    try:
        data = os.pread(_pagemap(), 8 * (end - first), 8 * first)
    except OSError:
        return False
    if len(data) != 8 * (end - first):
        return False
    # The three bits are the highest of each entry.
    return {byte & 0xE0 for byte in set(data[7::8])} <= _UNTOUCHED


def _joined(headers: list[ProgramHeader]) -> list[tuple[int, int]]:
    """Return segments as few ranges; what lies between them in one file is mapped with them."""
    ranges: list[tuple[int, int]] = []
    for header in headers:
        first = header.start // _PAGE * _PAGE
        end = -(-(header.start + header.size) // _PAGE) * _PAGE
        if ranges and ranges[-1][0] + ranges[-1][1] == first:
            first = ranges.pop()[0]
        ranges.append((first, end - first))
    return ranges


_OPEN: dict[int, int] = {}


def _pagemap() -> int:
    """Return this process's descriptor of its page map."""
    process = os.getpid()
    if process not in _OPEN:
        _OPEN[process] = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    return _OPEN[process]


class _LoadInfo(ctypes.Structure):
    _fields_ = (
        ("addr", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("phdr", ctypes.c_uint64),
        ("phnum", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    )


_VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadInfo), ctypes.c_size_t, ctypes.c_void_p)
_PROCESS = ctypes.CDLL(None)


def _loads_and_unloads() -> tuple[int, int, int]:
    """Return this process, and how many modules were ever loaded and unloaded in it."""
    counts: list[int] = []

    def visit(info: Any, size: int, _data: Any) -> int:
        if size >= ctypes.sizeof(_LoadInfo):
            counts.extend((info.contents.adds, info.contents.subs))
        return 1

    _PROCESS.dl_iterate_phdr(_VISIT(visit), None)
    return (os.getpid(), *counts) if len(counts) == 2 else (0, 0, 0)  # type: ignore[return-value]


_lock = threading.Lock()
_kept: dict[tuple[int, int, int], View] = {}


def current_view() -> View:
    """Return the process as it is now.

    Modules are listed anew when one was loaded or unloaded since the last call.

    Examples
    --------
    >>> any(image.short.startswith("libc.so") for image in current_view().images.images)
    True
    """
    with _lock:
        state = _loads_and_unloads()
        known = _kept.get(state) if state[0] else None
        if known is None:
            memory = LiveMemory.open()
            known = View(memory, ImageMap(loaded_images(memory)))
            _kept.clear()
            _kept[state] = known
        return known

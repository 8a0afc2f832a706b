"""The process as it is now: its memory and its loaded modules, kept until modules come or go.

Also says which bytes a module consists of, without reading them all: the kernel tells whether a
page of a mapped file was ever written. Knows images and memory; nothing of instructions.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
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
_UNTOUCHED = bytes(byte for byte in range(256) if byte & 0xE0 in (0x00, 0x20, 0xA0))
"""Highest bits of an entry of ``/proc/self/pagemap`` (Linux, admin-guide/mm/pagemap.rst): present,
swapped, of a file (the others are not looked at). A page that is not there yet will be read from
the file; one that was written belongs to no file any more."""
_NEAR = 16
"""Asking for that many pages more costs less than another question."""


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
    _files: dict[Image, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    @cached_property
    def _by_name(self) -> dict[str, Image]:
        return {image.name: image for image in reversed(self.images.images)}

    def named(self, name: str) -> Image | None:
        """Return the loaded module that the dynamic linker knows by a name."""
        return self._by_name.get(name)

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
        file = self.file(image)
        if file and all(_untouched(start, size) for start, size in _joined(constant)):
            return file
        digest = hashlib.sha256()
        for header in constant:
            digest.update(self.memory.read(header.start, header.size))
        return f"bytes {digest.hexdigest()}"

    def file(self, image: Image) -> str:
        """Return a text that stands for a module's file, or ``""`` if another one is mapped.

        Where it is the same, so are the bytes of each page that was not written: see `pages`.
        """
        try:
            status = os.stat(image.path)  # noqa: PTH116 - a good part of a query
        except OSError:
            return ""
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._files.get(image)
        if known is None or known[0] != key:
            known = self._files[image] = (key, self._file(image, *key))
        return known[1]

    def _file(self, image: Image, device: int, inode: int, *more: int) -> str:
        # As the memory map writes them.
        name = f"{os.major(device):02x}:{os.minor(device):02x} {inode}"
        constant = [h for h in image.loads if not h.flags & PF_W]
        if any(self.memory.file(start) != name for start, _ in _joined(constant)):
            return ""
        return f"file {name} {' '.join(map(str, more))}"

    @staticmethod
    def pages(image: Image, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return what `unwritten` needs to know of some ranges of a module.

        Parameters
        ----------
        image : Image
        spans : iterable of (int, int)
            Where they begin and end; what is in writable segments is left out.

        Returns
        -------
        list of (int, int)
            Beginning, relative to the module, and size.
        """
        constant = [h for h in image.loads if not h.flags & PF_W]
        found: list[tuple[int, int]] = []
        for low, high in sorted(set(spans)):
            if not any(h.start <= low < h.start + h.size for h in constant):
                continue
            first, end = low // _PAGE * _PAGE, -(-high // _PAGE) * _PAGE
            if found and first <= found[-1][1] + _NEAR * _PAGE:
                first, before = found.pop()
                end = max(end, before)
            found.append((first, end))
        return [(low - image.base, high - low) for low, high in found]

    @staticmethod
    def unwritten(image: Image, pages: Iterable[tuple[int, int]]) -> bool:
        """Return whether some pages of a module (see `pages`) are still those of its file."""
        return all(_untouched(image.base + start, size) for start, size in pages)


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
    return not data[7::8].translate(None, _UNTOUCHED)


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


_counts: list[int] = []


def _visit(info: Any, size: int, _data: Any) -> int:
    if size >= ctypes.sizeof(_LoadInfo):
        _counts.extend((info.contents.adds, info.contents.subs))
    return 1


_first_module = _VISIT(_visit)


def _loads_and_unloads() -> tuple[int, int, int]:
    """Return this process, and how many modules were ever loaded and unloaded in it.

    To be called by one thread at a time.
    """
    _counts.clear()
    _PROCESS.dl_iterate_phdr(_first_module, None)
    return (os.getpid(), *_counts) if len(_counts) == 2 else (0, 0, 0)  # type: ignore[return-value]


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

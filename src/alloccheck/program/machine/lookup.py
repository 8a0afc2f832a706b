"""From names that users know to addresses: libraries, extension modules, their symbols.

Knows ctypes and the C interface that Cython modules export; nothing of code.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from alloccheck.errors import UsageError
from alloccheck.program.machine.images import Image, loaded_images
from alloccheck.program.machine.memory import LiveMemory
from alloccheck.program.machine.symbols import STT_FUNC, STT_GNU_IFUNC


def symbol_address(library: str, symbol: str) -> int:
    """Return the address of a function that a library or extension module offers.

    Parameters
    ----------
    library : str
        A shared library (``libm.so.6``, a path) or an importable module.
    symbol : str
        A Cython C function of the module, an exported symbol, or a local symbol of the file.

    Raises
    ------
    UsageError
        If there is no such library or symbol.

    Examples
    --------
    >>> symbol_address("libm.so.6", "sin") > 0
    True
    """
    module = _module(library)
    capsules = _capsules(module)
    if symbol in capsules:
        return _pointer(capsules[symbol])
    loaded = _load(library, module)
    address = _exported(loaded, symbol)
    if address:
        return address
    local = _image(loaded).file_names.by_name.get(symbol)
    if local is None:
        raise UsageError(f"{library} has no function {symbol!r}; --all lists those that it has")
    return local.address


def all_functions(library: str) -> dict[str, int]:
    """Return names and addresses of the functions that a library or extension module offers.

    Of several versions of a name each one has its address added, as in ``pow@0x10170``; an
    indirect function stands for what the linker chose on this machine.

    Raises
    ------
    UsageError
        If there is no such library.

    Examples
    --------
    >>> "sin" in all_functions("libm.so.6")
    True
    """
    module = _module(library)
    capsules = _capsules(module)
    if capsules:
        return {name: _pointer(capsules[name]) for name in sorted(capsules)}
    loaded = _load(library, module)
    image = _image(loaded)
    found: dict[str, set[int]] = {}
    for symbol in image.exports.ordered:
        if symbol.kind == STT_FUNC:
            found.setdefault(symbol.name, set()).add(symbol.address)
        elif symbol.kind == STT_GNU_IFUNC and (chosen := _exported(loaded, symbol.name)):
            found.setdefault(symbol.name, set()).add(chosen)
    return {
        name if len(addresses) == 1 else f"{name}@{address - image.base:#x}": address
        for name, addresses in sorted(found.items())
        for address in sorted(addresses)
    }


def _exported(loaded: ctypes.CDLL, symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value
    except (AttributeError, ValueError):
        return None


def _module(library: str) -> ModuleType | None:
    if ".so" in library or os.sep in library:
        return None
    try:
        return importlib.import_module(library)
    except (ImportError, TypeError, ValueError):
        # A name that is none: empty, or beginning with a dot.
        return None


def _capsules(module: ModuleType | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(module, "__pyx_capi__", {})
    return found


def _pointer(capsule: Any) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return int(address)


def _load(library: str, module: ModuleType | None) -> ctypes.CDLL:
    path = library if module is None else getattr(module, "__file__", None)
    if not path or (module is not None and ".so" not in Path(path).name):
        raise UsageError(f"{library} is a module without machine code of its own")
    if _is_cut_off(Path(path)):
        # The linker would map pages that the file does not have, and die of touching them.
        raise UsageError(f"{library} is cut off: the file ends before what it is to load")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise UsageError(f"{library} can neither be loaded nor imported: {error}") from error


def _is_cut_off(path: Path) -> bool:
    """Tell whether 64-bit ELF ends before a segment of it; what else is wrong, the linker says."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(_ELF64.size)
            if len(head) < _ELF64.size or not head.startswith(b"\x7fELF\x02\x01"):
                return False
            offset, entry, count = _ELF64.unpack(head)
            if entry < _SEGMENT.size:
                return False
            file.seek(offset)
            table = file.read(entry * count)
    except (OSError, OverflowError, ValueError):
        return False  # a name for the linker to find, or nothing that it can load
    segments = (
        _SEGMENT.unpack_from(table, start)
        for start in range(0, len(table) - _SEGMENT.size + 1, entry)
    )
    return len(table) < entry * count or any(
        kind == _PT_LOAD and start + length > size for kind, start, length in segments
    )


_ELF64 = struct.Struct("<32xQ14xHH")
"""Where the table of segments stands, the size of an entry, and how many there are."""

_SEGMENT = struct.Struct("<I4xQ16xQ")
"""Kind, place in the file, and size in the file."""

_PT_LOAD = 1


class _LinkMap(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("dynamic", ctypes.c_void_p),
    )


def _image(loaded: ctypes.CDLL) -> Image:
    # On glibc and musl a handle of dlopen is the library's link map, whose first field is its
    # load address (dlinfo RTLD_DI_LINKMAP returns the same pointer).
    base = ctypes.cast(loaded._handle, ctypes.POINTER(_LinkMap)).contents.address
    for image in loaded_images(LiveMemory.open()):
        if image.base == base:
            return image
    raise UsageError(f"{loaded._name} is not among the loaded libraries")

"""Builders of LLVM's pass pipelines that give back all of their memory.

llvmlite makes a `PassInstrumentationCallbacks` for each builder and deletes the builder alone:
1,472 bytes are lost for each pipeline, and a check runs three. Nothing that llvmlite exports
reaches them, and a builder cannot serve twice, as each run adds callbacks that are gone when it
ends. So the object is found where the builder refers to it, and deleted as C++ would.

What is read there is compared with what LLVM's types say, word by word; where anything is
otherwise, the object is left alone, as llvmlite leaves it:

- ten vectors of callbacks, each in the room that it brings along,
- whose callbacks keep what they need in themselves and need no destructor, and
- an empty table of names of passes.

An object of this form owns no other memory, so that deleting it is freeing it.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`, with llvmlite 0.50 (LLVM 20), on
x86-64.

References
----------
.. [1] ``PassInstrumentationCallbacks`` in ``llvm/IR/PassInstrumentation.h``, ``unique_function`` in
   ``llvm/ADT/FunctionExtras.h``, ``SmallVector`` in ``llvm/ADT/SmallVector.h``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from functools import cache
from typing import Any

import llvmlite
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import PassBuilder

VERIFIED_LLVMLITE = "0.50."
_WORD = 8
_CALLBACKS_IN_BUILDER = 12 * _WORD
_VECTORS = 10
_ROOM = 4
"""Callbacks that a vector holds in itself."""
_CALLBACK = 4
"""Words of a callback; the last is the code, and two bits."""
_IN_ITSELF_AND_TRIVIAL = 0b010
_VECTOR = 2 + _ROOM * _CALLBACK
_WORDS = _VECTORS * _VECTOR + 4
_LAYOUT = struct.Struct(f"={_WORDS}Q")


def _owns_nothing(address: int, words: tuple[int, ...]) -> bool:
    """Tell whether these are the words of a `PassInstrumentationCallbacks` with no other memory."""
    for start in range(0, _VECTORS * _VECTOR, _VECTOR):
        begin, sizes = words[start : start + 2]
        held, room = sizes & 0xFFFFFFFF, sizes >> 32
        if begin != address + (start + 2) * _WORD or room != _ROOM or held > _ROOM:
            return False
        for callback in range(held):
            if words[start + 1 + (callback + 1) * _CALLBACK] & 0b111 != _IN_ITSELF_AND_TRIVIAL:
                return False
    return not any(words[_VECTORS * _VECTOR :])


def _address(builder: Any) -> int:
    return ctypes.cast(builder._ptr, ctypes.c_void_p).value or 0


@cache
def _delete() -> Any:
    """Return C++'s ``operator delete`` as llvmlite's library has it; None where it is not known."""
    if not llvmlite.__version__.startswith(VERIFIED_LLVMLITE) or platform.machine() != "x86_64":
        return None
    try:
        delete = ctypes.CDLL(ffi.lib._name)["_ZdlPv"]
    except (OSError, AttributeError):
        return None
    delete.argtypes = [ctypes.c_void_p]
    delete.restype = None
    return delete


def _callbacks(builder: Any) -> int | None:
    """Return where the builder's callbacks are; None unless deleting them is freeing them.

    They are read through the kernel, which refuses what is no memory.
    """
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        where = os.pread(memory, _WORD, _address(builder) + _CALLBACKS_IN_BUILDER)
        address = int.from_bytes(where, sys.byteorder)
        words = _LAYOUT.unpack(os.pread(memory, _LAYOUT.size, address))
    except (OSError, OverflowError, struct.error):
        return None
    finally:
        os.close(memory)
    return address if _owns_nothing(address, words) else None


class FreedPassBuilder(PassBuilder):  # type: ignore[misc]
    """As llvmlite's, and all of it is freed."""

    def _dispose(self) -> None:
        delete = _delete()
        callbacks = None if delete is None else _callbacks(self)
        # The builder refers to them, and goes first.
        super()._dispose()
        if callbacks is not None:
            delete(callbacks)


def freed_builder(builder: Any) -> Any:
    """Return the builder, as one that gives back all of its memory.

    Parameters
    ----------
    builder : llvmlite.binding.PassBuilder
        Just made. Its pass managers must be run before it goes, as with any other.

    Examples
    --------
    >>> import llvmlite.binding as llvm
    >>> llvm.initialize_native_target()
    >>> machine = llvm.Target.from_default_triple().create_target_machine()
    >>> builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    >>> freed_builder(builder).close()
    """
    builder.__class__ = FreedPassBuilder
    return builder

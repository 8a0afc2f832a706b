"""LLVM contexts that go with their last module.

A context keeps every type, constant and debug location that any of its modules ever had. llvmlite
puts all modules into one of the process, where each compile leaves its locations behind for good.

llvmlite's own contexts are no way out: a context takes its modules with it, and when both are
dropped in a cycle, the collector may free the context first and the module after it. Here the last
module that is freed frees the context.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`, with llvmlite 0.50.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as ll
from llvmlite.binding import ffi
from llvmlite.binding.context import ContextRef


class _Context(ContextRef):  # type: ignore[misc]
    """A context that counts what needs it."""

    def __init__(self) -> None:
        super().__init__(ffi.lib.LLVMPY_ContextCreate())
        self._needed = 0

    def enter(self) -> None:
        """Note one more module."""
        self._needed += 1

    def leave(self) -> None:
        """Note one module less; the last frees the context."""
        self._needed -= 1
        if not self._needed:
            super().close()

    def close(self) -> None:
        """Leave it to the modules: the collector may ask for this before they are gone."""


class Module(ll.ModuleRef):  # type: ignore[misc]
    """A module in a context that goes with its last module; made by `read_text`."""

    def clone(self) -> Module:
        """Return a copy, in the same context."""
        self._context.enter()
        return Module(ffi.lib.LLVMPY_CloneModule(self), self._context)

    def link_in(self, other: Any, preserve: bool = False) -> None:
        """Link another module into this one; one of another context is copied into this one's."""
        if other._context is not self._context:
            copy = read_bitcode(other.as_bitcode(), beside=self)
            if not preserve:
                other.close()
            other, preserve = copy, False
        super().link_in(other, preserve)

    def detach(self) -> None:
        """Let go of what was freed or linked into another module."""
        if not self._closed:
            super().detach()
            self._context.leave()


def _read(read: Callable[[Any, Any], Any], data: Any, beside: Any) -> Any:
    if beside is not None and not isinstance(beside, Module):
        return read(data, beside._context)
    context = _Context() if beside is None else beside._context
    context.enter()
    try:
        module = read(data, context)
    except BaseException:
        context.leave()
        raise
    pointer = module._ptr
    module.detach()
    return Module(pointer, context)


def read_text(text: str, beside: Any = None) -> Any:
    """Return a module that is read from IR.

    Parameters
    ----------
    text : str
        What llvmlite prints or Numba makes.
    beside : llvmlite.binding.ModuleRef, optional
        The module shares its context, as it must to be linked with it. Otherwise it has its own.

    Raises
    ------
    RuntimeError
        When LLVM cannot read it.

    Examples
    --------
    >>> module = read_text("define void @f() { ret void }")
    >>> module.link_in(read_text("define void @g() { ret void }", beside=module))
    >>> [function.name for function in module.functions]
    ['f', 'g']
    """
    return _read(ll.parse_assembly, text, beside)


def read_bitcode(bitcode: bytes, beside: Any = None) -> Any:
    """Return a module that is read from bitcode; see `read_text`."""
    return _read(ll.parse_bitcode, bitcode, beside)

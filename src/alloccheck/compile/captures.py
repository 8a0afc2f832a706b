"""What a function takes from outside itself: globals, closure cells, module attributes.

Numba freezes captured values when it compiles. Whoever keeps compiled code must be able to tell
whether the values are still the ones that were frozen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)

# isort: split
from numba.core.dispatcher import Dispatcher
from numba.core.types import ClassType

_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic)
_BY_ADDRESS = 1_000_000
"""Arrays of more bytes than this are captured by address, not by content."""

_MISSING = object()


def captured_values(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a Python function can reach outside itself, with the way to it.

    Parameters
    ----------
    function : Callable
        A Python function.

    Yields
    ------
    path : str
        Such as ``"global gain"``, ``"closure size"`` or ``"global np.pi"``.
    value : object
        A marker of its own when there is no such value (yet).

    Examples
    --------
    >>> size = 3
    >>> [path for path, _ in captured_values(lambda x: x + size)]
    ['global size']
    """
    names = sorted(_names(function.__code__))
    scope = function.__globals__
    builtins = scope.get("__builtins__", {})
    builtin_names = vars(builtins) if isinstance(builtins, ModuleType) else builtins
    for name in names:
        if name in scope:
            yield from _with_attributes(f"global {name}", scope[name], names)
        elif name not in builtin_names:
            yield f"global {name}", _MISSING
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            value = _MISSING
        yield from _with_attributes(f"closure {name}", value, names)


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, in nested functions too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _with_attributes(path: str, value: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, ModuleType):
        own = vars(value)
        for name in names:
            if name in own:
                attribute = own[name]
                yield f"{path}.{name}", attribute
                if isinstance(attribute, ModuleType):
                    inner = vars(attribute)
                    for deeper in names:
                        if deeper in inner:
                            yield f"{path}.{name}.{deeper}", inner[deeper]


def fingerprint(value: Any) -> tuple[Any, ...]:
    """Return a key that changes when Numba would freeze something else for `value`.

    Parameters
    ----------
    value : object
        A captured value.

    Returns
    -------
    tuple
        Content for what Numba copies, identity for everything else.

    Examples
    --------
    >>> fingerprint(1.0) == fingerprint(1.0), fingerprint(1.0) == fingerprint(1)
    (True, False)
    >>> a = np.zeros(2)
    >>> before = fingerprint(a)
    >>> a[0] = 1.0
    >>> fingerprint(a) == before
    False
    """
    if isinstance(value, _PLAIN):
        return (type(value), repr(value))
    if isinstance(value, tuple):
        return (type(value), *(fingerprint(one) for one in value))
    if isinstance(value, list | set | frozenset | dict):
        return (type(value), id(value), repr(value) if len(value) < 1000 else len(value))
    if isinstance(value, np.ndarray):
        shape = (value.shape, value.strides, str(value.dtype))
        if value.nbytes > _BY_ADDRESS or value.dtype.hasobject:
            return (np.ndarray, id(value), value.ctypes.data, shape)
        return (np.ndarray, shape, hashlib.sha256(value.tobytes()).digest())
    if isinstance(value, Dispatcher):
        declared = () if value._can_compile else tuple(map(str, value.nopython_signatures))
        return (id(value), value._can_compile, declared, repr(value.targetoptions), _trust(value))
    class_type = getattr(value, "class_type", None)
    if isinstance(class_type, ClassType):
        return (id(value), *(id(one) for one in class_type.jit_methods.values()))
    return (id(value),)


def _trust(dispatcher: Any) -> Any:
    from alloccheck.compile.world import ASSUMPTION_ATTRIBUTE

    return getattr(dispatcher.py_func, ASSUMPTION_ATTRIBUTE, None)

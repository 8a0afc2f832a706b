"""What is in a value of the user's, as a key to be compared with a later one in the same process.

Functions that run while Numba compiles, such as those that choose an overload, may look at any
object. No code of the object's is run to find out what is in it.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import ctypes
import functools
import gc
import logging
import os
import threading
import types as python_types
import weakref
from collections.abc import Iterator
from typing import Any

from alloccheck.compile.captures import MISSING, Same, fingerprint
from alloccheck.compile.origin import is_a, is_trusted_module

# isort: split
from numba.core import types
from numba.core.dispatcher import Dispatcher

_MOST = 2_000
"""Objects that one key is made of; what is behind them is told by identity."""
_OF_EVERY_CLASS = frozenset(
    {"__dict__", "__doc__", "__module__", "__slotnames__", "__weakref__", "_abc_impl"}
)
"""What Python puts into classes by itself; the names of slots when an instance is first pickled."""
_BOUND = python_types.BuiltinMethodType | python_types.MethodWrapperType
"""Methods of built-in classes, such as ``{}.get``."""
_OPEN: tuple[Any, ...] = (
    python_types.SimpleNamespace,
    argparse.Namespace,
    collections.UserDict,
    collections.ChainMap,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
    weakref.WeakValueDictionary,
)
"""Classes of the standard library whose instances are nothing but what others put into them."""
_MEMORY: tuple[Any, ...] = (
    bytearray,
    array.array,
    memoryview,
    ctypes._SimpleCData,
    ctypes.Array,
    ctypes.Structure,
    ctypes.Union,
)
_ENVIRONMENT = (os.environ, os.getenv)
_OURS = ("ALLOCCHECK_AUDIT", "PYTHONPATH")
"""Variables that an audit sets while the program runs."""


class Content:
    """Makes keys of values, with one limit for all of them.

    Examples
    --------
    >>> settings = {"limits": [3]}
    >>> before = Content().key(settings)
    >>> Content().key(settings) == before
    True
    >>> settings["limits"][0] = 4
    >>> Content().key(settings) == before
    False
    """

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def key(self, value: Any) -> Any:
        """Return a key of a value and of what is in it."""
        if value is MISSING:
            return MISSING
        if any(value is one for one in _ENVIRONMENT):
            return tuple(sorted(one for one in os.environ.items() if one[0] not in _OURS))
        if is_a(value, Dispatcher):
            # It gets its signatures, and is closed, after its first compile.
            return Same(value)
        parts = list(parts_of(value))
        if not parts and not is_a(value, list | set | dict):
            return fingerprint(value)
        if id(value) in self._seen or len(self._seen) >= _MOST:
            return Same(value)
        self._seen[id(value)] = value
        inner = tuple((name, self.key(one)) for name, one in parts)
        return (type(value), inner) if is_a(value, tuple) else (Same(value), len(parts), inner)


def functions_in(value: Any) -> Iterator[Any]:
    """Yield what may run when somebody uses a value: methods, and what a wrapper wraps.

    Parameters
    ----------
    value : object
        A class or an object.
    """
    if is_a(value, python_types.MethodType):
        yield value.__func__
        value = value.__self__
    elif is_a(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    kinds = type.mro(type(value))
    for kind in (*type.mro(value), *kinds) if is_a(value, type) else kinds:
        if not is_trusted_module(str(kind.__module__)):
            for one in vars(kind).values():
                if is_a(one, staticmethod | classmethod):
                    yield one.__func__
                elif is_a(one, property):
                    yield one.fget
                elif is_a(one, python_types.FunctionType):
                    yield one
    wrapped = dict(_attributes(value)).get("__wrapped__")
    if wrapped is not None:
        yield wrapped


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a value is made of, each with its name; nothing where it is told as a whole.

    Parameters
    ----------
    value : object
    """
    yield from _held(value)
    if _is_open(value):
        yield "class", type(value)
        yield from _attributes(value)


def _is_open(value: Any) -> bool:
    """Tell whether an object's attributes are what others put into them."""
    if is_a(value, types.Type | type):
        return False
    return is_a(value, _OPEN) or not is_trusted_module(str(type(value).__module__))


def _held(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a value has besides attributes."""
    if is_a(value, tuple):
        yield from enumerate(tuple.__iter__(value))
    elif is_a(value, list):
        yield from enumerate(list.__iter__(value))
    elif is_a(value, dict):
        for key, one in dict.items(value):
            yield "key", key
            yield "value", one
        if is_a(value, collections.defaultdict):
            yield "default", value.default_factory
    elif is_a(value, set):
        yield from enumerate(set.__iter__(value))
    elif is_a(value, frozenset):
        yield from enumerate(frozenset.__iter__(value))
    elif is_a(value, python_types.MethodType):
        yield "function", value.__func__
        yield "object", value.__self__
    elif is_a(value, functools.partial):
        yield from enumerate((value.func, *value.args))
        yield from value.keywords.items()
    elif is_a(value, type):
        if not is_trusted_module(str(value.__module__)):
            for name, one in sorted(vars(value).items()):
                # The annotations of a class without any are made when somebody asks for them.
                made = name == "__annotations__" and type(one) is dict and not one
                if name not in _OF_EVERY_CLASS and not made:
                    yield name, one
            yield from (("base", one) for one in value.__bases__)
            yield "class", type(value)
    elif is_a(value, collections.deque):
        yield from enumerate(value)
    elif is_a(value, _MEMORY):
        yield "content", _bytes(value)
    elif is_a(value, weakref.ref):
        yield "object", weakref.ref.__call__(value)
    elif is_a(value, python_types.MappingProxyType):
        yield from enumerate(gc.get_referents(value))
    elif is_a(value, _BOUND):
        # Of modules what is read is captured by name.
        if not is_a(value.__self__, python_types.ModuleType | type | None):
            yield "object", value.__self__
    elif is_a(value, threading.local):
        yield from threading.local.__getattribute__(value, "__dict__").items()
    elif is_a(value, contextvars.ContextVar):
        yield "value", value.get(None)
    elif is_a(value, logging.Logger):
        yield "level", logging.Logger.getEffectiveLevel(value)
        yield "disabled", (value.disabled, value.manager.disable)


def _bytes(memory: Any) -> bytes | None:
    try:
        return memoryview(memory).tobytes()
    except (BufferError, ValueError):
        return None  # a view that was released


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object itself has."""
    for kind in type.mro(type(value)):
        for name, slot in vars(kind).items():
            if is_a(slot, python_types.MemberDescriptorType):
                try:
                    yield name, slot.__get__(value)
                except AttributeError:
                    continue
    try:
        yield from object.__getattribute__(value, "__dict__").items()
    except AttributeError:
        return

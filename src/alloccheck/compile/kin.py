"""What a function is, as a digest that means the same in processes forked from one another.

Processes of one family have the same objects at the same addresses, as long as both keep them. So
what :mod:`alloccheck.compile.identity` cannot tell from its content is told here by its address,
its kind, and as much of its content as can be read.
"""

from __future__ import annotations

import array
import functools
import gc
import hashlib
import importlib
import io
import mmap
import os
import pickle
import sys
import types as python_types
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from alloccheck.compile.identity import Identity
from alloccheck.compile.origin import is_trusted_module
from alloccheck.errors import Unstorable

# isort: split
from numba.core import types
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc

_BY_ADDRESS = (Dispatcher, CFunc, python_types.FunctionType, python_types.ModuleType, type)
_STATIC = 1 << 9
"""Not set in the flags of classes that are part of a library (``Py_TPFLAGS_HEAPTYPE``)."""

_MOST = 5_000
"""Objects and classes that one digest looks into."""
_LARGEST = 1 << 24
"""Bytes of an array that are digested."""
_UFUNCS = (DUFunc, GUFunc)
_HIDDEN: tuple[Any, ...] = (memoryview, mmap.mmap)
_HIDING = ("numba.typed.typedlist", "numba.typed.typeddict", "numba.experimental.jitclass.boxing")
"""Modules of classes whose instances keep their content where Python does not see it."""
_BY_NAME = (globals, locals, vars, eval, exec, __import__, importlib.import_module, open)
_OF_CLASSES = ("__dict__", "__weakref__", "_abc_impl")
"""Attributes that say nothing, or only what was asked of the class."""


def _has_address(value: Any) -> bool:
    """Tell whether a value is named by its address; classes of libraries do well with names."""
    # Not by `isinstance`, which asks the objects: proxies run code then.
    kind = type(value)
    if issubclass(kind, type):
        return bool(value.__flags__ & _STATIC)
    return issubclass(kind, _BY_ADDRESS)


def living() -> dict[int, Any]:
    """Return the dispatchers, functions, modules and classes of this process, by address."""
    return {id(one): one for one in gc.get_objects() if _has_address(one)}


def told(value: Any) -> bytes:
    """Return a value as bytes that a relative of this process can read.

    Parameters
    ----------
    value : object
        Made of data, Numba types, and what `living` returns.

    Raises
    ------
    Exception
        Any, when it cannot be told.
    """
    found = io.BytesIO()
    _Teller(found).dump(value)
    return found.getvalue()


def understood(content: bytes, relatives: Mapping[int, Any]) -> Any:
    """Return the value that `told` was given in another process.

    Parameters
    ----------
    content : bytes
        From a relative.
    relatives : mapping
        From `living`, before others were made here.

    Raises
    ------
    Exception
        Any, when this process does not have what it is about.
    """
    return _Listener(content, relatives).load()


class _Teller(pickle.Pickler):
    def persistent_id(self, value: Any) -> int | None:
        return id(value) if _has_address(value) else None


class _Listener(pickle.Unpickler):
    def __init__(self, content: bytes, relatives: Mapping[int, Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._relatives = relatives

    def persistent_load(self, address: int) -> Any:
        return self._relatives[address]


class KinIdentity(Identity):
    """Digests functions and values for a relative of this process.

    An address may be used anew after its object is gone, in one process and not in the other, and
    its object may change. So kind and content are digested with the address, and the content of all
    that it refers to: code that runs while Numba compiles, such as an overload, may look at any of
    it. What is too much or cannot be read is refused (`Unstorable`).

    Examples
    --------
    >>> limits = [1.0, 2.0]
    >>> def digest():
    ...     identity = KinIdentity()
    ...     identity.value("the limits", limits)
    ...     return identity.digest()
    >>> before = digest()
    >>> limits[0] = 3.0
    >>> digest() == before
    False
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, Any] = {}

    def type(self, type_: Any) -> None:
        """Add a Numba type: by its name, key and attributes where it has no code.

        Raises
        ------
        Unstorable
            As `unknown` does.
        """
        try:
            super().type(type_)
        except Unstorable:
            kind = type(type_)
            self.text("type", f"{kind.__module__}.{kind.__qualname__} {type_}")
            if not self._is_new(type_):
                return
            self._class_of(kind)
            key = type_.value if isinstance(type_, types.Omitted) else type_.key
            if key is not type_:
                self.value(f"the type {type_}", key)
            for name, one in sorted(vars(type_).items()):
                made_later = isinstance(getattr(kind, name, None), functools.cached_property)
                if name != "_code" and not made_later:
                    self.text("has", name)
                    self.value(f"{name} of the type {type_}", one)

    def value(self, path: str, value: Any) -> None:
        """Add a value; what looks at all variables by their names is refused.

        Parameters
        ----------
        path, value
            As the base class takes them.

        Raises
        ------
        Unstorable
            As `unknown` does.
        """
        # Proxies are asked for their class by `isinstance`, and may run any code then.
        if type(value) in weakref.ProxyTypes or any(value is one for one in _BY_NAME):
            raise Unstorable(f"{path} may look at anything")
        super().value(path, value)
        if value is os.getenv:
            super().value(path, os.environ)

    def unknown(self, path: str, value: Any, reason: str) -> None:
        """Add the address and all that can be read of the content.

        Parameters
        ----------
        path, value, reason
            As the base class takes them.

        Raises
        ------
        Unstorable
            When its content is hidden or too large.
        """
        kind = type(value)
        self.text("object", f"{kind.__module__}.{kind.__qualname__} {id(value):x}")
        self._class_of(kind)
        if issubclass(kind, type):
            self._class_of(value)
        elif self._is_new(value):
            self._met[id(value)] = value
            self._inner(path, value, kind)

    def _is_new(self, value: Any) -> bool:
        """Tell whether something is met for the first time; its content is added once."""
        if id(value) in self._seen:
            return False
        if len(self._seen) >= _MOST:
            raise Unstorable(f"it leads to more than {_MOST} objects")
        self._seen[id(value)] = value  # kept, so that its identity stays its own
        return True

    def _inner(self, path: str, value: Any, kind: Any) -> None:
        if value is sys.modules or issubclass(kind, _HIDDEN) or kind.__module__ in _HIDING:
            raise Unstorable(f"{path} is a {kind.__qualname__}, whose content cannot be read")
        if issubclass(kind, python_types.FunctionType):
            self.function(value)
        elif issubclass(kind, python_types.ModuleType):
            # It computes attributes; those that it has are looked at where they are named.
            self.value(path, vars(value).get("__getattr__"))
        elif issubclass(kind, python_types.CodeType):
            self._code(value)
        elif issubclass(kind, np.ndarray):
            self._items(path, value)
        elif issubclass(kind, CFunc):
            self.options(value._compiler.targetoptions, path)
            self.value(path, value._sig)
            self.value(path, value._pyfunc)
        elif issubclass(kind, _UFUNCS):
            # What it compiled for others changes what is chosen for the next.
            kernel = value._dispatcher if issubclass(kind, DUFunc) else value.gufunc_builder
            self.text("loops", repr((value.types, value.signature, value.identity)))
            self.text("open", repr((value._frozen, getattr(value, "is_dynamic", None))))
            self.value(path, kernel.py_func)
            self.options(kernel.targetoptions, path)
        else:
            self._referents(path, value, kind)

    def _items(self, path: str, value: Any) -> None:
        place = value.__array_interface__["data"]
        self.text("array", repr((place, repr(value.dtype), value.shape, value.strides)))
        if value.nbytes > _LARGEST:
            raise Unstorable(f"{path} is an array of {value.nbytes} bytes")
        plain = np.asarray(value)
        if value.dtype.hasobject:
            for one in plain.ravel().tolist():
                self.value(path, one)
        else:
            self.text("content", hashlib.sha256(plain.tobytes()).hexdigest())

    def _referents(self, path: str, value: Any, kind: Any) -> None:
        """Add all that an object refers to; none of its own code runs."""
        if issubclass(kind, bytearray | array.array):
            self.text("content", hashlib.sha256(value).hexdigest())
        elif issubclass(kind, weakref.ref):
            self.value(path, weakref.ref.__call__(value))
        for one in kind.__mro__:
            for name, slot in vars(one).items():
                if isinstance(slot, python_types.MemberDescriptorType):
                    try:
                        self.value(f"{path}.{name}", slot.__get__(value))
                    except AttributeError:
                        self.text("empty", name)
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            own = {}
        found = gc.get_referents(value)
        self.text("length", f"{len(own)} {len(found)}")
        for name, one in own.items():
            self.text("has", str(name))
            self.value(f"{path}.{name}", one)
        for one in found:
            if one is not kind and one is not own:
                self.value(path, one)

    def _class_of(self, kind: Any) -> None:
        """Meet a class and its bases, and add what they have unless it is versioned."""
        for one in kind.__mro__:
            self._met[id(one)] = one
            if is_trusted_module(str(one.__module__)) or not self._is_new(one):
                continue
            self.text("class", f"{one.__module__}.{one.__qualname__} {id(one):x}")
            for name, part in sorted(vars(one).items()):
                if name not in _OF_CLASSES:
                    self.text("has", name)
                    self.value(f"{one.__qualname__}.{name}", part)

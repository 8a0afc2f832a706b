"""What a function is, as a digest that means the same in processes forked from one another.

Processes of one family have the same objects at the same addresses, as long as both keep them. So
what :mod:`alloccheck.compile.identity` cannot tell from its content is told here by its address,
its kind, and as much of its content as can be read.
"""

from __future__ import annotations

import gc
import io
import pickle
import types as python_types
from collections.abc import Mapping
from typing import Any

import numpy as np

from alloccheck.compile.identity import Identity
from alloccheck.errors import Unstorable

# isort: split
from numba.core import types
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

_BY_ADDRESS = (Dispatcher, CFunc, python_types.FunctionType, python_types.ModuleType, type)
_STATIC = 1 << 9
"""Not set in the flags of classes that are part of a library (``Py_TPFLAGS_HEAPTYPE``)."""


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

    An address may be used anew after its object is gone, in one process and not in the other. Then
    kind and content have to tell: items of containers, attributes of objects and methods of
    classes are digested with the address.

    Examples
    --------
    >>> limits = [1.0, 2.0]
    >>> def clip(x):
    ...     return limits
    >>> def digest():
    ...     identity = KinIdentity()
    ...     identity.function(clip)
    ...     return identity.digest()
    >>> clip.__globals__["limits"] = limits
    >>> before = digest()
    >>> limits[0] = 3.0
    >>> digest() == before
    False
    """

    def __init__(self) -> None:
        super().__init__()
        self._inside: set[int] = set()

    def type(self, type_: Any) -> None:
        """Add a Numba type: by its name and key where it has no code."""
        try:
            super().type(type_)
        except Unstorable:
            self.text("type", f"{type(type_).__module__}.{type(type_).__qualname__} {type_}")
            key = type_.value if isinstance(type_, types.Omitted) else type_.key
            if key is not type_:
                self.value(f"the type {type_}", key)

    def unknown(self, path: str, value: Any, reason: str) -> None:
        """Add the address and what can be read of the content; nothing is refused.

        Parameters
        ----------
        path, value, reason
            As the base class takes them.
        """
        kind = type(value)
        self.text("object", f"{kind.__module__}.{kind.__qualname__} {id(value):x}")
        if id(value) in self._inside:
            return
        self._met[id(value)] = value
        self._inside.add(id(value))
        try:
            self._inner(path, value)
        finally:
            self._inside.discard(id(value))

    def _inner(self, path: str, value: Any) -> None:
        if isinstance(value, list | tuple):
            self.text("length", str(len(value)))
            for one in value:
                self.value(path, one)
        elif isinstance(value, dict):
            self.text("length", str(len(value)))
            for key, one in value.items():
                self.value(path, key)
                self.value(path, one)
        elif isinstance(value, np.ndarray):
            place = value.__array_interface__["data"]
            self.text("array", repr((place, value.dtype.descr, value.shape, value.strides)))
        elif isinstance(value, python_types.FunctionType):
            self.function(value)
        elif isinstance(value, type):
            self.text("class", f"{value.__module__}.{value.__qualname__}")
            for name, one in sorted(vars(value).items()):
                if isinstance(one, python_types.FunctionType):
                    self.text("method", name)
                    self.function(one)
        else:
            self._attributes(path, value)

    def _attributes(self, path: str, value: Any) -> None:
        own = getattr(value, "__dict__", None)
        for name, one in sorted(own.items()) if isinstance(own, dict) else ():
            self.text("has", str(name))
            if isinstance(
                one, bool | int | float | complex | str | bytes | tuple | list | type(None)
            ):
                self.value(f"{path}.{name}", one)
            else:
                self.text("object", f"{type(one).__qualname__} {id(one):x}")

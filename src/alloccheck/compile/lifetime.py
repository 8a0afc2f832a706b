"""How long an artifact's machine code lives: as long as anything may reach it, or for good.

Code is let go when nothing refers to it any more, but only if its addresses cannot be anywhere
else: in values that it made, in the code of jitted callers, in C. Knows engines and the text of
modules; nothing of what code does.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from typing import Any

from alloccheck.program.llvm_escapes import escaping_address

_UNRETAINED = frozenset(
    [
        "PyArg_ParseTuple",
        "PyArg_ParseTupleAndKeywords",
        "PyArg_UnpackTuple",
        "PyBytes_FromStringAndSize",
        "PyDict_SetItemString",
        "PyErr_Format",
        "PyErr_SetString",
        "PyImport_ImportModule",
        "PyImport_ImportModuleNoBlock",
        "PyObject_GetAttrString",
        "PyObject_HasAttrString",
        "PyObject_SetAttrString",
        "PySys_FormatStderr",
        "PySys_FormatStdout",
        "PyUnicode_FromKindAndData",
        "PyUnicode_FromString",
        "PyUnicode_FromStringAndSize",
        "Py_DecRef",
        "Py_FatalError",
        "Py_IncRef",
        "NRT_adapt_ndarray_from_python",
        "NRT_adapt_ndarray_to_python_acqref",
        "numba_do_raise",
        "numba_unpickle",
        "memcmp",
        "printf",
        "puts",
        "strlen",
    ]
)
"""External functions that use what they are given while they run, copy it, or count references.

Of CPython: its C API reference; of Numba: ``_helperlib.c``, ``core/runtime/_nrt_python.c``.
"""

_FOR_WRAPPERS = re.compile(
    r"(\.const\.pickle(buf|data)\.[0-9a-f]{40}(\.sha1)?|__excinfo_unwrap_args[0-9a-f]{40})(\.\d+)*"
)
"""Pickled exceptions and constants, and what unpacks an exception's arguments. Their addresses go
to Numba's wrappers alone, which use them at once (``core/pythonapi.py serialize_object``,
``core/callconv.py``)."""

_BY_ADDRESS = re.compile(r"numba\.dynamic\.globals\.")
"""Variables that hold the address of a captured object or array, which the artifact keeps alive."""

_loaded: dict[int, Callable[[], None]] = {}
"""How to let each code go that is loaded, by the key that its tokens have."""
_kept: dict[int, Any] = {}
"""What lives as long as the process, by the same keys."""


class _Token(int):
    """Lets code go when the last reference to it is gone.

    The garbage collector must not track it (`_untracked`). Otherwise it could be finalised before
    an object that goes with it, whose own ``__del__`` calls the code.
    """

    __slots__ = ()

    def __del__(
        self,
        _loaded: dict[int, Callable[[], None]] = _loaded,
        _at_end: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if not _at_end():
            release = _loaded.pop(int(self), None)
            if release is not None:
                release()


def _untracked(token: _Token) -> _Token:
    """Hide a token from the garbage collector, which tracks instances of every Python class.

    It refers to nothing, so no cycle can need to be found through it.
    """
    ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(token))
    return token


class Lifetime:
    """The hold on an artifact's loaded code; whoever may run the code refers to it.

    Parameters
    ----------
    engine : engine
        Owns the code; its `release` frees it.
    needed : tuple
        Objects whose addresses are in the code.
    reason : str or None
        Why the code can never go, if there is a reason already.

    Notes
    -----
    The code goes when the last `Lifetime`, entry point and library of it is gone and none of them
    ever was told to `keep` it. A reason that is known from the start is one of running it, and is
    taken back when it `never_ran`.
    """

    __slots__ = ("_once_it_runs", "held", "reason")

    def __init__(self, engine: Any, needed: tuple[Any, ...], reason: str | None) -> None:
        key = id(engine)
        _loaded[key] = engine.release
        self.held: tuple[Any, ...] = (_untracked(_Token(key)), needed)
        """What to refer to as long as the code may run."""
        self.reason: str | None = None
        """Why the code lives as long as the process; None when it may go."""
        if reason is not None:
            self.keep(reason)
        self._once_it_runs = reason is not None

    def keep(self, reason: str) -> None:
        """Let the code live as long as the process.

        Parameters
        ----------
        reason : str
            Why: a clause.
        """
        self._once_it_runs = False
        if self.reason is None:
            self.reason = reason
            _kept[int(self.held[0])] = self.held

    def never_ran(self) -> None:
        """Say that nobody has run the code or was given a way to: what it would do it did not."""
        if self._once_it_runs:
            self._once_it_runs = False
            self.reason = None
            _kept.pop(int(self.held[0]), None)


def loaded_artifacts() -> int:
    """Return how many artifacts' code is in memory now.

    Examples
    --------
    >>> loaded_artifacts() >= 0
    True
    """
    return len(_loaded)


def reason_to_keep(listing: str) -> str | None:
    """Return why code must live as long as the process even if nothing refers to it, or None.

    Parameters
    ----------
    listing : str
        The text of its module.

    Returns
    -------
    str or None
        How an address inside gets out: to a destructor or method table in a value that was made,
        as data of a constant that a value refers to, or to a function that may keep it.
    """
    return escaping_address(
        listing, unretained=_UNRETAINED, passing=_FOR_WRAPPERS, lent=_BY_ADDRESS
    )

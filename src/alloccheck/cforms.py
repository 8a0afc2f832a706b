"""How Numba's scalar types are written in C and in ctypes.

Only types whose representation is the same on both sides of a call have a form: arrays, tuples and
strings are structures of Numba's own. Knows types; nothing of artifacts or proofs.
"""

from __future__ import annotations

import ctypes
from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.errors import UsageError

# isort: split
from numba.core import types
from numba.core.typing import ctypes_utils


def c_type(type_: Any) -> str:
    """Return how a type is written in C.

    Parameters
    ----------
    type_ : numba type
        A number, boolean, pointer, or nothing.

    Raises
    ------
    UsageError
        When the type has no C form.

    Examples
    --------
    >>> from numba import float64
    >>> c_type(types.CPointer(types.float32)), c_type(types.intp), c_type(float64)
    ('float *', 'int64_t', 'double')
    """
    if type_ in (types.void, types.none):
        return "void"
    if isinstance(type_, types.Boolean):
        return "_Bool"
    if isinstance(type_, types.Integer):
        return f"{'' if type_.signed else 'u'}int{type_.bitwidth}_t"
    if type_ in (types.float32, types.float64):
        return "float" if type_ == types.float32 else "double"
    if isinstance(type_, types.CPointer):
        try:
            inner = c_type(type_.dtype)
        except UsageError:
            # What lies there is the function's own business; the pointer is a pointer.
            inner = "void"
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    if isinstance(type_, types.RawPointer):
        return "void *"
    raise UsageError(
        f"{type_} has no C form: it is passed in a way of Numba's own. Take pointers "
        "(numba.types.CPointer) and make arrays of them inside with numba.carray"
    )


def declaration(signature: Any, *, status: bool = False) -> str:
    """Return the C type of a pointer to an entry.

    Parameters
    ----------
    signature : numba signature
        With its return type.
    status : bool
        The entry that returns a status, instead of the one that returns the value.

    Raises
    ------
    UsageError
        When a type has no C form.

    Examples
    --------
    >>> from numba import float64, int32
    >>> declaration(float64(int32, float64))
    'double (*)(int32_t, double)'
    >>> declaration(float64(int32, float64), status=True)
    'int32_t (*)(double *, int32_t, double)'
    """
    arguments = [c_type(one) for one in signature.args]
    if status:
        place = c_type(types.CPointer(signature.return_type))
        return f"int32_t (*)({', '.join([place, *arguments])})"
    return f"{c_type(signature.return_type)} (*)({', '.join(arguments) or 'void'})"


def prototype(signature: Any, *, status: bool = False) -> Any:
    """Return the ctypes prototype of an entry.

    Parameters
    ----------
    signature, status
        As `declaration` takes them.

    Raises
    ------
    UsageError
        When a type has no C form.
    """
    result, arguments = _ctype(signature.return_type), map(_ctype, signature.args)
    if not status:
        return ctypes.CFUNCTYPE(result, *arguments)
    place = ctypes.c_void_p if result is None else ctypes.POINTER(result)
    return ctypes.CFUNCTYPE(ctypes.c_int32, place, *arguments)


def _ctype(type_: Any) -> Any:
    c_type(type_)
    if isinstance(type_, types.Boolean):
        return ctypes.c_bool
    try:
        return ctypes_utils.to_ctypes(type_)
    except TypeError:
        return ctypes.c_void_p

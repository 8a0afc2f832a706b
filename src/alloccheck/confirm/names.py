"""Numba types as expressions that a signature string may hold, for another process to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types


def signature_text(argument_types: Sequence[Any], return_type: Any = None) -> str | None:
    """Return a signature string, or None when a type in it has no such name.

    Parameters
    ----------
    argument_types : sequence of numba types
        Omitted ones are left out: they are found again by the function's defaults.
    return_type : numba type or None
        When it was declared.

    Examples
    --------
    >>> signature_text([types.float64[:, ::1], types.UniTuple(types.int64, 2)])
    "(Array(float64, 2, 'C', False, aligned=True), Tuple((int64, int64,)),)"
    >>> signature_text([types.pyobject]) is None
    True
    """
    try:
        arguments = ", ".join(
            _text(one) for one in argument_types if not isinstance(one, types.Omitted)
        )
        if return_type is None:
            return f"({arguments},)" if arguments else "()"
        return f"{_text(return_type)}({arguments})"
    except _NameError:
        return None


def caller_types(argument_types: Sequence[Any]) -> list[Any]:
    """Return the types of what a caller writes: omitted ones out, starred ones one by one.

    Parameters
    ----------
    argument_types : sequence of numba types
        As they are compiled.

    Examples
    --------
    >>> caller_types([types.int64, types.Omitted(1), types.StarArgTuple((types.float64,))])
    [int64, float64]
    """
    found: list[Any] = []
    for one in argument_types:
        if isinstance(one, types.StarArgTuple | types.StarArgUniTuple):
            found += list(one)
        elif not isinstance(one, types.Omitted):
            found.append(one)
    return found


_NAMED = ("voidptr", "slice2_type", "slice3_type", "npy_rng")
"""Types that Numba's own names stand for."""


class _NameError(Exception):
    """A type has no name."""


def _text(kind: Any) -> str:
    if isinstance(kind, types.Literal):
        if isinstance(kind.literal_value, bool | int | str):
            return f"literal({kind.literal_value!r})"
        raise _NameError
    if isinstance(kind, types.StarArgTuple | types.StarArgUniTuple):
        raise _NameError
    if isinstance(kind, types.Boolean | types.Integer | types.Float | types.Complex):
        return str(kind)
    if isinstance(kind, types.NoneType):
        return "none"
    if isinstance(kind, types.UnicodeType):
        return "unicode_type"
    if type(kind) is types.Array:
        dtype = _text(kind.dtype)
        return (
            f"Array({dtype}, {kind.ndim}, {kind.layout!r}, {not kind.mutable}, "
            f"aligned={kind.aligned})"
        )
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        return f"Tuple(({''.join(f'{_text(one)}, ' for one in kind).strip()}))"
    if isinstance(kind, types.Optional):
        return f"Optional({_text(kind.type)})"
    if isinstance(kind, types.ListType):
        return f"ListType({_text(kind.dtype)})"
    if isinstance(kind, types.DictType):
        return f"DictType({_text(kind.key_type)}, {_text(kind.value_type)})"
    if isinstance(kind, types.List) and kind.reflected:
        return f"List({_text(kind.dtype)}, True)"
    if isinstance(kind, types.Set) and kind.reflected:
        return f"Set({_text(kind.dtype)}, True)"
    if isinstance(kind, types.CPointer):
        return f"CPointer({_text(kind.dtype)})"
    for name in _NAMED:
        if kind == getattr(types, name):
            return name
    raise _NameError

"""Numba types as plain data, and back: those whose meaning is the same in every process.

What is not listed here has no code: a type of an extension, one that holds an object of this
process (a dispatcher, a jitclass), or one whose code in wrappers would need such an object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.errors import Unstorable

# isort: split
from numba.core import types

_SCALARS = {
    str(one): one
    for one in (
        *types.signed_domain,
        *types.unsigned_domain,
        *types.real_domain,
        *types.complex_domain,
        types.boolean,
        types.none,
        types.unicode_type,
        types.voidptr,
    )
}
_LITERALS = (types.IntegerLiteral, types.StringLiteral, types.BooleanLiteral)


def encode(type_: Any) -> Any:
    """Return a type as JSON data; equal data mean equal types.

    Parameters
    ----------
    type_ : numba type
        An argument, return or value type.

    Raises
    ------
    Unstorable
        When the type has no meaning outside this process, or none that is known here.

    Examples
    --------
    >>> from numba import float64
    >>> encode(float64[::1])
    ['array', 'float64', 1, 'C', False, True]
    >>> decode(encode(float64[::1])) == float64[::1]
    True
    """
    if _SCALARS.get(str(type_)) is type_:
        return str(type_)
    made = _ENCODERS.get(type(type_))
    if made is None:
        raise Unstorable(f"the type {type_} has no form that means the same in another process")
    return made(type_)


def decode(data: Any) -> Any:
    """Return the type of `encode`'s data.

    Raises
    ------
    Unstorable
        When the data is not a code, or is that of a type that is never read back.
    """
    if isinstance(data, str) and data in _SCALARS:
        return _SCALARS[data]
    if isinstance(data, list) and data and isinstance(data[0], str) and data[0] in _DECODERS:
        try:
            return _DECODERS[data[0]](*data[1:])
        except (TypeError, ValueError, AttributeError, AssertionError) as error:
            raise Unstorable(f"no type has the code {str(data)[:60]}: {error}") from None
    raise Unstorable(f"no type has the code {str(data)[:60]}")


def _literal(kind: str, value: Any) -> Any:
    if type(value).__name__ != kind or type(value) not in (bool, int, str):
        raise ValueError("the value is of another kind")
    return types.literal(value)


def _record(one: Any) -> Any:
    fields = [
        [name, encode(field.type), field.offset, field.alignment, repr(field.title)]
        for name, field in one.fields.items()
    ]
    return ["record", fields, one.size, one.aligned]


def _omitted(one: Any) -> Any:
    value = one.value
    if type(value) not in (bool, int, float, complex, str, type(None)):
        raise Unstorable(f"the default value {value!r} has no form that can be compared")
    return ["omitted", type(value).__name__, value.hex() if type(value) is float else repr(value)]


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    types.Array: lambda t: ["array", encode(t.dtype), t.ndim, t.layout, not t.mutable, t.aligned],
    types.NestedArray: lambda t: ["nested", encode(t.dtype), list(t.shape)],
    types.UniTuple: lambda t: ["unituple", encode(t.dtype), t.count],
    types.Tuple: lambda t: ["tuple", [encode(one) for one in t.types]],
    types.StarArgUniTuple: lambda t: ["star", [encode(one) for one in t.types]],
    types.StarArgTuple: lambda t: ["star", [encode(one) for one in t.types]],
    types.Optional: lambda t: ["optional", encode(t.type)],
    types.CPointer: lambda t: ["pointer", encode(t.dtype)],
    types.NPDatetime: lambda t: ["datetime", t.unit],
    types.NPTimedelta: lambda t: ["timedelta", t.unit],
    types.CharSeq: lambda t: ["bytes", t.count],
    types.UnicodeCharSeq: lambda t: ["text", t.count],
    types.Record: _record,
    types.Omitted: _omitted,
    **{
        kind: lambda t: ["literal", type(t.literal_value).__name__, t.literal_value]
        for kind in _LITERALS
    },
}

_DECODERS: dict[str, Callable[..., Any]] = {
    "array": lambda dtype, ndim, layout, readonly, aligned: types.Array(
        decode(dtype), ndim, layout, readonly=readonly, aligned=aligned
    ),
    "unituple": lambda dtype, count: types.UniTuple(decode(dtype), count),
    "tuple": lambda parts: types.Tuple([decode(one) for one in parts]),
    "optional": lambda inner: types.Optional(decode(inner)),
    "pointer": lambda dtype: types.CPointer(decode(dtype)),
    "literal": lambda kind, value: _literal(kind, value),
    "datetime": types.NPDatetime,
    "timedelta": types.NPTimedelta,
}
"""Only what a function returns is read back; argument types come from the question."""

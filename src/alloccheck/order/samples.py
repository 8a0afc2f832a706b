"""Sample arguments for a signature, and values as text and data that processes can compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import typeof, types
from numba.np.numpy_support import as_dtype

COUNT = 4
"""How many samples are generated for a signature."""

_INTS = ((3, 2, 1), (0, 1, 2), (1, 0, 3), (5, 3, 2))
_FLOATS = ((2.5, 0.5, 1.25), (1.0, 0.0, 2.0), (1e20, 1.0, -1e20), (-0.75, 3.0, 0.1))
_LENGTHS = (5, 1, 4, 8)


def generated(argument_types: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return sample arguments of the given types, the same in every process.

    Parameters
    ----------
    argument_types : sequence of numba types

    Returns
    -------
    list of tuple
        Empty when one of the types is none that samples can be made of.

    Examples
    --------
    >>> generated([types.int64, types.float64])
    [(3, 0.5), (0, 0.0), (1, 1.0), (5, 3.0)]
    >>> generated([types.unicode_type])
    []
    """
    found = []
    for index in range(COUNT):
        values = tuple(_value(one, index, place) for place, one in enumerate(argument_types))
        if any(
            value is None or typeof(value) != one
            for value, one in zip(values, argument_types, strict=True)
        ):
            return []
        found.append(values)
    return found


def _value(kind: Any, index: int, place: int) -> Any:
    """Return a value of a type, or None for a type that is not known here."""
    integer, number = _INTS[index][place % 3], _FLOATS[index][place % 3]
    if isinstance(kind, types.Boolean):
        return bool((index + place) % 2)
    if kind == types.int64:
        return integer
    if kind == types.float64:
        return number
    if kind == types.complex128:
        return complex(number, integer)
    if isinstance(kind, types.Integer | types.Float | types.Complex):
        plain = integer if isinstance(kind, types.Integer) else number
        return as_dtype(kind).type(plain if abs(plain) < 1e18 else 1e18)
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        return tuple(_value(one, index, place + i) for i, one in enumerate(kind))
    if isinstance(kind, types.Array) and isinstance(kind.dtype, types.Number | types.Boolean):
        return _array(kind, index, place)
    return None


def _array(kind: Any, index: int, place: int) -> Any:
    length = _LENGTHS[index]
    shape = (length,) * kind.ndim
    count = length**kind.ndim
    flat = (np.arange(count) * (place + 1) % 7 + 0.5 * index).astype(as_dtype(kind.dtype))
    found = flat.reshape(shape, order="F" if kind.layout == "F" else "C")
    if kind.layout == "A":
        wide = np.zeros(tuple(2 * size for size in shape), dtype=found.dtype)
        part = wide[(slice(None, None, 2),) * kind.ndim]
        part[...] = found
        found = part
    if not kind.mutable:
        found.flags.writeable = False
    return found


def shown(value: Any) -> str:
    """Return a value as text that depends on the value and its type alone.

    Examples
    --------
    >>> shown(np.float32(0.5)), shown(np.arange(2.0)), shown(float("nan"))
    ('float32(0.5)', 'float64[0.0, 1.0]', 'nan')
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.tolist()}"
    if isinstance(value, np.generic):
        return f"{value.dtype}({value.item()!r})"
    if isinstance(value, bool | int | float | complex | str | bytes | type(None)):
        return repr(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return f"<{type(value).__name__}>"


def plain(value: Any) -> Any:
    """Return a value as JSON data in which numbers have no type, to compare across languages.

    Examples
    --------
    >>> plain(1) == plain(1.0) == plain(True)
    True
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, bool | int | float | complex):
        try:
            number = complex(value)
        except OverflowError:
            return {"number": [str(value), "0.0"]}
        return {"number": [repr(number.real), repr(number.imag)]}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return {"object": type(value).__name__}

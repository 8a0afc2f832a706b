"""Where the fields of LLVM's structures lie, for the types that Numba stores as a whole.

The layout is that of the data layouts of x86-64 and aarch64: natural alignment. Packed structures,
vectors and odd integers are not known here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_TOKEN = re.compile(r"\s*(\{|\}|\[|\]|,|[a-z]+\d*|\d+)")
_SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}
_MOST = 256
"""Fields of one structure that are looked at."""


class Leaf(NamedTuple):
    """A field that is no structure.

    Parameters
    ----------
    path : tuple of int
        Its indices, from the outside.
    offset, size : int
        In bytes.
    pointer : bool
        Whether it is a pointer.
    """

    path: tuple[int, ...]
    offset: int
    size: int
    pointer: bool


class _Unknown(Exception):
    pass


@lru_cache(maxsize=512)
def leaves(text: str) -> tuple[Leaf, ...] | None:
    """Return the fields of a structure or array type, outer ones first; None when not known.

    Parameters
    ----------
    text : str
        The type, as LLVM writes it.

    Examples
    --------
    >>> [(one.path, one.offset) for one in leaves("{ i32, { ptr, [2 x double] } }")]
    [((0,), 0), ((1, 0), 8), ((1, 1, 0), 16), ((1, 1, 1), 24)]
    >>> leaves("<{ i8, ptr }>") is None
    True
    """
    if text[:1] not in ("{", "["):
        return None
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        tokens.append(found[1])
        position = found.end()
    try:
        fields, _, _, rest = _type(tokens, 0)
    except (_Unknown, IndexError, ValueError):
        return None
    return tuple(fields) if rest == len(tokens) else None


def _type(tokens: list[str], at: int) -> tuple[list[Leaf], int, int, int]:
    """Return the leaves, size, alignment, and the place behind a type."""
    if tokens[at] == "{":
        return _structure(tokens, at + 1)
    if tokens[at] == "[":
        return _array(tokens, at + 1)
    size = _SIZES.get(tokens[at])
    if size is None:
        raise _Unknown
    return [Leaf((), 0, size, tokens[at] == "ptr")], size, size, at + 1


def _structure(tokens: list[str], at: int) -> tuple[list[Leaf], int, int, int]:
    found: list[Leaf] = []
    end, widest, index = 0, 1, 0
    while tokens[at] != "}":
        fields, size, alignment, at = _type(tokens, at)
        begin = -(-end // alignment) * alignment
        found += [
            one._replace(path=(index, *one.path), offset=begin + one.offset) for one in fields
        ]
        if len(found) > _MOST:
            raise _Unknown
        end, widest, index = begin + size, max(widest, alignment), index + 1
        if tokens[at] == ",":
            at += 1
    return found, -(-end // widest) * widest, widest, at + 1


def _array(tokens: list[str], at: int) -> tuple[list[Leaf], int, int, int]:
    count = int(tokens[at])
    if tokens[at + 1] != "x" or count > _MOST:
        raise _Unknown
    fields, size, alignment, at = _type(tokens, at + 2)
    if tokens[at] != "]" or count * len(fields) > _MOST:
        raise _Unknown
    found = [
        one._replace(path=(k, *one.path), offset=k * size + one.offset)
        for k in range(count)
        for one in fields
    ]
    return found, count * size, alignment, at + 1

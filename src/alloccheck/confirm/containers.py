"""Typed containers in the measuring process: their types as text, and how they are filled there."""

from __future__ import annotations

import json
from typing import Any

from numba import types

from alloccheck.compile import typecodes


def code_of(kind: Any) -> str:
    """Return a type as text that another process understands.

    Parameters
    ----------
    kind : numba type
        A typed list or dictionary of others, or one that `typecodes.encode` takes.

    Raises
    ------
    Unstorable
        When there is no text for it.

    Examples
    --------
    >>> kind = types.ListType(types.Tuple((types.int64, types.float64[:])))
    >>> kind_of(code_of(kind)) == kind
    True
    """
    return json.dumps(_encode(kind))


def kind_of(code: str) -> Any:
    """Return the type of `code_of`'s text."""
    return _decode(json.loads(code))


def _encode(kind: Any) -> Any:
    if isinstance(kind, types.ListType):
        return {"list": _encode(kind.dtype)}
    if isinstance(kind, types.DictType):
        return {"dict": [_encode(kind.key_type), _encode(kind.value_type)]}
    return typecodes.encode(kind)


def _decode(data: Any) -> Any:
    if isinstance(data, dict) and "list" in data:
        return types.ListType(_decode(data["list"]))
    if isinstance(data, dict) and "dict" in data:
        return types.DictType(*map(_decode, data["dict"]))
    return typecodes.decode(data)


def typed_list(code: str, items: list[Any]) -> Any:
    """Return a typed list.

    Parameters
    ----------
    code : str
        Its type, from `code_of`.
    items : list
        What it holds.
    """
    from numba.typed import List

    made = List.empty_list(kind_of(code).dtype)
    for one in items:
        made.append(one)
    return made


def typed_dict(code: str, keys: list[Any], values: list[Any]) -> Any:
    """Return a typed dictionary.

    Parameters
    ----------
    code : str
        Its type, from `code_of`.
    keys, values : list
        What it holds.
    """
    from numba.typed import Dict

    kind = kind_of(code)
    made = Dict.empty(kind.key_type, kind.value_type)
    for key, value in zip(keys, values, strict=True):
        made[key] = value
    return made


def random_generator(seed: int) -> Any:
    """Return NumPy's generator of random numbers.

    Parameters
    ----------
    seed : int
    """
    import numpy as np

    return np.random.default_rng(seed)

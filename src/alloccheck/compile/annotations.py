"""What Numba's inference says about a user's line: the types of the values made there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)

# isort: split
from numba.core import ir, types

_MAKING = frozenset(
    {
        "call",
        "binop",
        "inplace_binop",
        "unary",
        "getitem",
        "static_getitem",
        "build_list",
        "build_set",
        "build_map",
        "build_tuple",
        "arrayexpr",
        "exhaust_iter",
    }
)
"""Kinds of Numba IR expressions that can make a new value."""

_ON_HEAP = (
    types.Array,
    types.List,
    types.ListType,
    types.Set,
    types.DictType,
    types.UnicodeType,
    types.Bytes,
    types.ClassInstanceType,
    types.StructRef,
    types.Generator,
)


def heap_types_by_line(annotations: Iterable[Any]) -> Mapping[tuple[str, int], str]:
    """Return the heap type that each source line makes last, as Numba writes it.

    Parameters
    ----------
    annotations : iterable of TypeAnnotation
        Of all functions of a compile.

    Returns
    -------
    mapping from (file, line) to str
        Files by their absolute paths; lines that make no heap value are absent.
    """
    found: dict[tuple[str, int], str] = {}
    for annotation in annotations:
        typemap = annotation.typemap
        for _, block in sorted(annotation.blocks.items()):
            for statement in block.body:
                if not isinstance(statement, ir.Assign):
                    continue
                value = statement.value
                if not (isinstance(value, ir.Expr) and value.op in _MAKING):
                    continue
                made = typemap.get(statement.target.name)
                if isinstance(made, _ON_HEAP):
                    file = os.path.abspath(statement.loc.filename)  # noqa: PTH100
                    found[(file, statement.loc.line)] = str(made)
    return found

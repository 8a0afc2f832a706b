"""The names of the functions that count references and of those that make counted objects.

Knows names alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MEMORY_WITHOUT_DESTRUCTOR = frozenset(
    {
        "NRT_MemInfo_alloc",
        "NRT_MemInfo_alloc_aligned",
        "NRT_MemInfo_alloc_safe",
        "NRT_MemInfo_alloc_safe_aligned",
        "NRT_MemInfo_new_varsize",
    }
)
MEMORY_WITH_DESTRUCTOR = MappingProxyType(
    {
        "NRT_MemInfo_alloc_dtor": 1,
        "NRT_MemInfo_alloc_dtor_safe": 1,
        "NRT_MemInfo_new_varsize_dtor": 1,
        "NRT_MemInfo_new": 2,
    }
)
"""Which argument is the destructor."""


@dataclass(frozen=True, slots=True)
class RefcountNames:
    """The functions that count references; each takes the object as its only argument.

    Parameters
    ----------
    incref, decref : str
        Symbols; copies that linking renamed (``decref.5``) are meant too.
    held : frozenset of str
        Functions, apart from the entry, whose pointer arguments their caller holds.
    plain : frozenset of str
        Functions that return a new object, which has one reference and no destructor.
    destructible : mapping of str to int
        Functions that return a new object, which has one reference; the destructor is the
        argument of this index.
    returned : int
        The code with which a function says that it stored a value through its parameters.
    """

    incref: str = "NRT_incref"
    decref: str = "NRT_decref"
    held: frozenset[str] = frozenset()
    plain: frozenset[str] = MEMORY_WITHOUT_DESTRUCTOR
    destructible: Mapping[str, int] = field(default_factory=lambda: MEMORY_WITH_DESTRUCTOR)
    returned: int = 0


def is_copy_of(symbol: str, name: str) -> bool:
    """Return whether a symbol is a name, or a copy of it that linking renamed.

    Examples
    --------
    >>> is_copy_of("NRT_decref.5", "NRT_decref"), is_copy_of("NRT_decref_x", "NRT_decref")
    (True, False)
    """
    if symbol == name:
        return True
    return symbol.startswith(name) and re.fullmatch(r"\.\d+", symbol[len(name) :]) is not None

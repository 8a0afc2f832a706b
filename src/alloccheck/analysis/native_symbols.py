"""The table of runtime symbols that the machine-code analysis knows by name.

Knows `native_symbols.toml`; nothing of code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from alloccheck.effects import Effect, Occasion
from alloccheck.errors import ContractError


@dataclass(frozen=True, slots=True)
class SmallInput:
    """The product of integer arguments below which the effects do not happen."""

    arguments: tuple[int, ...]
    below: int
    reason: str


@dataclass(frozen=True, slots=True)
class KnownSymbol:
    """A symbol at which the walk stops."""

    name: str
    effects: tuple[tuple[Effect, Occasion], ...]
    reason: str
    source: str
    leaves: bool = False
    callbacks: tuple[int, ...] = ()
    small: SmallInput | None = None


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """All known symbols."""

    stops: Mapping[str, KnownSymbol]
    deaths: frozenset[str]
    panic_names: re.Pattern[str]
    """Rust's panic, under the names that it has in a library's own symbols."""
    panic: KnownSymbol
    twice: frozenset[str]
    """Functions to whose caller a jump out may lead back."""
    libraries: tuple[str, ...]
    death_reason: str
    interpreter: str
    interpreter_reason: str
    interpreter_source: str


@lru_cache(maxsize=1)
def symbol_table() -> SymbolTable:
    """Read the table.

    Raises
    ------
    ContractError
        If it is malformed.

    Examples
    --------
    >>> symbol_table().stops["bsearch"].callbacks
    (4,)
    """
    text = files(__package__).joinpath("native_symbols.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    try:
        stops = {name: _known(name, row) for row in data["stop"] for name in row["names"]}
        return SymbolTable(
            stops,
            frozenset(data["death"]["names"]),
            re.compile("|".join(data["panic"]["patterns"])),
            _known("panic", data["panic"]),
            frozenset(data["twice"]["names"]),
            tuple(data["runtime"]["libraries"]),
            data["death"]["reason"],
            data["interpreter"]["marker"],
            data["interpreter"]["reason"],
            data["interpreter"]["source"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ContractError(
            f"native_symbols.toml: expected the documented form: {error}"
        ) from error


def _known(name: str, row: Mapping[str, Any]) -> KnownSymbol:
    occasions = (
        ("effects", Occasion.EVERY_CALL),
        ("first_call", Occasion.FIRST_CALL),
        ("per_thread", Occasion.FIRST_CALL_PER_THREAD),
    )
    effects = tuple(
        (Effect(effect), occasion) for key, occasion in occasions for effect in row.get(key, ())
    )
    small = row.get("small")
    return KnownSymbol(
        name,
        effects,
        row["reason"],
        row["source"],
        bool(row.get("leaves", False)),
        tuple(row.get("callbacks", ())),
        SmallInput(tuple(small["arguments"]), small["below"], small["reason"]) if small else None,
    )

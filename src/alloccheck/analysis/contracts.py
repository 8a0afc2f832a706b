"""What external symbols do, and why we believe it: the tables in `contract_tables/*.toml`.

Reads tables and answers questions about them. Knows nothing of Numba, of programs or of where a
user's own contracts come from: they arrive as text or as a mapping, with the name of their origin.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from alloccheck.effects import Effect, Occasion, Path
from alloccheck.errors import ContractError


@dataclass(frozen=True, slots=True)
class ContractEffect:
    """One effect of an external symbol, on which calls it can happen, and on which path.

    The path is `RAISE` when machine code shows that the call then ends by unwinding; the tables
    know of no such effect.
    """

    effect: Effect
    occasion: Occasion = Occasion.EVERY_CALL
    path: Path = Path.RETURN


@dataclass(frozen=True, slots=True)
class Contract:
    """What one external symbol (or pattern of symbols) may do.

    Parameters
    ----------
    symbol : str
        Exact symbol, or a shell pattern when it holds `*`.
    effects : tuple of ContractEffect
        Empty: the symbol is clean.
    reason : str
        Why we believe it, one sentence that users read.
    source : str
        file:line of the runtime's own code, or a test.
    condition : str
        When the effects happen, if not always.
    calls_back : bool
        May call functions of the program whose address was taken; for a container or memory
        that the program did not make itself, functions of the code that made it.
    callback : str
        What kind of function it calls back, if that is known: ``"destructor"``, ``"kernel"`` or
        ``"method table"``.
    drops : bool
        May drop the last reference to what an element of a container refers to.
    elements : tuple of int
        Arguments that point to an element of the container in its memory form, or that are what
        a function with such arguments returned.
    path : Path
        DIVERGE: never returns (the process dies); such a call is noted, not forbidden.
    statuses : tuple of int or None
        The integers that it can return, where they are a status.
    override : bool
        Replaces contracts of the built-in tables that speak of the same symbols.
    fallback : bool
        Holds only where the symbol's machine code cannot be read to the end; else that decides.
    origin : str
        The table that it was read from.
    """

    symbol: str
    effects: tuple[ContractEffect, ...]
    reason: str
    source: str
    condition: str = ""
    calls_back: bool = False
    callback: str = ""
    drops: bool = False
    elements: tuple[int, ...] = ()
    path: Path = Path.RETURN
    statuses: tuple[int, ...] | None = None
    override: bool = False
    fallback: bool = False
    origin: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether it speaks of more than one symbol."""
        return "*" in self.symbol

    def matches(self, symbol: str) -> bool:
        """Whether it speaks of a symbol.

        Examples
        --------
        >>> Contract("__svml_*", (), "", "").matches("__svml_sin4")
        True
        >>> Contract("sin", (), "", "").matches("sinf")
        False
        """
        return _overlap(self.symbol, symbol)


@dataclass(frozen=True, slots=True)
class Override:
    """A user's contract that stands in for built-in ones; every report lists it.

    Parameters
    ----------
    contract : Contract
        The user's.
    replaced : tuple of Contract
        Built-in contracts that it hides, wholly or for some symbols.
    """

    contract: Contract
    replaced: tuple[Contract, ...]


@dataclass(frozen=True, slots=True)
class ContractTable:
    """All contracts that hold for a check. Make one with :func:`load_contracts`.

    Parameters
    ----------
    entries : tuple of Contract
        The user's and the built-in ones; hidden ones are among them.
    overrides : tuple of Override
        Where a user's contract hides built-in ones.
    """

    entries: tuple[Contract, ...]
    overrides: tuple[Override, ...] = ()
    _exact: tuple[Mapping[str, Contract], ...] = field(init=False, repr=False, compare=False)
    _patterns: tuple[tuple[Contract, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Two layers: what overrides comes before what is merely there.
        layers = (
            [entry for entry in self.entries if entry.override],
            [entry for entry in self.entries if not entry.override],
        )
        exact = tuple(
            MappingProxyType({entry.symbol: entry for entry in layer if not entry.is_pattern})
            for layer in layers
        )
        patterns = tuple(
            tuple(sorted((e for e in layer if e.is_pattern), key=_specificity)) for layer in layers
        )
        object.__setattr__(self, "_exact", exact)
        object.__setattr__(self, "_patterns", patterns)

    def lookup(self, symbol: str) -> Contract | None:
        """Return the contract of a symbol: exact before pattern, the most specific first.

        Parameters
        ----------
        symbol : str
            Name of an external symbol.

        Returns
        -------
        Contract or None
            None when no contract speaks of it: nothing is known, which is never a pass.

        Examples
        --------
        >>> table = load_contracts()
        >>> [e.effect.value for e in table.lookup("NRT_Allocate").effects]
        ['allocate']
        >>> table.lookup("sin").effects
        ()
        >>> table.lookup("my_function") is None
        True
        """
        for exact, patterns in zip(self._exact, self._patterns, strict=True):
            found = exact.get(symbol)
            if found is not None:
                return found
            for entry in patterns:
                if entry.matches(symbol):
                    return entry
        return None


def _specificity(contract: Contract) -> tuple[int, int, str]:
    """Order patterns: more literal characters first, then fewer stars, then by name."""
    stars = contract.symbol.count("*")
    return stars - len(contract.symbol), stars, contract.symbol


def _overlap(one: str, other: str) -> bool:
    """Whether some symbol matches both of two patterns (`*` is any text; all else is itself)."""
    # reachable[j]: the characters of `one` read so far can be matched by the first j of `other`.
    reachable = [True]
    for char in other:
        reachable.append(reachable[-1] and char == "*")
    for left in one:
        row = [reachable[0] and left == "*"]
        for j, right in enumerate(other, 1):
            if "*" in (left, right):
                row.append(reachable[j] or row[j - 1])
            else:
                row.append(reachable[j - 1] and left == right)
        reachable = row
    return reachable[-1]


def load_contracts(extra: Iterable[Contract] = ()) -> ContractTable:
    """Join the built-in tables and a user's contracts.

    Parameters
    ----------
    extra : iterable of Contract
        A user's contracts, from :func:`parse_contracts` or :func:`contracts_from_mapping`.

    Returns
    -------
    ContractTable

    Raises
    ------
    ContractError
        Two of the user's contracts are for the same symbol, one speaks of a symbol that the
        built-in tables have without `override = true`, or a built-in table is malformed.

    Examples
    --------
    >>> mine = contracts_from_mapping(
    ...     {"ring_push": {"effects": [], "reason": "writes a slot", "source": "ring.c:40"}},
    ...     "pyproject.toml")
    >>> load_contracts(mine).lookup("ring_push").reason
    'writes a slot'
    """
    builtin = _builtin()
    users = tuple(extra)
    if not users:
        return builtin
    _check_unique(users)
    overrides = []
    for contract in users:
        replaced = tuple(e for e in builtin.entries if _overlap(contract.symbol, e.symbol))
        if replaced and not contract.override:
            shown = ", ".join(f"`{entry.symbol}`" for entry in replaced[:3])
            more = f" and {len(replaced) - 3} more" if len(replaced) > 3 else ""
            raise ContractError(
                f"{contract.origin}: contract `{contract.symbol}`: the built-in tables already "
                f"speak of {shown}{more} ({replaced[0].origin}: {replaced[0].reason}). Narrow the "
                "symbol, or set `override = true` with a reason that every report will show."
            )
        if replaced:
            overrides.append(Override(contract, replaced))
    return ContractTable(users + builtin.entries, tuple(overrides))


def contract_lookup(extra: Iterable[Contract] = ()) -> Callable[[str], Contract | None]:
    """Return the `lookup` of the joined tables, which are only read as far as they are asked.

    Parameters
    ----------
    extra : iterable of Contract
        As for :func:`load_contracts`; mistakes in them are told at once.

    Returns
    -------
    callable
        From a symbol to what :meth:`ContractTable.lookup` answers.

    Raises
    ------
    ContractError
        As for :func:`load_contracts`.

    Examples
    --------
    >>> contract_lookup()("sin") == load_contracts().lookup("sin")
    True
    """
    users = tuple(extra)
    return load_contracts(users).lookup if users else _builtin_lookup


def _builtin_lookup(symbol: str) -> Contract | None:
    # Parsing all tables takes longer than most checks: only those are parsed whose text has the
    # name, or a pattern that fits it, in quotes. A table that spells a symbol otherwise (with an
    # escape) is refused by a test.
    quoted = f'"{symbol}"'
    for name, text in _texts().items():
        if quoted in text:
            for entry in _entries(name):
                if entry.symbol == symbol:
                    return entry
    fitting = {name for name, pattern in _quoted_patterns() if _overlap(pattern, symbol)}
    entries = (entry for name in fitting for entry in _entries(name) if entry.is_pattern)
    return min((one for one in entries if one.matches(symbol)), key=_specificity, default=None)


@cache
def _quoted_patterns() -> tuple[tuple[str, str], ...]:
    """Return every text in quotes with a star in it, with its table: patterns are among them."""
    return tuple(
        (name, found)
        for name, text in _texts().items()
        for found in re.findall(r'"([^"\n]*\*[^"\n]*)"', text)
    )


@cache
def _texts() -> dict[str, str]:
    folder = files("alloccheck.analysis").joinpath("contract_tables")
    texts = {
        table.name: table.read_text(encoding="utf-8")
        for table in sorted(folder.iterdir(), key=lambda item: item.name)
        if table.name.endswith(".toml")
    }
    if not texts:
        raise ContractError(f"expected contract tables (*.toml) in {folder}, found none: reinstall")
    return texts


@cache
def _entries(name: str) -> tuple[Contract, ...]:
    return parse_contracts(_texts()[name], name)


@cache
def _builtin() -> ContractTable:
    entries = [entry for name in _texts() for entry in _entries(name)]
    _check_unique(entries)
    overriding = [entry for entry in entries if entry.override]
    if overriding:
        raise ContractError(
            f"{overriding[0].origin}: contract `{overriding[0].symbol}`: `override` is for users' "
            "contracts. Remove it."
        )
    return ContractTable(tuple(entries))


def _check_unique(entries: Iterable[Contract]) -> None:
    seen: dict[str, Contract] = {}
    for entry in entries:
        first = seen.setdefault(entry.symbol, entry)
        if first is not entry:
            raise ContractError(
                f"{entry.origin}: contract `{entry.symbol}`: expected one contract per symbol, "
                f"found another in {first.origin}. Remove one of them."
            )


# --- reading a table -------------------------------------------------------------------------

_KEYS = {
    "symbol",
    "symbols",
    "effects",
    "occasion",
    "condition",
    "reason",
    "source",
    "calls_back",
    "callback",
    "drops",
    "elements",
    "path",
    "statuses",
    "override",
    "fallback",
}


def parse_contracts(text: str, origin: str) -> tuple[Contract, ...]:
    """Read a table of contracts.

    Parameters
    ----------
    text : str
        TOML with an array of tables `[[contract]]`.
    origin : str
        What to call the table in messages, such as its file name.

    Returns
    -------
    tuple of Contract
        One for each symbol, in the order of the table.

    Raises
    ------
    ContractError
        The text is no TOML, or an entry is malformed; the message says which, and what to do.

    Examples
    --------
    >>> text = '''
    ... [[contract]]
    ... symbols = ["a", "b"]
    ... effects = ["block"]
    ... reason = "waits for the device"
    ... source = "device.c:12"
    ... '''
    >>> [contract.symbol for contract in parse_contracts(text, "device.toml")]
    ['a', 'b']
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"{origin}: expected TOML: {error}. Correct the file.") from error
    unknown = sorted(set(document) - {"contract"})
    if unknown:
        raise ContractError(
            f"{origin}: expected only `[[contract]]` tables, found `{unknown[0]}`. Remove it."
        )
    tables = document.get("contract", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ContractError(
            f"{origin}: expected an array of tables `[[contract]]`, found something else."
        )
    contracts: list[Contract] = []
    for number, table in enumerate(tables, 1):
        contracts += _entry(table, origin, f"contract number {number}")
    _check_unique(contracts)
    return tuple(contracts)


def contracts_from_mapping(mapping: Mapping[str, Any], origin: str) -> tuple[Contract, ...]:
    """Read contracts from a mapping of symbols to entries, as `pyproject.toml` holds them.

    Parameters
    ----------
    mapping : mapping of str to mapping
        Symbol or pattern to its entry: what `[tool.alloccheck.contracts]` holds.
    origin : str
        What to call it in messages, such as ``"pyproject.toml"``.

    Returns
    -------
    tuple of Contract

    Raises
    ------
    ContractError
        An entry is malformed.

    Examples
    --------
    >>> entry = {"effects": [], "reason": "reads a register", "source": "board.h:7"}
    >>> contracts_from_mapping({"read_adc": entry}, "pyproject.toml")[0].symbol
    'read_adc'
    """
    contracts: list[Contract] = []
    for symbol, entry in mapping.items():
        if not isinstance(entry, Mapping):
            raise ContractError(
                f"{origin}: contract `{symbol}`: expected a table with `effects`, `reason` and "
                f"`source`, found {entry!r}."
            )
        repeated = sorted({"symbol", "symbols"} & set(entry))
        if repeated:
            raise ContractError(
                f"{origin}: contract `{symbol}`: the symbol is the table's name already. Remove "
                f"`{repeated[0]}`."
            )
        contracts += _entry({**entry, "symbol": symbol}, origin, f"contract `{symbol}`")
    return tuple(contracts)


class _Reader:
    """One entry with where it stands, for messages."""

    def __init__(self, table: Mapping[str, Any], origin: str, where: str) -> None:
        self.table = table
        self.origin = origin
        self.where = where

    def error(self, message: str) -> ContractError:
        return ContractError(f"{self.origin}: {self.where}: {message}")

    def text(self, key: str, *, required: bool) -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            raise self.error(f"`{key}`: expected a text, found {value!r}.")
        if required and not value.strip():
            raise self.error(f"expected a `{key}`, found none. {_WHY[key]}")
        return value.strip()

    def flag(self, key: str) -> bool:
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"`{key}`: expected true or false, found {value!r}.")
        return value


_WHY = {
    "reason": "Say in a sentence why the symbol does this and no more.",
    "source": "Name the file and line of its own code, or the test, where that can be checked.",
}


def _entry(table: Mapping[str, Any], origin: str, where: str) -> list[Contract]:
    symbols = _symbols(_Reader(table, origin, where))
    if len(symbols) > 1:
        where = f"contract of `{symbols[0]}` and {len(symbols) - 1} more"
    else:
        where = f"contract `{symbols[0]}`"
    reader = _Reader(table, origin, where)
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise reader.error(
            f"unknown key `{unknown[0]}`; expected one of {', '.join(sorted(_KEYS))}."
        )
    effects = _effects(reader)
    reason = reader.text("reason", required=True)
    source = reader.text("source", required=True)
    condition = reader.text("condition", required=False)
    path = _word(Path, table.get("path", Path.RETURN.value), reader, "path")
    statuses = _statuses(reader)
    calls_back = reader.flag("calls_back")
    callback = _callback(reader, calls_back)
    drops = reader.flag("drops")
    elements = _elements(reader)
    override = reader.flag("override")
    fallback = reader.flag("fallback")
    if fallback and (calls_back or drops or elements or statuses or path is not Path.RETURN):
        raise reader.error(
            "`fallback`: machine code says nothing of call-backs, elements, statuses or the end of "
            "a call, so this contract would be needed besides it. Remove one of them."
        )
    return [
        Contract(
            symbol=symbol,
            effects=effects,
            reason=reason,
            source=source,
            condition=condition,
            calls_back=calls_back,
            callback=callback,
            drops=drops,
            elements=elements,
            path=path,
            statuses=statuses,
            override=override,
            fallback=fallback,
            origin=origin,
        )
        for symbol in symbols
    ]


CALLBACKS = ("destructor", "kernel", "method table")


def _callback(reader: _Reader, calls_back: bool) -> str:
    given = reader.text("callback", required=False)
    if given and given not in CALLBACKS:
        known = ", ".join(f"`{word}`" for word in CALLBACKS)
        raise reader.error(f"`callback`: expected one of {known}, found {given!r}.")
    if given and not calls_back:
        raise reader.error("`callback`: there is no `calls_back = true` that it could refine.")
    return given


def _elements(reader: _Reader) -> tuple[int, ...]:
    given = reader.table.get("elements", [])
    if not isinstance(given, list) or not all(type(i) is int and i >= 0 for i in given):
        raise reader.error(f"`elements`: expected numbers of arguments, found {given!r}.")
    return tuple(given)


def _symbols(reader: _Reader) -> list[str]:
    table = reader.table
    if ("symbol" in table) == ("symbols" in table):
        raise reader.error("expected either `symbol` or `symbols`. Give one of them.")
    symbols = table["symbols"] if "symbols" in table else [table["symbol"]]
    if not isinstance(symbols, list) or not symbols:
        raise reader.error(f"`symbols`: expected a list of symbols, found {symbols!r}.")
    for symbol in symbols:
        if not isinstance(symbol, str) or not symbol or symbol != "".join(symbol.split()):
            raise reader.error(f"expected the name of a symbol, found {symbol!r}.")
        if not symbol.strip("*"):
            raise reader.error(
                f"`{symbol}` is every symbol there is, of which nothing is known. Name the symbols."
            )
    return symbols


def _effects(reader: _Reader) -> tuple[ContractEffect, ...]:
    table = reader.table
    if "effects" not in table:
        raise reader.error("expected `effects`, found none. Write `effects = []` for a clean one.")
    given = table["effects"]
    if not isinstance(given, list):
        raise reader.error(f"`effects`: expected a list, found {given!r}.")
    common = _word(Occasion, table.get("occasion", Occasion.EVERY_CALL.value), reader, "occasion")
    if "occasion" in table and not given:
        raise reader.error("`occasion`: there is no effect that it could apply to. Remove it.")
    effects: list[ContractEffect] = []
    for item in given:
        occasion = common
        effect = item
        if isinstance(item, Mapping):
            if set(item) != {"effect", "occasion"}:
                raise reader.error(
                    f"`effects`: expected {{ effect = ..., occasion = ... }}, found {dict(item)!r}."
                )
            effect = item["effect"]
            occasion = _word(Occasion, item["occasion"], reader, "occasion")
        found = ContractEffect(_word(Effect, effect, reader, "effects"), occasion)
        if found in effects:
            raise reader.error(f"`effects`: `{found.effect}` is there twice. Remove one.")
        effects.append(found)
    return tuple(effects)


def _statuses(reader: _Reader) -> tuple[int, ...] | None:
    if "statuses" not in reader.table:
        return None
    given = reader.table["statuses"]
    plain = isinstance(given, list) and all(type(item) is int for item in given)
    if not plain or not given or len(set(given)) != len(given):
        raise reader.error(
            f"`statuses`: expected a list of different integers, found {given!r}. Leave it out "
            "if any integer can be returned."
        )
    return tuple(given)


_WordT = TypeVar("_WordT", Effect, Occasion, Path)


def _word(words: type[_WordT], given: object, reader: _Reader, key: str) -> _WordT:
    for word in words:
        if word.value == given:
            return word
    known = ", ".join(f"`{word.value}`" for word in words)
    raise reader.error(f"`{key}`: expected one of {known}, found {given!r}.")

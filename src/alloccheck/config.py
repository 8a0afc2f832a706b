"""The user's settings: `[tool.alloccheck]` of the nearest ``pyproject.toml``.

Knows the keys and their forms; nothing of what they are used for.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError
from alloccheck.policy import FirstCall

FILE = "pyproject.toml"
_KEYS = (
    "guarantee",
    "ignore_throw",
    "first_call",
    "strict",
    "store",
    "jit",
    "signatures",
    "contracts",
)
_FIRST_CALLS: dict[str, FirstCall] = {"prepare": "prepare", "forbid": "forbid", "allow": "allow"}


@dataclass(frozen=True, slots=True)
class Config:
    """Settings, with the defaults that hold when the file says nothing.

    Parameters
    ----------
    file : Path or None
        Where they were read; None when no file has the section.
    guarantee, ignore_throw, first_call
        As `analyze` takes them.
    strict : bool
        Whether a decorated function without any signature makes a run fail.
    store : str or None
        Where proved artifacts are kept: ``"user"`` or a directory, from the file's own on.
    jit : mapping
        Numba's options for functions that are not decorated.
    signatures : mapping of str to tuple of str
        ``module:function`` to the signatures that are checked.
    contracts : tuple of mapping
        The user's contracts for external symbols, as they stand in the file.
    """

    file: Path | None = None
    guarantee: Guarantee = Guarantee.NONALLOCATING
    ignore_throw: bool = True
    first_call: FirstCall = "prepare"
    strict: bool = False
    store: str | None = None
    jit: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    signatures: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    contracts: tuple[Mapping[str, Any], ...] = ()


def load_config(start: Path) -> Config:
    """Read the settings from the nearest ``pyproject.toml``, upwards from a place.

    A file without the section `[tool.alloccheck]` ends the search as well: it marks the project.

    Parameters
    ----------
    start : Path
        A file or directory.

    Returns
    -------
    Config
        The defaults when there is no file or no section.

    Raises
    ------
    UsageError
        When the file is not TOML, or a key or a value's form is not known; the message names
        file, key, what was expected and, for a key, the nearest known one.

    Examples
    --------
    >>> load_config(Path("/")).guarantee
    <Guarantee.NONALLOCATING: 'nonallocating'>
    """
    start = start.resolve()
    for directory in (start, *start.parents):
        file = directory / FILE
        if file.is_file():
            return _read(file)
    return Config()


def _read(file: Path) -> Config:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{file}: cannot be read as TOML: {error}") from None
    tool = document.get("tool", {})
    if not isinstance(tool, dict) or "alloccheck" not in tool:
        return Config()
    section = _table(file, "tool.alloccheck", tool["alloccheck"])
    for key in section:
        if key not in _KEYS:
            raise UsageError(f"{file}: unknown key tool.alloccheck.{key}{nearest(key, _KEYS)}")
    guarantees = tuple(str(one) for one in Guarantee)
    guarantee = _choice(file, section, "guarantee", guarantees, str(Guarantee.NONALLOCATING))
    return Config(
        file=file,
        guarantee=Guarantee(guarantee),
        ignore_throw=_flag(file, section, "ignore_throw", default=True),
        first_call=_FIRST_CALLS[
            _choice(file, section, "first_call", tuple(_FIRST_CALLS), "prepare")
        ],
        strict=_flag(file, section, "strict", default=False),
        store=_store(file, section.get("store")),
        jit=MappingProxyType(_table(file, "tool.alloccheck.jit", section.get("jit", {}))),
        signatures=_signatures(file, section.get("signatures", {})),
        contracts=_contracts(file, section.get("contracts", [])),
    )


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Return the end of a sentence that names the nearest known word, or else all of them.

    Parameters
    ----------
    word : str
        What was found.
    known : tuple of str
        What could have been meant.

    Examples
    --------
    >>> nearest("ignore_thorw", ("strict", "ignore_throw"))
    "; did you mean 'ignore_throw'?"
    >>> nearest("zzz", ("strict", "ignore_throw"))
    '; known are strict, ignore_throw'
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"


def _wrong(file: Path, key: str, expected: str, found: object) -> UsageError:
    return UsageError(f"{file}: {key} must be {expected}, but is {found!r}")


def _table(file: Path, key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(file, key, "a table", value)
    return value


def _flag(file: Path, section: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = section.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(file, f"tool.alloccheck.{key}", "true or false", value)
    return value


def _choice(
    file: Path, section: Mapping[str, Any], key: str, known: tuple[str, ...], default: str
) -> str:
    value = section.get(key, default)
    if value not in known:
        expected = f"one of {', '.join(map(repr, known))}"
        raise _wrong(file, f"tool.alloccheck.{key}", expected, value)
    return str(value)


def _store(file: Path, value: object) -> str | None:
    if value is None or value == "user":
        return None if value is None else "user"
    if not isinstance(value, str) or not value:
        raise _wrong(file, "tool.alloccheck.store", '"user" or a directory', value)
    return str(file.parent / Path(value).expanduser())


def _signatures(file: Path, value: object) -> Mapping[str, tuple[str, ...]]:
    table = _table(file, "tool.alloccheck.signatures", value)
    signatures: dict[str, tuple[str, ...]] = {}
    for name, listed in table.items():
        key = f'tool.alloccheck.signatures."{name}"'
        module, colon, function = name.partition(":")
        if not (module and colon and function):
            raise UsageError(f'{file}: {key} must be named "module:function"')
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise _wrong(file, key, "a list of signature strings", listed)
        signatures[name] = tuple(listed)
    return MappingProxyType(signatures)


def _contracts(file: Path, value: object) -> tuple[Mapping[str, Any], ...]:
    key = "tool.alloccheck.contracts"
    if not isinstance(value, list):
        raise _wrong(file, key, "an array of tables, [[tool.alloccheck.contracts]]", value)
    return tuple(MappingProxyType(_table(file, key, one)) for one in value)

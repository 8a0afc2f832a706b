"""Codes, causes and remedies: the table `help.toml`, and which of its rules fits a witness.

Knows symbols and backtraces; nothing of how a report is shown.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from alloccheck.analysis.summary import Witness
from alloccheck.effects import Effect, Occasion
from alloccheck.errors import ContractError
from alloccheck.source import Backtrace, Frame, source_line

FAMILIES: Mapping[Effect, str] = MappingProxyType(
    {
        Effect.ALLOCATE: "AC1",
        Effect.FREE: "AC2",
        Effect.BLOCK: "AC3",
        Effect.PYTHON: "AC4",
        Effect.DISPATCH: "AC5",
        Effect.RAISE: "AC6",
        Effect.UNKNOWN: "AC8",
    }
)
"""The first characters of the codes of each effect; ``AC9`` is for readers that disagree."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: what it fits, and what it says.

    A rule fits when every condition that it states is met; each pattern is a shell pattern, and
    a list of them is met by one.

    Parameters
    ----------
    name : str
        Unique, for tests and documentation.
    effects, occasions : frozenset
        Empty: any.
    symbol, source : tuple of str
        Patterns of the witness's symbol and source.
    within : tuple of str
        Patterns of ``file:function`` of an implementation frame inside the user's own.
    kinds : frozenset of str
        Kinds of expression (see :mod:`alloccheck.expressions`), one of which the user's line holds.
    code, what, help : str
        Empty: leave it to a later rule. `what` is the object of the message's sentence.
    typed : bool
        Whether a known type can stand for `what`.
    """

    name: str
    effects: frozenset[Effect]
    occasions: frozenset[Occasion]
    symbol: tuple[str, ...]
    source: tuple[str, ...]
    within: tuple[str, ...]
    kinds: frozenset[str]
    code: str
    what: str
    help: str
    typed: bool

    def fits(
        self, witness: Witness, implementation: tuple[str, ...], kinds: frozenset[str]
    ) -> bool:
        """Whether every stated condition is met."""
        return (
            (not self.effects or witness.effect in self.effects)
            and (not self.occasions or witness.occasion in self.occasions)
            and (not self.symbol or _matches(self.symbol, (witness.symbol,)))
            and (not self.source or _matches(self.source, (witness.source,)))
            and (not self.within or _matches(self.within, implementation))
            and (not self.kinds or bool(self.kinds & kinds))
        )


@dataclass(frozen=True, slots=True)
class Advice:
    """What the table says about a witness."""

    code: str
    what: str
    typed: bool
    help: str
    kinds: frozenset[str]
    """Kinds of expression that the cause is known to be of."""


def _matches(patterns: tuple[str, ...], texts: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in texts)


@cache
def _numba_directory() -> str | None:
    # find_spec does not import Numba: reports can be read where it is slow to start.
    spec = importlib.util.find_spec("numba")
    return str(FilePath(spec.origin).parent) if spec and spec.origin else None


def short_library_path(file: str) -> str | None:
    """Return the part of a path below ``site-packages``, or None when it is no installed library.

    Parameters
    ----------
    file : str
        Path of a source file.

    Examples
    --------
    >>> short_library_path("/usr/lib/python3/site-packages/numba/np/linalg.py")
    'numba/np/linalg.py'
    >>> short_library_path("/home/me/robot.py") is None
    True
    """
    posix = file.replace("\\", "/")
    for place in ("/site-packages/", "/dist-packages/"):
        _, found, rest = posix.rpartition(place)
        if found:
            return rest
    numba = _numba_directory()
    if numba is not None and file.startswith(numba):
        return "numba" + posix[len(numba) :]
    return None


def is_implementation(frame: Frame) -> bool:
    """Whether a frame is Numba's own or not Python at all, so that no user can change it.

    Parameters
    ----------
    frame : Frame
        A frame of a backtrace.

    Examples
    --------
    >>> is_implementation(Frame("/x/site-packages/numba/np/linalg.py", 3, None, "dot_2_mv"))
    True
    >>> is_implementation(Frame("robot.py", 3, None, "step"))
    False
    """
    if not (frame.file.endswith(".py") or frame.file.startswith("<")):
        return True
    return (short_library_path(frame.file) or "").startswith("numba/")


def user_frame(backtrace: Backtrace) -> Frame | None:
    """Return the innermost frame that a user wrote.

    One whose line can be read comes first, then one whose line is known: of code that Numba or a
    program made as text, the place that calls it says more.

    Parameters
    ----------
    backtrace : tuple of Frame
        Innermost frame first.

    Examples
    --------
    >>> user_frame(()) is None
    True
    """
    own = [frame for frame in backtrace if not is_implementation(frame)]
    known = [frame for frame in own if frame.line > 0]
    read = (frame for frame in known if source_line(frame.file, frame.line) is not None)
    return next(read, next(iter(known or own), None))


def advise(witness: Witness, kinds: frozenset[str] = frozenset()) -> Advice:
    """Look a witness up in the table.

    Each of code, object and help comes from the first fitting rule that states it.

    Parameters
    ----------
    witness : Witness
        What was found.
    kinds : frozenset of str
        Kinds of the expressions on the user's line.

    Returns
    -------
    Advice
        The code is always one of :func:`codes`, and of the effect's family.

    Examples
    --------
    >>> from alloccheck.effects import Path
    >>> advise(Witness(Effect.ALLOCATE, Path.RETURN, Occasion.EVERY_CALL,
    ...                "numba_dict_insert", "may grow", "dictobject.c:1", ())).code
    'AC104'
    """
    user = user_frame(witness.backtrace)
    inner = witness.backtrace[: witness.backtrace.index(user)] if user else witness.backtrace
    implementation = tuple(
        f"{short_library_path(frame.file) or frame.file}:{frame.function}" for frame in inner
    )
    kinds |= frozenset({"ufunc"}) if kinds & _ufunc_names() else frozenset()
    fitting = [rule for rule in rules() if rule.fits(witness, implementation, kinds)]
    coded = next(rule for rule in fitting if rule.code)
    named = next(rule for rule in fitting if rule.what)
    return Advice(
        code=coded.code,
        what=named.what,
        typed=named.typed,
        help=next((rule.help for rule in fitting if rule.help), ""),
        kinds=next((_widen(rule.kinds) for rule in fitting if rule.kinds), frozenset()),
    )


def _widen(kinds: frozenset[str]) -> frozenset[str]:
    """Numba fuses operators and ufuncs into one loop: either stands for the whole expression."""
    elementwise = frozenset({"ufunc", "operator"})
    return kinds | elementwise | _ufunc_names() if kinds & elementwise else kinds


@cache
def _ufunc_names() -> frozenset[str]:
    """Return the calls that are NumPy ufuncs, as people write them."""
    import numpy as np

    names = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)]
    return frozenset(f"{module}.{name}" for name in names for module in ("np", "numpy"))


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files("alloccheck").joinpath("help.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def codes() -> Mapping[str, str]:
    """Return every code with its title.

    Examples
    --------
    >>> codes()["AC102"]
    'slice assignment that may overlap'
    """
    return MappingProxyType(dict(_table()["codes"]))


@cache
def rules() -> tuple[Rule, ...]:
    """Return the table's rules in their order.

    Raises
    ------
    ContractError
        When a row is malformed: a key that no rule has, or a code that is not listed.
    """
    return tuple(_rule(row) for row in _table()["rule"])


def _rule(row: Mapping[str, Any]) -> Rule:
    known = {"name", "effect", "occasion", "symbol", "source", "within", "kinds"} | {
        "code",
        "what",
        "help",
        "typed",
    }
    name = row.get("name", "?")
    if unknown := set(row) - known:
        raise ContractError(f"help.toml: rule {name!r} has unknown keys {sorted(unknown)}")
    code = row.get("code", "")
    if code and code not in codes():
        raise ContractError(f"help.toml: rule {name!r} uses {code}, which [codes] does not list")
    return Rule(
        name=name,
        effects=frozenset(Effect(one) for one in row.get("effect", ())),
        occasions=frozenset(Occasion(one) for one in row.get("occasion", ())),
        symbol=tuple(row.get("symbol", ())),
        source=tuple(row.get("source", ())),
        within=tuple(row.get("within", ())),
        kinds=frozenset(row.get("kinds", ())),
        code=code,
        what=row.get("what", ""),
        help=row.get("help", ""),
        typed=row.get("typed", False),
    )

"""Compares what stock Numba made of a function under different orders.

Pure data in and out: knows neither processes nor Numba nor terminals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from alloccheck.order.run import Observation
from alloccheck.order.scenarios import Scenario

FACTS: Mapping[str, str] = {
    "outcome": "whether it compiles, runs or crashes",
    "types": "the inferred types",
    "values": "the values that it returns",
    "effects": "what it may do to the heap and other resources",
    "raises": "whether it may raise",
    "allocations": "how often it allocates when it runs",
    "code": "the machine code",
}
"""What is compared, each with what it means."""


@dataclass(frozen=True)
class Row:
    """What one compiler made of the target under one history.

    Parameters
    ----------
    kind, name : str
        The history.
    outcome : str
        ``"compiles"``, or an error, a crash or a time limit in words.
    decided : bool
        Whether the process came to an end that says something.
    types, digest : str or None
        The full signature and the machine code's digest.
    effects : tuple of str or None
        None when there was no IR to read, or it could not be read.
    may_raise : bool or None
        As `effects`.
    values : mapping of int to str
        Results by number of the sample.
    data : mapping of int to object
        The same, to compare across languages.
    allocations : mapping of int to int
        Blocks obtained from Numba's run time, by number of the sample.
    failed_steps : tuple of str
        Steps of the history that raised.
    """

    kind: str
    name: str
    outcome: str
    decided: bool = True
    types: str | None = None
    digest: str | None = None
    effects: tuple[str, ...] | None = None
    may_raise: bool | None = None
    values: Mapping[int, str] = field(default_factory=dict)
    data: Mapping[int, Any] = field(default_factory=dict)
    allocations: Mapping[int, int] = field(default_factory=dict)
    failed_steps: tuple[str, ...] = ()

    def fact(self, name: str) -> Any:
        """Return one of `FACTS`, or None where the process does not tell it."""
        return {
            "outcome": self.outcome,
            "types": self.types,
            "values": dict(self.values) or None,
            "effects": self.effects,
            "raises": self.may_raise,
            "allocations": dict(self.allocations) or None,
            "code": self.digest,
        }[name]


@dataclass(frozen=True)
class Difference:
    """A fact in which a history differs from the cold process."""

    row: str
    fact: str
    cold: Any
    found: Any


Verdict = Literal["order-dependent", "stable", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """Everything that one question brought to light.

    Parameters
    ----------
    function, signature : str
        The question.
    samples : mapping of int to str
        Sample arguments, as text.
    rows : tuple of Row
        Stock Numba, one per history; the cold process first.
    hermetic, python : Row or None
        The answer of this package, and the interpreter's values.
    differences : tuple of Difference
        Between the histories of stock Numba.
    unstable : tuple of str
        Facts that differ between two cold processes; they are not compared.
    undecided : tuple of str
        Histories of which nothing is known, with the reason.
    """

    function: str
    signature: str
    samples: Mapping[int, str]
    rows: tuple[Row, ...]
    hermetic: Row | None
    python: Row | None
    differences: tuple[Difference, ...]
    unstable: tuple[str, ...]
    undecided: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether stock Numba's answer depends on the order."""
        if self.differences:
            return "order-dependent"
        return "undecided" if self.undecided else "stable"

    @property
    def exit_code(self) -> int:
        """1 when it depends on the order, 0 when not, 2 when that is undecided."""
        return {"order-dependent": 1, "stable": 0, "undecided": 2}[self.verdict]

    def wrong(self, row: Row) -> tuple[int, ...]:
        """Return the samples for which a row's value is not the reference's.

        The reference is the hermetic value; without one there is nothing wrong.
        """
        if self.hermetic is None:
            return ()
        reference = self.hermetic.data
        return tuple(
            index
            for index, value in row.data.items()
            if index in reference and not alike(value, reference[index])
        )


def row_of(scenario: Scenario, seen: Observation) -> Row:
    """Turn what a process told into a row.

    Parameters
    ----------
    scenario : Scenario
        Its history.
    seen : Observation
        What it told.

    Examples
    --------
    >>> row_of(Scenario("cold", "cold"), Observation("crash", "SIGSEGV")).outcome
    'crash SIGSEGV while compiling'
    """
    compiled = seen.first("compiled") or {}
    effects = compiled.get("effects")
    error = seen.first("error")
    outcome, decided = "compiles", True
    if seen.ending == "crash":
        outcome = f"crash {seen.detail} {_doing(seen)}"
    elif seen.ending == "timeout":
        outcome, decided = f"no end after {seen.detail} {_doing(seen)}", False
    elif seen.ending in ("unusable", "broken"):
        outcome, decided = f"undecided: {seen.detail}", False
    elif error is not None:
        outcome = f"{error['type']}: {error['message']}"
    values = seen.all("value")
    return Row(
        kind=scenario.kind,
        name=scenario.name,
        outcome=outcome,
        decided=decided,
        types=compiled.get("types"),
        digest=compiled.get("digest"),
        effects=None if effects is None else tuple(effects),
        may_raise=compiled.get("may_raise"),
        values={one["index"]: one["shown"] for one in values},
        data={
            one["index"]: one["plain"] if "plain" in one else {"raises": one["raised"]}
            for one in values
        },
        allocations={one["index"]: one["allocations"] for one in values if "allocations" in one},
        failed_steps=tuple(
            f"{one['function']}: {one['type']}: {one['message']}" for one in seen.all("step failed")
        ),
    )


def _doing(seen: Observation) -> str:
    calls = seen.all("calling")
    if calls:
        shown = {one["index"]: one["shown"] for one in seen.all("sample")}
        return f"when called with {shown.get(calls[-1]['index'], '?')}"
    return "while compiling" if seen.first("compiled") is None else "after compiling"


def compare(
    function: str,
    signature: str,
    samples: Mapping[int, str],
    rows: Sequence[Row],
    hermetic: Row | None,
    python: Row | None,
) -> Comparison:
    """Compare stock Numba's answers with that of the first, cold process.

    Parameters
    ----------
    function, signature, samples
        See `Comparison`.
    rows : sequence of Row
        Two cold processes first.
    hermetic, python : Row or None
        See `Comparison`.
    """
    cold, again = rows[0], rows[1]
    unstable = tuple(
        fact for fact in FACTS if fact != "outcome" and cold.fact(fact) != again.fact(fact)
    )
    if cold.decided and again.decided and cold.outcome != again.outcome:
        # A crash that comes and goes: memory was overwritten. Both count as the same.
        unstable += ("outcome",)
    differences = tuple(
        Difference(row.name, fact, cold.fact(fact), row.fact(fact))
        for row in rows[2:]
        if row.decided and cold.decided
        for fact in FACTS
        if fact not in unstable
        and cold.fact(fact) is not None
        and row.fact(fact) is not None
        and cold.fact(fact) != row.fact(fact)
    )
    undecided = tuple(f"{row.name}: {row.outcome}" for row in rows if not row.decided)
    return Comparison(
        function,
        signature,
        dict(samples),
        tuple(rows),
        hermetic,
        python,
        differences,
        unstable,
        undecided,
    )


def alike(one: Any, other: Any) -> bool:
    """Whether two values, as workers tell them, are equal up to the last digits.

    Examples
    --------
    >>> alike([{"number": ["0.30000000000000004", "0.0"]}], [{"number": ["0.3", "0.0"]}])
    True
    >>> alike({"number": ["1.0", "0.0"]}, None)
    False
    """
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict) and "number" in one and "number" in other:
        return all(
            a == b or _close(float(a), float(b))
            for a, b in zip(one["number"], other["number"], strict=True)
        )
    return bool(one == other)


def _close(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=1e-9)

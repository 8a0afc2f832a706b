"""The histories under which stock Numba is asked, as plain data that travels to a worker.

A *scenario* is a name and the steps that a process takes before it compiles the target. Which
functions there are, and with which types the target calls them, is told by a worker; nothing here
knows Numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS: Mapping[str, str] = {
    "others": "each other function of the program is compiled first",
    "fastmath": "a caller with fastmath=True compiles first",
    "error-model": "a caller with error_model='numpy' compiles first",
    "boundscheck": "a caller with boundscheck=True compiles first",
    "ufunc": "a @vectorize kernel uses the functions first",
    "callback": "a @cfunc callback uses the functions first",
    "declared": "the functions are first compiled with a declared, wider return type",
    "cache": "a second process finds the first one's disk cache",
}
"""Kinds of histories, each with what it means."""

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "fastmath": {"fastmath": True},
    "error-model": {"error_model": "numpy"},
    "boundscheck": {"boundscheck": True},
}


@dataclass(frozen=True, slots=True)
class UsedTypes:
    """Argument types with which the target reaches a function.

    Parameters
    ----------
    types : str
        Numba's types, pickled and encoded; opaque here.
    shown : str
        As people write them.
    numbers : bool
        Whether a ufunc or C callback can take them.
    result, wider : str
        The return type inferred, and a wider one that somebody might declare (or empty).
    wider_shown : str
        The latter as people write it.
    guessed : bool
        Whether the target does not call the function, and its own types were taken.
    """

    types: str
    shown: str
    numbers: bool
    result: str
    wider: str
    wider_shown: str
    guessed: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A jitted function that is reached from the target's module.

    Parameters
    ----------
    label : str
        Names it in every process that loads the module.
    target : bool
        Whether it is the target itself.
    used : tuple of UsedTypes
        Empty when nobody knows with which types to compile it.
    """

    label: str
    target: bool
    used: tuple[UsedTypes, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One history.

    Parameters
    ----------
    kind : str
        One of `KINDS`, or ``"cold"``.
    name : str
        For people.
    steps : tuple of mapping
        What the worker does first, in order.
    """

    kind: str
    name: str
    steps: tuple[Mapping[str, Any], ...] = ()


def scenarios(functions: Sequence[Function], kinds: Sequence[str]) -> list[Scenario]:
    """Return the histories of some kinds for a program.

    Parameters
    ----------
    functions : sequence of Function
        What the target's module holds and reaches.
    kinds : sequence of str
        Of `KINDS`.

    Returns
    -------
    list of Scenario
        In a fixed order; the first two are cold, so that what varies by itself is seen.

    Examples
    --------
    >>> used = UsedTypes("...", "(int64,)", True, "...", "", "", False)
    >>> g = Function("m:g", False, (used,))
    >>> [one.name for one in scenarios([g], ["others", "fastmath"])]
    ['cold', 'cold, again', 'm:g(int64,) first', 'callers with fastmath first']
    """
    found = [Scenario("cold", "cold"), Scenario("cold", "cold, again")]
    if "others" in kinds:
        found += _others_first(functions)
    for kind, options in _FLAGS.items():
        if kind in kinds:
            steps = [
                _step("caller", function, one, options=dict(options))
                for function, one in _all(functions)
            ]
            option = next(iter(options))
            found += _unless_empty(kind, f"callers with {option} first", steps)
    numbers = [(function, one) for function, one in _all(functions) if one.numbers]
    if "ufunc" in kinds:
        steps = [_step("ufunc", function, one, result=one.result) for function, one in numbers]
        found += _unless_empty("ufunc", "used by a ufunc first", steps)
    if "callback" in kinds:
        steps = [_step("callback", function, one, result=one.result) for function, one in numbers]
        found += _unless_empty("callback", "used by a C callback first", steps)
    if "declared" in kinds:
        for function, one in _all(functions):
            if one.wider and not function.target and not one.guessed:
                name = f"{function.label}{one.shown} declared {one.wider_shown} first"
                step = _step("declare", function, one, result=one.wider)
                found.append(Scenario("declared", name, (step,)))
    if "cache" in kinds:
        found.append(Scenario("cache", "disk cache, filling"))
        found.append(Scenario("cache", "disk cache, warm"))
    return found


def _others_first(functions: Sequence[Function]) -> list[Scenario]:
    others = [(function, one) for function, one in _all(functions) if not function.target]
    found = [
        Scenario("others", f"{function.label}{one.shown} first", (_step("enter", function, one),))
        for function, one in others
    ]
    if len(others) > 1:
        steps = [_step("enter", function, one) for function, one in reversed(others)]
        found.append(Scenario("others", "all others first, the last one first", tuple(steps)))
    return found


def _all(functions: Sequence[Function]) -> list[tuple[Function, UsedTypes]]:
    return [(function, one) for function in functions for one in function.used]


def _step(action: str, function: Function, used: UsedTypes, **more: Any) -> Mapping[str, Any]:
    return {"action": action, "function": function.label, "types": used.types, **more}


def _unless_empty(kind: str, name: str, steps: list[Mapping[str, Any]]) -> list[Scenario]:
    return [Scenario(kind, name, tuple(steps))] if steps else []

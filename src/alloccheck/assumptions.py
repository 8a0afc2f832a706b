"""`assume`: a trust that the user declares, with the sentence that stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from alloccheck.effects import Effect, Guarantee
from alloccheck.errors import UsageError

MARK = "__alloccheck_assumption__"
"""Attribute of a Python function that carries its `AssumptionMark`."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class AssumptionMark:
    """What a user vouches for about one function.

    Parameters
    ----------
    function : str
        ``module:qualname``.
    effects : frozenset of Effect
        Effects that it is trusted not to have.
    reason : str
        Why.
    """

    function: str
    effects: frozenset[Effect]
    reason: str


def assume(guarantee: str | Guarantee | Iterable[str], *, reason: str) -> Callable[[F], F]:
    """Trust a function not to have some effects, and say why.

    The function is kept as a call of its own in every artifact, so the trust neither spreads to
    its callers nor gets lost by inlining. Each report lists the trusts that it rests on and those
    that were never needed.

    Parameters
    ----------
    guarantee : str, Guarantee or iterable of str
        ``"nonallocating"``, ``"nonblocking"``, or names of effects.
    reason : str
        A sentence for those who read the report. Required.

    Returns
    -------
    Callable
        A decorator that returns its function (or dispatcher) unchanged.

    Raises
    ------
    UsageError
        Without a reason, for unknown names, or for something that is not a function.

    Examples
    --------
    >>> @assume("nonallocating", reason="the ring buffer is preallocated; see test_ring")
    ... def push(ring, value):
    ...     ring[0] = value
    >>> @assume("nonallocating", reason="")
    ... def pop(ring):
    ...     return ring[0]
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: assume() needs a reason: one sentence that says why the function \
can be trusted
    """
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(
            "assume() needs a reason: one sentence that says why the function can be trusted"
        )
    effects = _effects_of(guarantee)

    def mark(target: F) -> F:
        function = getattr(target, "py_func", target)
        if not callable(function) or not hasattr(function, "__code__"):
            raise UsageError(f"assume() marks Python functions and dispatchers, not {target!r}")
        name = f"{function.__module__}:{function.__qualname__}"
        setattr(function, MARK, AssumptionMark(name, effects, reason.strip()))
        return target

    return mark


def _effects_of(guarantee: str | Guarantee | Iterable[str]) -> frozenset[Effect]:
    if isinstance(guarantee, str):
        if guarantee in [str(one) for one in Guarantee]:
            return Guarantee(guarantee).forbidden
        guarantee = [guarantee]
    known = {str(effect): effect for effect in Effect}
    wanted = list(guarantee)
    unknown = [str(one) for one in wanted if str(one) not in known]
    if unknown or not wanted:
        raise UsageError(
            f"assume() does not know {', '.join(unknown) or 'an empty set of effects'}; use "
            f"{', '.join(map(str, Guarantee))}, or effects among {', '.join(known)}"
        )
    return frozenset(known[str(one)] for one in wanted)

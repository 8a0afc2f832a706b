"""Runs a checked function in the helper process on many inputs, and keeps what each one showed.

Knows the oracle's public face; nothing of findings. A crash or an endless loop costs one input and
the helper process, which is started anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from alloccheck.errors import UsageError
from alloccheck.oracle import (
    CallCounts,
    Counts,
    Oracle,
    RemoteError,
    WorkerCrashed,
    WorkerTimeout,
)

EXAMPLES = 60
"""Generated inputs of one function."""

COLD_TIMEOUT = 30.0
"""Seconds for an input for which the helper process must import and compile first."""

CALL_TIMEOUT = 5.0
"""Seconds for any other input."""

BUDGET = 120.0
"""Seconds for all inputs of one function."""

MOST_CRASHES, MOST_LATE = 3, 2
"""After so many crashes, or calls without end, of one function no more are tried."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Parameters
    ----------
    made : Made
        Gives the dispatcher in the helper process.
    signature : str or None
        Of the overload; None: that of the arguments.
    entry : {"numba", "c"}
        Which native entry.
    digest : str or None
        Of the machine code that the report speaks of; None: what is made there sees to it.
    """

    made: Any
    signature: str | None
    entry: Any
    digest: str | None


@dataclass(slots=True)
class Tally:
    """How the inputs ended."""

    inputs: int = 0
    returned: int = 0
    raised: int = 0
    crashed: int = 0
    late: int = 0
    note: str = ""
    warm: bool = False
    """Whether the helper process has compiled the function."""


def run(
    oracle: Oracle,
    plan: Plan,
    inputs: Iterable[tuple[Any, ...]] | None,
    strategy: Any,
    seen: Callable[[tuple[Any, ...], Counts, CallCounts], None],
    *,
    examples: int = EXAMPLES,
    timeout: float = CALL_TIMEOUT,
    cold_timeout: float = COLD_TIMEOUT,
    budget: float = BUDGET,
) -> Tally:
    """Try inputs until there are no more, or time is up.

    Parameters
    ----------
    oracle : Oracle
        The helper process.
    plan : Plan
        What is run.
    inputs : iterable of tuple, or None
        Given ones; None: draw from `strategy`.
    strategy : SearchStrategy
        Of tuples of arguments.
    seen : callable
        Called with an input, the counts, and one call's; two calls of each input are measured,
        since the first may set things up.
    examples : int
        How many are drawn.
    timeout, cold_timeout : float
        Seconds for one input; and for one for which the helper process must compile first.
    budget : float
        Seconds for all.

    Raises
    ------
    OracleUnavailable
        When this machine cannot measure.
    UsageError
        When an argument cannot be sent.
    """
    tally = Tally()
    end = time.monotonic() + budget

    def one(given: tuple[Any, ...]) -> None:
        if tally.note:
            return
        tally.warm = _try(oracle, plan, given, seen, tally, timeout if tally.warm else cold_timeout)
        if tally.crashed >= MOST_CRASHES or tally.late >= MOST_LATE:
            tally.note = tally.note or "stopped because of these"
        elif time.monotonic() > end:
            tally.note = f"stopped after {budget:g} s"

    oracle.start()
    if inputs is not None:
        for given in inputs:
            one(given)
    else:
        _draw(strategy, examples, one)
    return tally


def _try(
    oracle: Oracle,
    plan: Plan,
    given: tuple[Any, ...],
    seen: Callable[[tuple[Any, ...], Counts, CallCounts], None],
    tally: Tally,
    timeout: float,
) -> bool:
    """Try one input; return whether the helper process is ready for the next."""
    try:
        counts = oracle.count(
            plan.made,
            *given,
            calls=2,
            fresh=True,
            signature=plan.signature,
            entry=plan.entry,
            timeout=timeout,
            rehearse=True,
        )
    except WorkerCrashed:
        tally.inputs += 1
        tally.crashed += 1
        return False
    except WorkerTimeout:
        tally.inputs += 1
        tally.late += 1
        return False
    except RemoteError as error:
        if error.kind == "RehearsalFailed":
            tally.inputs += 1
            tally.late += error.args[0].endswith("SIGALRM")
            tally.crashed += not error.args[0].endswith("SIGALRM")
            return True
        tally.note = f"the helper process could not run it: {_first_line(error)}"
        return True
    if None not in (counts.digest, plan.digest) and counts.digest != plan.digest:
        tally.note = (
            f"the helper process made other machine code ({str(counts.digest)[:12]}, not "
            f"{str(plan.digest)[:12]}), of which the report says nothing"
        )
        return True
    tally.inputs += 1
    if counts.steady.outcome == "returned":
        tally.returned += 1
    else:
        tally.raised += 1
    for call in counts.calls:
        seen(given, counts, call)
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _draw(strategy: Any, examples: int, one: Callable[[tuple[Any, ...]], None]) -> None:
    from hypothesis import HealthCheck, Phase, given, settings

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(drawn: Any) -> None:
        if not isinstance(drawn, tuple):
            raise UsageError(
                f"the strategy must give tuples of arguments, found {type(drawn).__name__}"
            )
        one(drawn)

    each()

"""Which finding explains an event that was counted.

Knows findings, events and lines; nothing of processes. An event confirms a finding only when no
other could explain it as well, but for one with the same line and symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from alloccheck.effects import Effect, Path
from alloccheck.findings import Finding
from alloccheck.oracle.counts import CallCounts, Event

_SEEN_AS = {
    # What can be counted of each effect that a finding speaks of.
    Effect.ALLOCATE: frozenset({Effect.ALLOCATE}),
    Effect.FREE: frozenset({Effect.FREE}),
    Effect.BLOCK: frozenset({Effect.BLOCK, Effect.PYTHON}),
    Effect.PYTHON: frozenset({Effect.PYTHON, Effect.ALLOCATE}),
}


def confirmed_by(
    findings: Sequence[Finding],
    call: CallCounts,
    lines: Callable[[Event], tuple[tuple[str, int], ...]],
    target: Callable[[Event], str | None] = lambda event: None,
) -> dict[int, str]:
    """Return the findings that a call confirms.

    Parameters
    ----------
    findings : sequence of Finding
        All of a report.
    call : CallCounts
        What the call did.
    lines : callable
        The source lines of an event, innermost first; empty when unknown.
    target : callable
        The external symbol that the checked code called when the event happened, if known.

    Returns
    -------
    dict of int to str
        From the number of a finding to what was seen.
    """
    raised = call.outcome == "raised"
    found: dict[int, str] = {}
    if raised:
        for number, one in enumerate(findings):
            if one.effect is Effect.RAISE and _alone(findings, Effect.RAISE):
                found[number] = f"raised {call.exception}"
    possible = [
        number for number, one in enumerate(findings) if raised or one.path is not Path.RAISE
    ]
    for event in call.events:
        explained = _explaining(event, possible, findings, lines(event), target(event))
        for number in explained:
            found.setdefault(number, _seen(event))
    return found


def _alone(findings: Sequence[Finding], effect: Effect) -> bool:
    return sum(one.effect is effect for one in findings) == 1


def _explaining(
    event: Event,
    possible: Sequence[int],
    findings: Sequence[Finding],
    lines: tuple[tuple[str, int], ...],
    target: str | None,
) -> list[int]:
    effect = event.category.effect
    left = [n for n in possible if effect in _SEEN_AS.get(findings[n].effect, ())]
    exact = [n for n in left if findings[n].effect is effect]
    left = exact or left
    if lines:
        left = [n for n in left if _is_at(findings[n], lines)]
    symbols = {target, event.caller.symbol, event.name} - {None}
    named = [n for n in left if findings[n].symbol in symbols]
    left = named or left
    # Two traces of one call are one thing; two calls of one line are not.
    places = {(_place(findings[n]), findings[n].symbol) for n in left}
    return left if len(places) == 1 else []


def _is_at(finding: Finding, lines: tuple[tuple[str, int], ...]) -> bool:
    """Tell whether a finding's trace begins with these lines; line 0 stands for any."""
    trace = [(PurePath(one.file).name, one.line) for one in finding.backtrace]
    if len(trace) < len(lines):
        return False
    return all(
        here == there or 0 in (here[1], there[1]) for here, there in zip(trace, lines, strict=False)
    )


def _place(finding: Finding) -> object:
    where = finding.location
    return (where.file, where.line) if where is not None else finding.symbol


def _seen(event: Event) -> str:
    size = f" of {event.size} bytes" if event.size else ""
    by = f" from {event.caller.symbol}" if event.caller.symbol else ""
    return f"{event.name}{size}{by}"

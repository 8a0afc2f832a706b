"""Tries to refute the proofs of an audit: runs the proved machine code under the counter.

The measuring process runs the program once more (`replay.py`), so that each function is measured
on the arguments of the program's own call, where Python made one, and on generated ones. Knows
rows, plans and tallies; nothing of how counting works.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alloccheck.audit import replay
from alloccheck.audit.judge import Counted, Row
from alloccheck.errors import AllocCheckException
from alloccheck.oracle import CallCounts, Counts, Oracle, OracleUnavailable, made_by
from alloccheck.oracle.references import ONLY

if TYPE_CHECKING:
    from alloccheck.compile.recording import Compiled
    from alloccheck.effects import Guarantee

EXAMPLES = 20
"""Generated inputs of one function."""


_OTHER_CODE = "the measuring process made, proved and ran machine code of another digest"


class OwnCalls:
    """Notes for which functions the program made calls from Python that Numba compiled for."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] = set()

    def note(self, dispatcher: Any, given: tuple[Any, ...]) -> None:
        """Take in a call; to be given to the recorder as `first_call`."""
        self._seen.add(replay.call_key(dispatcher, replay.types_of(dispatcher, given)))

    def __contains__(self, one: Compiled) -> bool:
        return replay.call_key(one.target, one.argument_types) in self._seen


@dataclass(frozen=True)
class Count:
    """What the counter needs to know about an audit.

    Parameters
    ----------
    program : replay.Program
        What is run once more.
    guarantee : Guarantee
        What was proved.
    first_call : str
        How process-wide lazy set-up was treated.
    timeout : float
        Seconds for an input for which the program must run and the function compile first.
    """

    program: replay.Program
    guarantee: Guarantee
    first_call: str
    timeout: float


def counted(
    question: Count,
    compiled: Sequence[Compiled],
    names: Sequence[str],
    rows: Sequence[Row],
    own: OwnCalls,
) -> list[Row]:
    """Return the rows with what was counted of those that are proved.

    Parameters
    ----------
    question : Question
        About the audit.
    compiled : sequence of Compiled
        What was judged.
    names, rows : sequence
        The name (`replay.names_of`) and row of each.
    own : OwnCalls
        What the recorder noted.

    Raises
    ------
    OracleUnavailable
        When this machine cannot measure.
    """
    found = [row.counted for row in rows]
    proved = [number for number, row in enumerate(rows) if row.verdict == "proved"]
    with (
        tempfile.TemporaryDirectory(prefix="alloccheck-replay-") as folder,
        Oracle(timeout=question.timeout, environment={"NUMBA_CACHE_DIR": folder}) as oracle,
    ):
        oracle.start()

        def measured(number: int, *, generated: bool) -> Counted:
            return _measured(
                question,
                oracle,
                rows[number],
                compiled[number],
                names[number],
                generated=generated,
            )

        # The program's own calls first: if a generated one crashes the process in spite of all,
        # it has to run the program again.
        for number in proved:
            if compiled[number] in own:
                found[number] = measured(number, generated=False)
        for number in proved:
            found[number] = _sum(found[number], measured(number, generated=True))
    return [dataclasses.replace(row, counted=one) for row, one in zip(rows, found, strict=True)]


def _measured(
    question: Count, oracle: Oracle, row: Row, one: Compiled, name: str, *, generated: bool
) -> Counted:
    from alloccheck.confirm.names import caller_types
    from alloccheck.confirm.strategies import arguments, sendable
    from alloccheck.confirm.trial import Plan, run

    words = question.program.words()
    refuted: list[str] = []

    others: set[str | None] = set()

    def seen(given: tuple[Any, ...], counts: Counts, call: CallCounts) -> None:
        others.update({counts.digest} - {digest})
        # A single call always counts, so one that is allowed to set things up is left out here.
        sets_up = question.first_call == "allow" and call is counts.calls[0]
        if call.outcome == "returned" and not sets_up:
            alone = dataclasses.replace(counts, calls=(call,))
            refuted.extend(alone.refutations(question.guarantee))

    assert row.report is not None
    digest = row.report["certificate"]["digest"]
    plan = Plan(
        made_by(replay.subject, words, name, str(question.guarantee), question.first_call, digest),
        ONLY,
        "numba",
        None,
    )
    given: Any = None
    strategy: Any = None
    try:
        if generated:
            kinds = caller_types(one.argument_types)
            strategy = arguments(kinds).map(lambda drawn: sendable(kinds, drawn))
        else:
            given = [(made_by(replay.own_arguments, words, name),)]
        tally = run(
            oracle,
            plan,
            given,
            strategy,
            seen,
            examples=EXAMPLES,
            cold_timeout=question.timeout,
        )
    except OracleUnavailable:
        raise
    except AllocCheckException as reason:
        return Counted(note=str(reason).splitlines()[0])
    return Counted(
        own=0 if generated else tally.returned,
        inputs=tally.inputs,
        returned=tally.returned,
        raised=tally.raised,
        crashed=tally.crashed,
        late=tally.late,
        note=tally.note or (_OTHER_CODE if others else ""),
        refuted=tuple(dict.fromkeys(refuted)),
    )


def _sum(first: Counted | None, more: Counted) -> Counted:
    if first is None or not first.inputs:
        return more if more.note or more.inputs or first is None else first
    numbers = ("own", "inputs", "returned", "raised", "crashed", "late")
    return Counted(
        **{name: getattr(first, name) + getattr(more, name) for name in numbers},
        note=more.note,
        refuted=tuple(dict.fromkeys((*first.refuted, *more.refuted))),
    )

"""The one road of an audit: run the program, take what was recorded, analyse it, sort the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alloccheck.audit.children import Children, Question
from alloccheck.audit.judge import Callees, Counted, Row, as_compiled
from alloccheck.audit.program import Command, Late, importing, run
from alloccheck.audit.report import Audit
from alloccheck.effects import Guarantee

if TYPE_CHECKING:
    from alloccheck.analysis.contracts import Contract
    from alloccheck.audit.counter import OwnCalls
    from alloccheck.compile.recording import Compiled


def audit(
    command: Command,
    *,
    guarantee: Guarantee = Guarantee.NONALLOCATING,
    only: Sequence[str] = (),
    contracts: Sequence[Contract] = (),
    first_call: str = "prepare",
    processes: int = 2,
    timeout: float = 300.0,
    confirm: bool = False,
) -> Audit:
    """Run a program and prove everything that Numba compiled for it.

    Parameters
    ----------
    command : Command
        The program.
    guarantee : Guarantee
        What is asked of each function.
    only : sequence of str
        Modules and packages whose functions are analysed; empty: all.
    contracts : sequence of Contract
        The user's own contracts for external symbols.
    first_call : {"prepare", "forbid", "allow"}
        How process-wide lazy set-up is treated.
    processes : int
        How many analyses run at once, each in a copy of this process, one fewer while the program
        runs; 0: in this one.
    timeout : float
        Seconds for one analysis.
    confirm : bool
        Also run what was proved, in a process that runs the program once more, and count.

    Returns
    -------
    Audit
        Nothing is raised for what the program or a function does.

    Raises
    ------
    OracleUnavailable, UsageError
        When `confirm` is asked for where nothing can be counted.
    """
    own = _prepared_to_count() if confirm else None
    folder = str(Path.cwd())
    question = Question(guarantee, tuple(contracts), first_call, tuple(only), timeout)
    pool = question.pool(processes, lambda: recorder.choices)
    known = 0

    def begins() -> None:
        # What a module will define is not there yet while it is being imported.
        if not teller.is_forked and not importing():
            pool.begin()

    def compiled_one(compiled: Sequence[Compiled], outermost: bool) -> None:
        nonlocal known
        if teller.is_forked:
            teller.compiled(compiled)
            return
        pool.add(one for one in compiled[known:] if question.wants(one))
        known = len(compiled)
        if outermost:
            pool.offer()

    recorder = Late(begins, compiled_one, None if own is None else own.note)
    children = Children(question)
    with children.followed(recorder) as teller:
        outcome = run(command, recorder)
    problems = [outcome.failure] if outcome.failure else []
    problems += [f"not everything was recorded: {fault}" for fault in outcome.faults]
    pool.add(one for one in outcome.compiled[known:] if question.wants(one))
    callees = Callees(outcome.compiled, recorder.choices)
    rows = [
        as_compiled(one, row, callees) for one, row in zip(pool.items, pool.finish(), strict=True)
    ]
    children.collect()
    problems += children.problems
    if not rows and not children.rows and not problems:
        among = f" of {', '.join(only)}" if only else ""
        problems.append(f"the program compiled no function{among} with Numba")
    if own is not None:
        from alloccheck.audit.counter import Count, counted
        from alloccheck.audit.replay import Program, names_of

        names = dict(zip(map(id, outcome.compiled), names_of(outcome.compiled), strict=True))
        rows = counted(
            Count(Program(command, folder), guarantee, first_call, timeout),
            pool.items,
            [names[id(one)] for one in pool.items],
            rows,
            own,
        )
        problems += [
            f"PROOF REFUTED: {row.function}{row.signature}: {row.counted}; this is a bug in "
            "alloccheck, please report it with the function"
            for row in rows
            if row.counted is not None and row.counted.refuted
        ]
        not_here = Counted(note="it was compiled in another process of the program")
        children.rows = [
            dataclasses.replace(row, counted=not_here) if row.verdict == "proved" else row
            for row in children.rows
        ]
    rows += children.rows
    rows.sort(key=lambda row: (row.file, row.line, row.function, row.signature, row.kind))
    return Audit(
        str(command),
        str(guarantee),
        tuple(_distinct(rows)),
        tuple(problems),
        1 + children.processes,
    )


def _prepared_to_count() -> OwnCalls:
    """Refuse before the program runs what cannot be done after it."""
    from alloccheck.audit.counter import OwnCalls
    from alloccheck.confirm.strategies import require_hypothesis
    from alloccheck.oracle import default_oracle

    require_hypothesis()
    default_oracle().start()
    default_oracle().close()
    return OwnCalls()


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """Keep one of rows that say the same, as those of closures that are made anew in a loop do."""
    kept: dict[object, Row] = {}
    for row in rows:
        digest = ((row.report or {}).get("certificate") or {}).get("digest")
        same = (row.function, row.line, row.signature, row.kind, row.verdict, row.reason, digest)
        kept.setdefault(same, row)
    return list(kept.values())

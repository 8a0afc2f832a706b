"""An audit as text and as data. Knows rows; nothing of how they came to be."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from alloccheck.audit.judge import VERDICTS, Counted, Row
from alloccheck.report.printed import printed

AUDIT_SCHEMA = "alloccheck.audit/1"
"""Name and version of the form of an audit's JSON."""

_STYLES = {"proved": "green", "undecided": "yellow"}


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that one audit found.

    Parameters
    ----------
    program : str
        The command that ran.
    guarantee : str
        What was asked of each function.
    rows : tuple of Row
        By file, line, function and signature.
    problems : tuple of str
        What went wrong apart from single functions: the program failed, nothing was compiled.
    processes : int
        How many processes of the program compiled what is told of, its own among them.
    """

    program: str
    guarantee: str
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()
    processes: int = 1

    @property
    def exit_code(self) -> int:
        """2 when anything was left undecided, else 1 when anything was found, else 0."""
        verdicts = {row.verdict for row in self.rows}
        if self.problems or "undecided" in verdicts:
            return 2
        return int(bool(verdicts - {"proved"}))

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, in the order of `VERDICTS`."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS}


def audit_to_json(audit: Audit) -> str:
    """Write an audit in the schema ``alloccheck.audit/1``, without anything that varies.

    Parameters
    ----------
    audit : Audit
        What was found.

    Examples
    --------
    >>> print(audit_to_json(Audit("x.py", "nonallocating", ())).splitlines()[1])
      "schema": "alloccheck.audit/1",
    """
    document = {
        "schema": AUDIT_SCHEMA,
        "exit_code": audit.exit_code,
        "program": audit.program,
        "guarantee": audit.guarantee,
        "processes": audit.processes,
        "counts": audit.counts,
        "problems": list(audit.problems),
        "functions": [_function(row) for row in audit.rows],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _function(row: Row) -> dict[str, Any]:
    return {
        "function": row.function,
        "file": row.file,
        "line": row.line,
        "signature": row.signature,
        "kind": row.kind,
        "origin": row.origin,
        "verdict": row.verdict,
        "reason": row.reason,
        "may": list(row.may),
        "report": row.report,
        "counted": None if row.counted is None else _counted(row.counted),
    }


def _counted(counted: Counted) -> dict[str, Any]:
    return {**dataclasses.asdict(counted), "refuted": list(counted.refuted)}


def audit_to_text(audit: Audit, *, color: bool = False, width: int = 100) -> str:
    """Render an audit for people: a table, then the sum.

    Parameters
    ----------
    audit : Audit
        What was found.
    color : bool
        Whether to use the terminal's colours.
    width : int
        Columns to fit into.
    """
    parts = []
    if audit.rows:
        parts.append(_table(audit.rows, color, width))
    counts = [f"{count} {verdict}" for verdict, count in audit.counts.items() if count]
    seconds = sum(row.seconds for row in audit.rows)
    parts.append(
        f"{len(audit.rows)} functions compiled for {audit.program}{_in(audit.processes)}, asked "
        f"{audit.guarantee}: "
        + (", ".join(counts) or "nothing to check")
        + (f"; {seconds:.1f} s CPU of analysis" if audit.rows else "")
    )
    counted = [row.counted for row in audit.rows if row.counted is not None]
    if counted:
        parts.append(_sum_of(counted))
    return "\n".join(parts)


def _in(processes: int) -> str:
    return "" if processes == 1 else f" in {processes} processes"


def _sum_of(counted: Sequence[Counted]) -> str:
    refuted = sum(bool(one.refuted) for one in counted)
    run = sum(bool(one.returned) and not one.refuted for one in counted)
    return (
        f"{len(counted)} proved functions put to the counter: {run} kept their proof, "
        f"{len(counted) - run - refuted} could not be run, {refuted} refuted"
    )


def _table(rows: Sequence[Row], color: bool, width: int) -> str:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("function and signature", overflow="fold", ratio=4)
    table.add_column("verdict", no_wrap=True)
    table.add_column("raises", no_wrap=True)
    table.add_column("blocks", no_wrap=True)
    table.add_column("where it first does, or why it is undecided", overflow="fold", ratio=5)
    for row in rows:
        known = row.report is not None
        table.add_row(
            Text(f"{row.function}{_arguments(row)}"),
            Text(row.verdict, style=_STYLES.get(row.verdict, "red")),
            _mark("raise" in row.may, known),
            _mark("block" in row.may, known),
            Text(row.reason if row.counted is None else str(row.counted)),
        )
    return printed(table, color=color, width=width) + "\n"


def _arguments(row: Row) -> str:
    arguments = row.signature[row.signature.find("(") :]
    return arguments if row.kind == "function" else f"{arguments} ({row.kind})"


def _mark(may: bool, known: bool) -> str:
    if not known:
        return "?"
    return "may" if may else ""

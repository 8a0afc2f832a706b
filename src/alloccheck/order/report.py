"""Shows a comparison: as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from alloccheck.order.compare import FACTS, Comparison, Row
from alloccheck.report.printed import printed

SCHEMA = "alloccheck.order/1"
"""Name and version of the JSON, described in ``docs/order.md``."""

_STYLES = {"order-dependent": "bold red", "stable": "bold green", "undecided": "bold yellow"}


def to_json(comparisons: Sequence[Comparison]) -> str:
    """Write comparisons as JSON in the schema ``alloccheck.order/1``.

    Parameters
    ----------
    comparisons : sequence of Comparison
        One per signature.

    Examples
    --------
    >>> print(to_json([]))
    {
      "schema": "alloccheck.order/1",
      "exit_code": 2,
      "comparisons": []
    }
    """
    document = {
        "schema": SCHEMA,
        "exit_code": exit_code(comparisons),
        "comparisons": [_comparison(one) for one in comparisons],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def exit_code(comparisons: Sequence[Comparison]) -> int:
    """Return 1 when any answer depends on the order, else 2 when any is undecided, else 0."""
    codes = {one.exit_code for one in comparisons} or {2}
    return 1 if 1 in codes else max(codes)


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "function": one.function,
        "signature": one.signature,
        "verdict": one.verdict,
        "samples": {str(index): shown for index, shown in one.samples.items()},
        "hermetic": None if one.hermetic is None else _row(one, one.hermetic),
        "python": None if one.python is None else _row(one, one.python),
        "stock": [_row(one, row) for row in one.rows],
        "differences": [
            {"order": each.row, "fact": each.fact, "cold": each.cold, "found": each.found}
            for each in one.differences
        ],
        "not_compared": list(one.unstable),
        "undecided": list(one.undecided),
    }


def _row(comparison: Comparison, row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "order": row.name,
        "outcome": row.outcome,
        "types": row.types,
        "digest": row.digest,
        "effects": None if row.effects is None else list(row.effects),
        "may_raise": row.may_raise,
        "values": {str(index): shown for index, shown in row.values.items()},
        "wrong": list(comparison.wrong(row)),
        "allocations": {str(index): count for index, count in row.allocations.items()},
        "failed_steps": list(row.failed_steps),
    }


def to_text(comparison: Comparison, *, color: bool = False, width: int = 100) -> str:
    """Render a comparison for people.

    Parameters
    ----------
    comparison : Comparison
        What to show.
    color : bool
        Whether to use the terminal's colours.
    width : int
        Columns to fit into.

    Returns
    -------
    str
        The last line is the verdict.
    """
    parts: list[RenderableType] = [
        Text(f"{comparison.function}  {comparison.signature}", style="bold")
    ]
    if comparison.samples:
        parts.append(Text(f"called with {', '.join(comparison.samples.values())}"))
    parts.append(_table(comparison))
    parts += [Text(line, style=style) for line, style in _remarks(comparison)]
    return printed(*parts, color=color, width=width)


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("order", "types", "values", "may", "code"):
        table.add_column(title, overflow="fold")
    special = (("Python", comparison.python), ("hermetic", comparison.hermetic))
    for name, row in special:
        if row is not None:
            table.add_row(*_cells(comparison, row, f"[{name}]", set()))
    for row in comparison.rows:
        changed = {one.fact for one in comparison.differences if one.row == row.name}
        table.add_row(*_cells(comparison, row, row.name, changed))
    return table


def _cells(comparison: Comparison, row: Row, name: str, changed: set[str]) -> list[Text]:
    def style(*facts: str) -> str:
        return "red" if changed.intersection(facts) else ""

    first = Text(("* " if changed else "  ") + name, style=style(*FACTS))
    wrong = comparison.wrong(row)
    values = ", ".join(
        f"{shown}{' (!)' if index in wrong else ''}" for index, shown in row.values.items()
    )
    if row.outcome != "compiles":
        values = f"{values}; {row.outcome}" if values else row.outcome
    return [
        first,
        Text(row.types or "-", style=style("types")),
        Text(values or "-", style="red" if wrong else style("values", "outcome")),
        Text(_may(row), style=style("effects", "raises", "allocations")),
        Text((row.digest or "-")[:8], style=style("code")),
    ]


def _may(row: Row) -> str:
    parts = []
    if row.effects is not None:
        parts = [*row.effects, *(["raise"] if row.may_raise else [])] or ["nothing"]
    elif row.allocations:
        counts = sorted(set(row.allocations.values()))
        parts = [f"allocated {'-'.join(map(str, counts))}x"]
    return ", ".join(parts) or "-"


def _remarks(comparison: Comparison) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if any(comparison.wrong(row) for row in comparison.rows):
        lines.append(("(!) is not the hermetic value", "red"))
    elif (
        comparison.python is not None
        and comparison.hermetic is not None
        and comparison.wrong(comparison.python)
    ):
        lines.append(("compiled values differ from the interpreter's in every order", "yellow"))
    facts = [fact for fact in FACTS if any(one.fact == fact for one in comparison.differences)]
    for row in comparison.rows:
        for failed in row.failed_steps:
            lines.append((f"{row.name}: this step raised: {failed}", "dim"))
    if comparison.unstable:
        lines.append(
            (
                f"not compared, for two cold processes differ: {', '.join(comparison.unstable)}",
                "dim",
            )
        )
    lines += [(f"undecided: {one}", "yellow") for one in comparison.undecided]
    ending = {
        "order-dependent": "order-dependent: the order decides "
        + " and ".join(_listed([FACTS[fact] for fact in facts])),
        "stable": f"stable: stock Numba gives one answer in {len(comparison.rows)} orders",
        "undecided": "undecided: some orders gave no answer, the others agree",
    }[comparison.verdict]
    lines.append((ending, _STYLES[comparison.verdict]))
    return lines


def _listed(words: list[str]) -> list[str]:
    """Join all but the last by commas, so that "and" can stand between the two that remain."""
    return words if len(words) < 3 else [", ".join(words[:-1]), words[-1]]

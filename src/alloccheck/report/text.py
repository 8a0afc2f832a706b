"""A report as text for terminals, logs and exceptions."""

from __future__ import annotations

import io
import textwrap

from rich.console import Console
from rich.text import Text

from alloccheck.findings import Finding, Report
from alloccheck.report.excerpt import Group, confirmations, excerpt, groups, place, trace

_Line = tuple[str, str]
"""A line of output and its style."""


def render_text(report: Report, *, color: bool = False, width: int = 100) -> str:
    """Render a report for people.

    Parameters
    ----------
    report : Report
        What to show.
    color : bool
        Whether to use the terminal's colours.
    width : int
        Columns to wrap traces and help at; source lines are never wrapped.

    Returns
    -------
    str
        Without a newline at the end. The last line is the verdict.

    Examples
    --------
    >>> from alloccheck.effects import Guarantee
    >>> print(render_text(Report("dsp:gain", "dsp.py", 3, "none(float64)",
    ...                          Guarantee.NONALLOCATING, True, (), frozenset())))
    proved nonallocating  dsp:gain  none(float64)
    """
    lines: list[_Line] = []
    for group in groups(report.findings):
        lines += _group(report, group, width)
        lines.append(("", ""))
    for assumption in report.assumptions:
        effects = ", ".join(assumption.effects)
        use = "assumed" if assumption.used else "assumption never used"
        head = f"{use}: {assumption.function} is free of {effects}: {assumption.reason}"
        lines += _wrapped(head, "", "   ", width, "cyan" if assumption.used else "yellow")
    for note in report.notes:
        lines += _wrapped(f"note: {note}", "", "   ", width, "dim")
    if report.trial is not None:
        lines += _wrapped(f"run to confirm: {report.trial}", "", "   ", width, "dim")
    lines.append(verdict_line(report))
    if not color:
        return "\n".join(line for line, _ in lines)
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, color_system="standard", width=width, legacy_windows=False
    )
    for line, style in lines:
        console.print(Text(line, style=style), soft_wrap=True, highlight=False)
    return stream.getvalue().rstrip("\n")


def verdict_line(report: Report) -> _Line:
    """Return the one line that says what was decided, and its style.

    Parameters
    ----------
    report : Report
        What to sum up.
    """
    what = f"{report.guarantee}  {report.function}  {report.signature}"
    if report.ok:
        return f"proved {what}", "bold green"
    count = len(report.findings)
    return f"not proved {what}  {count} finding{'s' if count != 1 else ''}", "bold red"


def _group(report: Report, group: Group, width: int) -> list[_Line]:
    finding = group.first
    head = f"{place(report, finding)}: {finding.code} {finding.message}"
    lines: list[_Line] = [(head, "bold")]
    shown = excerpt(finding)
    if shown is not None:
        number = f"{shown.number:5d}"
        lines.append((f"{number} | {shown.text}", ""))
        carets = " " * shown.start + "^" * shown.length
        lines.append((f"{' ' * len(number)} | {carets}", "red"))
    for member in group.findings:
        lines += _trace(report, member, width)
    for reason in dict.fromkeys(_reason(member) for member in group.findings):
        lines += _wrapped(f"because {reason}", "   ", "      ", width, "dim")
    for said in confirmations(group):
        style = "bold red" if said.startswith("confirmed") else "yellow"
        lines += _wrapped(said, "   ", "      ", width, style)
    if finding.help:
        lines += _wrapped(f"help: {finding.help}", "   ", "         ", width, "green")
    return lines


def _reason(finding: Finding) -> str:
    source = f" [{finding.source}]" if finding.source else ""
    return f"{finding.symbol}: {finding.reason}{source}"


def _trace(report: Report, finding: Finding, width: int) -> list[_Line]:
    """Wrap a trace between frames, never inside one."""
    lines: list[_Line] = []
    current = "   in "
    for index, frame in enumerate(trace(report, finding)):
        piece = frame if index == 0 else f" <- {frame}"
        if index and len(current) + len(piece) > width:
            lines.append((current, "dim"))
            current, piece = "      ", piece.lstrip()
        current += piece
    return [*lines, (current, "dim")]


def _wrapped(text: str, first: str, rest: str, width: int, style: str) -> list[_Line]:
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [(line, style) for line in wrapped]

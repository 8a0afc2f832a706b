"""What every rendering of a report shares: groups of findings, short paths, excerpts, traces.

Knows findings and source files; nothing of the form in which they are shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from alloccheck.findings import Finding, Report
from alloccheck.help import short_library_path
from alloccheck.source import Frame, source_line


@dataclass(frozen=True, slots=True)
class Group:
    """Findings that say the same about the same place, each with a trace of its own."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding whose words stand for all."""
        return self.findings[0]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A source line and what to underline in it (columns from 0, after tabs became spaces)."""

    number: int
    text: str
    start: int
    length: int


def groups(findings: Sequence[Finding]) -> tuple[Group, ...]:
    """Bring together findings with the same place, code, message and help, in their order.

    Parameters
    ----------
    findings : sequence of Finding
        The findings of one report.

    Examples
    --------
    >>> groups(())
    ()
    """
    together: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.location, finding.code, finding.message, finding.help)
        together.setdefault(key, []).append(finding)
    return tuple(Group(tuple(members)) for members in together.values())


def confirmations(group: Group) -> tuple[str, ...]:
    """Say of a group's findings what running the function showed; empty when it was not run.

    Parameters
    ----------
    group : Group
        Findings of one place.

    Examples
    --------
    >>> confirmations(Group(()))
    ()
    """
    found = []
    for one in group.findings:
        if one.confirmation is not None:
            what = one.confirmation
            when = f" on {what.input}" if what.input is not None else ""
            found.append(f"{'confirmed' if what.confirmed else 'unconfirmed'}: {what.seen}{when}")
    return tuple(dict.fromkeys(found))


def short_path(file: str) -> str:
    """Write a path relative to the current directory or below ``site-packages``, where it can be.

    Parameters
    ----------
    file : str
        Path of a source file.

    Examples
    --------
    >>> short_path("/usr/lib/python3/site-packages/numba/np/linalg.py")
    'numba/np/linalg.py'
    """
    library = short_library_path(file)
    if library is not None:
        return library
    here = str(FilePath.cwd()) + os.sep
    return file[len(here) :] if file.startswith(here) else file


def place(report: Report, finding: Finding) -> str:
    """Write ``file:line:column`` of a finding, falling back on the function's own place.

    Parameters
    ----------
    report : Report
        The report that holds it.
    finding : Finding
        One of its findings.
    """
    where = finding.location or Frame(report.file, report.line, None, "")
    parts = [short_path(where.file), str(where.line or report.line)]
    if where.column is not None:
        parts.append(str(where.column))
    return ":".join(parts)


def excerpt(finding: Finding) -> Excerpt | None:
    """Return the source line of a finding with the part that it speaks of.

    Parameters
    ----------
    finding : Finding
        A finding.

    Returns
    -------
    Excerpt or None
        None when the source cannot be read.
    """
    where = finding.location
    line = source_line(where.file, where.line) if where else None
    if where is None or line is None or not line.strip():
        return None
    start = (where.column or len(line) - len(line.lstrip()) + 1) - 1
    end = finding.end_column - 1 if finding.end_column else len(line.rstrip())
    text = line.expandtabs()
    shown_start = len(line[:start].expandtabs())
    shown_end = len(line[:end].expandtabs())
    return Excerpt(where.line, text, shown_start, max(shown_end - shown_start, 1))


def arguments(signature: str) -> str:
    """Return the arguments of a signature, with their parentheses.

    Parameters
    ----------
    signature : str
        Numba's form, ``ret(args...)``.

    Examples
    --------
    >>> arguments("Tuple(int64, int64)(array(float64, 1d, C))")
    '(array(float64, 1d, C))'
    >>> arguments("(int64,)")
    '(int64,)'
    """
    depth = 0
    for index in range(len(signature) - 1, -1, -1):
        depth += (signature[index] == ")") - (signature[index] == "(")
        if depth == 0 and signature[index] == "(":
            return signature[index:]
    return signature


def entry_name(report: Report) -> str:
    """Return the checked function as a trace names it, e.g. ``process(float64)``.

    Parameters
    ----------
    report : Report
        A report.
    """
    return report.function.rpartition(":")[2] + arguments(report.signature)


def trace(report: Report, finding: Finding) -> tuple[str, ...]:
    """Write a backtrace from the entry inwards, one text per frame.

    Parameters
    ----------
    report : Report
        The report that holds the finding.
    finding : Finding
        One of its findings.

    Returns
    -------
    tuple of str
        The entry, without its line when that is the finding's own place; then the frames inside.
    """
    inwards = tuple(reversed(finding.backtrace))
    entry = entry_name(report)
    if not inwards:
        return (entry,)
    outer = inwards[0]
    where = finding.location
    at_entry = where is not None and (outer.file, outer.line) == (where.file, where.line)
    # A C entry is in no file.
    first = entry if at_entry or not outer.file else f"{entry} {_at(outer)}"
    return (first, *(f"{_at(frame)} {_plain(frame.function)}".lstrip() for frame in inwards[1:]))


def _at(frame: Frame) -> str:
    return f"{short_path(frame.file)}:{frame.line}" if frame.line else short_path(frame.file)


def _plain(function: str) -> str:
    """Leave out the enclosing functions that Python puts before a nested function's name."""
    return function.rpartition("<locals>.")[2] or function

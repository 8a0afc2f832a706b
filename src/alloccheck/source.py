"""Where something stands in a user's source: frames, backtraces and excerpts.

Knows files and lines only; nothing of compilers or effects.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a static backtrace.

    Parameters
    ----------
    file : str
        Path of the source file, as the compiler recorded it.
    line : int
        Line, counted from 1; 0 when unknown.
    column : int or None
        Column of the expression's first character, counted from 1, when known.
    function : str
        Name of the Python (or C) function that the frame is in.
    inlined : bool
        Whether the frame was inlined into the next, outer one.
    """

    file: str
    line: int
    column: int | None
    function: str
    inlined: bool = False


Backtrace = tuple[Frame, ...]
"""Innermost frame first."""


def source_line(file: str, line: int) -> str | None:
    """Return one line of a source file without its newline, or None when it cannot be read.

    Parameters
    ----------
    file : str
        Path of the source file.
    line : int
        Line, counted from 1.

    Examples
    --------
    >>> source_line("<no such file>", 1) is None
    True
    """
    text = linecache.getline(file, line)
    return text.rstrip("\r\n") if text else None

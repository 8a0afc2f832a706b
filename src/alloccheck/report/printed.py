"""Tables and coloured lines as text: what rich would print, as a string."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def printed(*parts: RenderableType, color: bool, width: int) -> str:
    """Return what rich prints of each part, without blanks at the ends of lines.

    Parameters
    ----------
    *parts : str, Text, Table or another renderable
        One below the other.
    color : bool
        Whether to use the terminal's colours.
    width : int
        Columns to fit into.

    Returns
    -------
    str
        Without a newline at the end.

    Examples
    --------
    >>> print(printed("one", "two", color=False, width=80))
    one
    two
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

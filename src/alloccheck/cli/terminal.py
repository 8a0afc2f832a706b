"""What the commands ask of the terminal: whether there is one, its colours and its width."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])


def color_option(command: F) -> F:
    """Give a command the option ``--color``, whose value is for `use_color`."""
    return click.option(
        "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
    )(command)


def is_terminal() -> bool:
    """Whether standard output is a terminal; it may also be closed, and then is None.

    Examples
    --------
    >>> import contextlib
    >>> with contextlib.redirect_stdout(None):
    ...     is_terminal_now = is_terminal()
    >>> is_terminal_now
    False
    """
    return sys.stdout is not None and sys.stdout.isatty()


def use_color(choice: str, *, terminal: bool | None = None) -> bool:
    """Whether to write colours.

    Parameters
    ----------
    choice : {"auto", "always", "never"}
        The value of ``--color``.
    terminal : bool, optional
        Whether what is written goes to a terminal; by default whether standard output is one.

    Examples
    --------
    >>> use_color("always", terminal=False), use_color("auto", terminal=False)
    (True, False)
    """
    if choice == "auto":
        shown = is_terminal() if terminal is None else terminal
        return shown and not os.environ.get("NO_COLOR")
    return choice == "always"


def columns(elsewhere: int) -> int:
    """Return the terminal's width, or another where standard output is none.

    Parameters
    ----------
    elsewhere : int
        Columns for files and pipes.
    """
    return Console().width if is_terminal() else elsewhere

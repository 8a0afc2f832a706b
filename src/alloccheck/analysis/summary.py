"""The abstract domain: witnesses, and summaries of what a function may do on each path."""

from __future__ import annotations

from dataclasses import dataclass

from alloccheck.effects import Effect, Occasion, Path
from alloccheck.source import Backtrace


@dataclass(frozen=True, slots=True)
class Witness:
    """One reason why a function may have an effect.

    Parameters
    ----------
    effect, path, occasion
        What, on which path of the entry as a whole, on which calls.
    symbol : str
        The external symbol, or a description of the pointer or instruction.
    reason : str
        The contract's sentence, or what could not be decided.
    source : str
        Where that reason can be checked.
    backtrace : tuple of Frame
        From the call site, innermost first, through inlined and called functions to the entry.
    size : int or None
        Constant byte count, when known.
    condition : str
        The contract's condition, when it has one.
    """

    effect: Effect
    path: Path
    occasion: Occasion
    symbol: str
    reason: str
    source: str
    backtrace: Backtrace
    size: int | None = None
    condition: str = ""

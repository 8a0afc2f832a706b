"""What external symbols do, and why we believe it: the tables in `contracts/*.toml`."""

from __future__ import annotations

from dataclasses import dataclass

from alloccheck.effects import Effect, Occasion, Path


@dataclass(frozen=True, slots=True)
class ContractEffect:
    """One effect of an external symbol, and on which calls it can happen."""

    effect: Effect
    occasion: Occasion = Occasion.EVERY_CALL


@dataclass(frozen=True, slots=True)
class Contract:
    """What one external symbol (or pattern of symbols) may do.

    Parameters
    ----------
    symbol : str
        Exact symbol, or a shell pattern when it holds `*`.
    effects : tuple of ContractEffect
        Empty: the symbol is clean.
    reason : str
        Why we believe it, one sentence that users read.
    source : str
        file:line of the runtime's own code, or a test.
    condition : str
        When the effects happen, if not always.
    calls_back : bool
        May call functions of the program whose address was taken.
    path : Path
        DIVERGE: never returns (the process dies); such a call is noted, not forbidden.
    statuses : tuple of int or None
        The integers that it can return, where they are a status.
    """

    symbol: str
    effects: tuple[ContractEffect, ...]
    reason: str
    source: str
    condition: str = ""
    calls_back: bool = False
    path: Path = Path.RETURN
    statuses: tuple[int, ...] | None = None

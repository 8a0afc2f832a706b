"""From witnesses to findings that people read: codes, messages, help; and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.source import Backtrace


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands against the guarantee.

    Parameters
    ----------
    code : str
        Stable code such as ``"AC101"``.
    effect, path, occasion
        See :mod:`alloccheck.effects`.
    symbol : str
        The external symbol reached, or a description.
    message : str
        One sentence: what happens.
    type : str or None
        The Numba type of what is allocated, when known.
    expression : str or None
        The user's source expression, when known.
    size : int or None
        Bytes, when constant.
    backtrace : tuple of Frame
        Innermost frame first.
    reason, source, help : str
        Why we believe it, where to check, and the usual remedy.
    """

    code: str
    effect: Effect
    path: Path
    occasion: Occasion
    symbol: str
    message: str
    type: str | None
    expression: str | None
    size: int | None
    backtrace: Backtrace
    reason: str
    source: str
    help: str


@dataclass(frozen=True, slots=True)
class Assumption:
    """A trust that the user declared with `assume`."""

    function: str
    effects: tuple[Effect, ...]
    reason: str
    used: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict about one function and signature.

    `ok` is True only when the guarantee was proved.
    """

    function: str
    """``module:qualname``."""
    file: str
    line: int
    signature: str
    """Numba's form, ``ret(args...)``."""
    guarantee: Guarantee
    ignore_throw: bool
    findings: tuple[Finding, ...]
    effects: frozenset[Effect]
    """All effects on the return and diverge paths, forbidden or not, and `raise` when it may."""
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    certificate: Any = None
    timings: dict[str, float] = field(default_factory=dict, compare=False, hash=False)
    """Seconds spent in each stage."""

    @property
    def ok(self) -> bool:
        """Whether the guarantee is proved."""
        return not self.findings

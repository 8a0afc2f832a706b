"""The words of the field: effects, paths, occasions and guarantees.

Everything else in the package is written with these words. This module imports nothing of ours.
"""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    """What a piece of code may do, apart from computing its result."""

    ALLOCATE = "allocate"
    """Obtains heap memory: malloc family, mmap/brk, operator new, NRT, CPython objects."""
    FREE = "free"
    """May release heap memory or run a destructor."""
    BLOCK = "block"
    """May wait: lock, futex, sleeping system call, I/O, GIL, thread pool."""
    PYTHON = "python"
    """Touches the interpreter."""
    RAISE = "raise"
    """May end by raising."""
    DISPATCH = "dispatch"
    """Calls through a pointer whose targets are not known."""
    UNKNOWN = "unknown"
    """Reaches something that could not be decided: never a pass."""


class Path(StrEnum):
    """How the call ends on which an effect happens."""

    RETURN = "return"
    RAISE = "raise"
    DIVERGE = "diverge"


class Occasion(StrEnum):
    """On which calls an effect can happen."""

    EVERY_CALL = "every call"
    FIRST_CALL = "first call"
    FIRST_CALL_PER_THREAD = "first call per thread"


class Guarantee(StrEnum):
    """A named set of forbidden effects.

    Examples
    --------
    >>> Effect.FREE in Guarantee.NONALLOCATING.forbidden
    False
    >>> Effect.FREE in Guarantee.NONBLOCKING.forbidden
    True
    """

    NONALLOCATING = "nonallocating"
    NONBLOCKING = "nonblocking"

    @property
    def forbidden(self) -> frozenset[Effect]:
        """Effects that a function under this guarantee must not have."""
        base = {Effect.ALLOCATE, Effect.PYTHON, Effect.DISPATCH, Effect.UNKNOWN}
        if self is Guarantee.NONBLOCKING:
            base |= {Effect.FREE, Effect.BLOCK}
        return frozenset(base)

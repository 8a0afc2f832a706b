"""Sets of 32-bit signed integers as sorted, disjoint, closed intervals.

Knows nothing of programs: this is arithmetic only. Status codes and the comparisons that
optimised code makes of them (equal, less, unsigned range checks) are all sets of this form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LOWEST = -(2**31)
HIGHEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Ranges:
    """A set of 32-bit signed integers.

    Parameters
    ----------
    spans : tuple of (int, int)
        Closed intervals, ascending, with a gap between neighbours. Build one with `of`,
        `span` or `from_spans`, which keep that form.

    Examples
    --------
    >>> positive = Ranges.span(1, HIGHEST)
    >>> Ranges.of(0, -2) & positive
    Ranges(spans=())
    >>> (~positive).spans
    ((-2147483648, 0),)
    >>> 7 in positive
    True
    """

    spans: tuple[tuple[int, int], ...]

    @staticmethod
    def of(*values: int) -> Ranges:
        """Return the set of the given integers, each taken modulo 2**32."""
        if len(values) == 1:
            value = signed(values[0])
            return Ranges(((value, value),))
        return Ranges.from_spans((signed(v), signed(v)) for v in values)

    @staticmethod
    def span(low: int, high: int) -> Ranges:
        """Return all integers from `low` to `high`, both included; empty when `low > high`."""
        return Ranges.from_spans(((low, high),))

    @staticmethod
    def from_spans(spans: Iterable[tuple[int, int]]) -> Ranges:
        """Return the union of closed intervals given in any order; empty ones are dropped."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(s for s in spans if s[0] <= s[1]):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return Ranges(tuple(merged))

    def __or__(self, other: Ranges) -> Ranges:
        if self.spans == other.spans or not other.spans:
            return self
        if not self.spans:
            return other
        return Ranges.from_spans(self.spans + other.spans)

    def __and__(self, other: Ranges) -> Ranges:
        if other.spans == FULL.spans:
            return self
        if self.spans == FULL.spans:
            return other
        return Ranges.from_spans(
            (max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans
        )

    def __invert__(self) -> Ranges:
        gaps, low = [], LOWEST
        for a, b in self.spans:
            gaps.append((low, a - 1))
            low = b + 1
        return Ranges.from_spans([*gaps, (low, HIGHEST)])

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, value: int) -> bool:
        return any(low <= value <= high for low, high in self.spans)

    def shifted(self, offset: int) -> Ranges:
        """Return the set with `offset` added to each member, modulo 2**32.

        Examples
        --------
        >>> Ranges.span(0, 2).shifted(-3).spans
        ((-3, -1),)
        """
        moved = []
        for low, high in self.spans:
            if high - low >= 2**32 - 1:
                return FULL
            a, b = signed(low + offset), signed(high + offset)
            moved += [(a, b)] if a <= b else [(a, HIGHEST), (LOWEST, b)]
        return Ranges.from_spans(moved)


def signed(value: int) -> int:
    """Return an integer's low 32 bits read as a signed number.

    Examples
    --------
    >>> signed(0xFFFFFFFE)
    -2
    """
    return (value + 2**31) % 2**32 - 2**31


def unsigned_span(low: int, high: int) -> Ranges:
    """Return the members of the unsigned interval `low..high`, read as signed numbers.

    Examples
    --------
    >>> unsigned_span(0xFFFFFFFE, 0xFFFFFFFF).spans
    ((-2, -1),)
    """
    below = (low, min(high, HIGHEST))
    above = (max(low, 2**31) - 2**32, high - 2**32)
    return Ranges.from_spans((below, above))


FULL = Ranges(((LOWEST, HIGHEST),))
"""Every 32-bit integer: nothing is known."""

EMPTY = Ranges(())
"""No integer: the value is never computed."""

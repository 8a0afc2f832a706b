"""The abstract domain: witnesses, and summaries of what a function may do on each path.

Knows effects and call sites; nothing of how programs are read or solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """What may happen at a call site, apart from where: a witness without path and place."""

    effect: Effect
    symbol: str
    occasion: Occasion
    reason: str
    source: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A call site: a function and the index of a call in it."""

    function: str
    call: int


Trail = tuple[Site, ...]
"""Call sites from the innermost outward."""

Visible = Callable[[Trail], object]
"""What a user sees of a trail; trails that look the same are one."""


@dataclass(frozen=True)
class Summary:
    """What a function may do: for each way it ends, the causes and the trails that show them.

    Summaries form a join semilattice under `join` with `BOTTOM` as least element; `covers` is
    its order. The order looks at causes alone: trails are evidence, of which any is enough.

    Parameters
    ----------
    entries : mapping of (Path, Cause) to tuple of Trail
        At least one trail for each cause.

    Examples
    --------
    >>> cause = Cause(Effect.ALLOCATE, "malloc", Occasion.EVERY_CALL, "it does", "malloc(3)")
    >>> one = Summary({(Path.RETURN, cause): ((Site("f", 0),),)})
    >>> one.covers(BOTTOM), BOTTOM.covers(one)
    (True, False)
    >>> one.join(BOTTOM) == one
    True
    """

    entries: Mapping[tuple[Path, Cause], tuple[Trail, ...]] = field(default_factory=dict)

    def on(self, path: Path) -> frozenset[Cause]:
        """Return the causes on one path."""
        return frozenset(cause for p, cause in self.entries if p is path)

    def covers(self, other: Summary) -> bool:
        """Return whether everything that `other` may do is in this summary."""
        return self.entries.keys() >= other.entries.keys()

    def join(self, other: Summary, limit: int = 64, visible: Visible = lambda t: t) -> Summary:
        """Return what either may do; see `collect` for how trails are chosen."""
        if not other.entries:
            return self
        if not self.entries:
            return other
        pairs = [
            (key, trail)
            for summary in (self, other)
            for key, trails in summary.entries.items()
            for trail in trails
        ]
        return collect(pairs, limit, visible)

    def through(self, site: Site, paths: Mapping[Path, Path], dropped: Iterable[Effect]) -> Summary:
        """Return what a caller does by a call of this function.

        Parameters
        ----------
        site : Site
            The call site in the caller.
        paths : mapping of Path to Path
            How the caller ends when this function ends in a given way.
        dropped : iterable of Effect
            Effects that are assumed not to happen.

        Notes
        -----
        A trail that comes back to a function it already went through shows nothing new and is
        dropped, unless it is the only one for its cause.
        """
        unwanted = frozenset(dropped)
        entries: dict[tuple[Path, Cause], tuple[Trail, ...]] = {}
        for (path, cause), trails in self.entries.items():
            if cause.effect in unwanted:
                continue
            key = paths[path], cause
            simple = tuple(t for t in trails if all(step.function != site.function for step in t))
            longer = tuple((*trail, site) for trail in simple or trails[:1])
            entries[key] = (*entries.get(key, ()), *longer)
        return Summary(entries)


BOTTOM = Summary()
"""Does nothing, or is not known to do anything yet."""


def collect(
    pairs: Iterable[tuple[tuple[Path, Cause], Trail]],
    limit: int = 64,
    visible: Visible = lambda trail: trail,
) -> Summary:
    """Return the summary of many findings, with at most `limit` trails for each cause and path.

    Parameters
    ----------
    pairs : iterable of ((Path, Cause), Trail)
        Findings in a fixed order.
    limit : int
        How many trails to keep: the shortest, and of these the first.
    visible : callable
        Trails for which it gives the same are merged.
    """
    found: dict[tuple[Path, Cause], list[Trail]] = {}
    for key, trail in pairs:
        found.setdefault(key, []).append(trail)
    entries = {}
    for key, trails in found.items():
        kept: dict[object, Trail] = {}
        for trail in sorted(trails, key=len):
            kept.setdefault(visible(trail), trail)
            if len(kept) == limit:
                break
        entries[key] = tuple(kept.values())
    return Summary(entries)

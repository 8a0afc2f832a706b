"""Which blocks of native code run only when the call ends by unwinding.

Knows chunks and what their calls are shown to do; nothing of effects, names or libraries. The rule
is that of jitted code (see `paths`): an end that raises is reached, no end that may be normal, the
block is in no loop, and no loop without exit is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alloccheck.analysis.graphs import cyclic, predecessors, reachable
from alloccheck.program.machine.chunk import Chunk, CodeBlock, Ending, EventKind
from alloccheck.program.machine.walk import Link, Node

Returns = Callable[[int], bool]
"""Whether the function at an address may return to its caller."""
Throws = Callable[[int], bool]
"""Whether a function that never returns may end by unwinding, by a jump out or with its thread."""
Last = Callable[[int, CodeBlock], int | None]
"""Position of the event after which control does not go on, by block."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How control can leave a function, by block.

    Parameters
    ----------
    successors : list of list of int
        Blocks that control goes on to; none after a call that does not return.
    normal : frozenset of int
        Blocks that may return to the caller.
    thrown : frozenset of int
        Blocks that may end by unwinding.
    """

    successors: list[list[int]]
    normal: frozenset[int]
    thrown: frozenset[int]

    def raising(self) -> frozenset[int]:
        """Return the blocks that run only when the function ends by unwinding.

        Examples
        --------
        >>> # Block 0 goes to a return or to a throw, by way of 2, a loop before which 4 lies.
        >>> ends = Ends([[1, 2, 4], [], [3], [], [5], [5, 3]], frozenset({1}), frozenset({3}))
        >>> sorted(ends.raising())
        [2, 3, 4]
        """
        if not self.thrown:
            return frozenset()
        before = predecessors(self.successors)
        found = reachable(before, self.thrown) - reachable(before, self.normal)
        return frozenset(found - cyclic(self.successors) - self._trapped(before))

    def may_hang(self) -> bool:
        """Return whether a loop without exit can be reached from the entry.

        Examples
        --------
        >>> Ends([[1], [1]], frozenset(), frozenset()).may_hang()
        True
        >>> Ends([[1], [1, 2], []], frozenset({2}), frozenset()).may_hang()
        False
        """
        return 0 in self._trapped(predecessors(self.successors))

    def _trapped(self, before: list[list[int]]) -> set[int]:
        """Return the blocks from which a loop without exit can be reached."""
        leaves = [number for number, onward in enumerate(self.successors) if not onward]
        stuck = set(range(len(self.successors))) - reachable(before, leaves)
        return reachable(before, stuck)


def ends_of(node: Node, chunk: Chunk, last: Last, returns: Returns, throws: Throws) -> Ends:
    """Return how control can leave a function.

    Parameters
    ----------
    node, chunk
        The function.
    last, returns, throws : callable
        What its calls are shown to do.
    """
    successors: list[list[int]] = []
    normal, thrown = set(), set()

    def out(links: tuple[Link, ...]) -> tuple[bool, bool]:
        """Return whether control may come back from one of these targets, and may unwind."""
        known = [link.target for link in links if link.target is not None]
        back = len(known) < len(links) or not links or any(map(returns, known))
        return back, not back and any(map(throws, known))

    for number, block in enumerate(chunk.blocks):
        end = last(number, block)
        if end is None:
            successors.append(list(block.successors))
            if block.ending is Ending.LEAVE:
                back, unwinds = out(node.links.get((number, len(block.events) - 1), ()))
            else:
                back = block.ending not in (Ending.NEXT, Ending.DIE)
                back, unwinds = back or (block.ending is Ending.NEXT and not successors[-1]), False
        else:
            successors.append([])
            back = False
            links = node.links.get((number, end), ())
            # A system call after which nothing follows ends the thread or the process.
            called = block.events[end].kind is EventKind.CALL
            unwinds = not called or any(
                link.target is not None and throws(link.target) for link in links
            )
        if back:
            normal.add(number)
        if unwinds:
            thrown.add(number)
    return Ends(successors, frozenset(normal), frozenset(thrown))

"""Graph algorithms over small integer nodes: order, dominators, components, reachability.

Knows nothing of programs or effects. All algorithms are iterative: graphs of compiled code are
deeper than the interpreter's stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Successors = Sequence[Sequence[int]]
"""The successors of node i stand at index i."""


def predecessors(successors: Successors) -> list[list[int]]:
    """Return the reversed graph; a doubled edge stays doubled.

    Examples
    --------
    >>> predecessors([[1, 2], [2], []])
    [[], [0], [0, 1]]
    """
    reverse: list[list[int]] = [[] for _ in successors]
    for node, targets in enumerate(successors):
        for target in targets:
            reverse[target].append(node)
    return reverse


def reachable(successors: Successors, starts: Iterable[int]) -> set[int]:
    """Return the nodes that can be reached from `starts`, those included.

    Examples
    --------
    >>> sorted(reachable([[1], [], [1]], [0]))
    [0, 1]
    """
    seen: set[int] = set()
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(successors[node])
    return seen


def reverse_postorder(successors: Successors, start: int = 0) -> list[int]:
    """Return the nodes reachable from `start`, each before its successors except on back edges.

    Examples
    --------
    >>> reverse_postorder([[1, 2], [3], [3], []])
    [0, 2, 1, 3]
    """
    order: list[int] = []
    seen = {start}
    stack = [(start, iter(successors[start]))]
    while stack:
        node, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(successors[target])))
                break
        else:
            order.append(node)
            stack.pop()
    order.reverse()
    return order


def dominators(successors: Successors, start: int = 0) -> dict[int, int]:
    """Return each reachable node's immediate dominator; that of `start` is itself.

    Cooper, Harvey and Kennedy, *A Simple, Fast Dominance Algorithm* (2001).

    Examples
    --------
    >>> dominators([[1, 2], [3], [3], []])
    {0: 0, 2: 0, 1: 0, 3: 0}
    """
    order = reverse_postorder(successors, start)
    rank = {node: i for i, node in enumerate(order)}
    before = predecessors(successors)
    above = {start: start}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best: int | None = None
            for other in before[node]:
                if other not in above:
                    continue
                if best is None:
                    best = other
                    continue
                a, b = other, best
                while a != b:
                    while rank[a] > rank[b]:
                        a = above[a]
                    while rank[b] > rank[a]:
                        b = above[b]
                best = a
            # A node of reverse postorder always has one predecessor that came before it.
            assert best is not None
            if above.get(node) != best:
                above[node] = best
                changed = True
    return {node: above[node] for node in order}


def dominates(above: dict[int, int], upper: int, lower: int) -> bool:
    """Return whether every path from the start to `lower` goes through `upper`.

    Parameters
    ----------
    above : dict of int to int
        What `dominators` returned.
    upper, lower : int
        Two nodes; one that was not reachable dominates nothing and is dominated by nothing.

    Examples
    --------
    >>> tree = dominators([[1], [2], []])
    >>> dominates(tree, 1, 2), dominates(tree, 2, 1)
    (True, False)
    """
    if lower not in above:
        return False
    while lower != upper:
        if above[lower] == lower:
            return False
        lower = above[lower]
    return True


def components(successors: Successors) -> list[list[int]]:
    """Return the strongly connected components, each after all that it can reach.

    Tarjan, *Depth-First Search and Linear Graph Algorithms* (1972), without recursion.

    Examples
    --------
    >>> components([[1], [2, 0], []])
    [[2], [0, 1]]
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    found: list[list[int]] = []
    for root in range(len(successors)):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        open_nodes.append(root)
        is_open.add(root)
        stack = [(root, iter(successors[root]))]
        while stack:
            node, targets = stack[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    open_nodes.append(target)
                    is_open.add(target)
                    stack.append((target, iter(successors[target])))
                    break
                if target in is_open:
                    low[node] = min(low[node], index[target])
            else:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = open_nodes.pop()
                        is_open.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(sorted(component))
    return found


def cyclic(successors: Successors) -> set[int]:
    """Return the nodes that lie on a cycle.

    Examples
    --------
    >>> sorted(cyclic([[1], [1, 2], []]))
    [1]
    """
    return {
        node
        for component in components(successors)
        for node in component
        if len(component) > 1 or node in successors[node]
    }

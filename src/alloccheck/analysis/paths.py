"""Which blocks of a function run only when it ends by raising, and which codes it can return.

Knows the program graph and a status convention; nothing of effects, symbols or contracts.
Integers that functions return are followed through phis, selects and the facts on edges; an
edge whose facts contradict what is known is never taken.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from alloccheck.analysis.graphs import cyclic, predecessors, reachable, reverse_postorder
from alloccheck.effects import Path
from alloccheck.program.model import (
    Block,
    Bounded,
    Call,
    CallResult,
    Choice,
    Constant,
    Edge,
    Fact,
    Function,
    OneOf,
    Output,
    Phi,
    Within,
)
from alloccheck.program.ranges import EMPTY, FULL, Ranges

State = Mapping[str, Ranges]
"""What is known of named values at some point; a value that is not named is not narrowed."""

ReturnedCodes = Callable[[Call], Ranges]
"""From a call to the integers that it may return."""

CallTest = Callable[[Call], bool]
"""A question about a call."""


_NUMBER = re.compile(r"\.\d+$")


def _never(call: Call) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StatusConvention:
    """How functions say by an integer that they end by raising.

    Parameters
    ----------
    ok : frozenset of int
        Codes of a normal end; every other code means that an exception is under way.
    parameters : tuple of str
        Names of the leading parameters by which a function that follows the convention is
        recognised; empty when names say nothing.
    functions : frozenset of str
        Further functions that follow the convention, by symbol.
    wrappers : frozenset of str
        Functions that return something else, and end "by raising" when a function that follows
        the convention, called by them, reports an error (such as C callbacks).

    Examples
    --------
    >>> StatusConvention(ok=frozenset({0})).errors.spans[1]
    (1, 2147483647)
    """

    ok: frozenset[int] = frozenset({0, -2, -3})
    parameters: tuple[str, ...] = ("%retptr", "%excinfo")
    functions: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()

    @property
    def normal(self) -> Ranges:
        """The codes of a normal end."""
        return Ranges.of(*self.ok)

    @property
    def errors(self) -> Ranges:
        """The codes that say that an exception is under way."""
        return ~self.normal

    def reports(self, output: Output) -> bool:
        """Return whether a store hands an error of the function's own to its caller."""
        return (
            len(self.parameters) > 1
            and not output.passed_on
            and _NUMBER.sub("", output.parameter) == self.parameters[1]
        )

    def governs(self, function: Function) -> bool:
        """Return whether what a function returns is a status."""
        if function.name in self.functions:
            return function.has_status
        lead = function.parameters[: len(self.parameters)]
        # A name that occurs more than once in a module may carry a number: `%retptr.1`.
        return (
            function.has_status
            and bool(lead)
            and tuple(_NUMBER.sub("", name) for name in lead) == self.parameters
        )


@dataclass(frozen=True)
class Flow:
    """What a walk from one point of a function reaches.

    `states` are the blocks reached and what is known on entry of each; `edges` the edges that
    can be taken; `codes` the integers that the function can return from there.
    """

    states: Mapping[int, State]
    edges: frozenset[tuple[int, int]]
    codes: Ranges


def evaluate(function: Function, name: str | None, state: State, codes: ReturnedCodes) -> Ranges:
    """Return the integers that a value may be where `state` holds.

    Parameters
    ----------
    function : Function
        The function that the value belongs to.
    name : str or None
        The value; None when nothing is known of it.
    state : State
        What the edges taken said.
    codes : ReturnedCodes
        What calls may return.
    """
    return _evaluate(function, name, state, codes, 0)


_DEEPEST_CHOICE = 16


def _evaluate(
    function: Function, name: str | None, state: State, codes: ReturnedCodes, depth: int
) -> Ranges:
    if name is None:
        return FULL
    if (known := state.get(name)) is not None:
        return known
    match function.values.get(name):
        case Constant(value):
            return Ranges.of(value)
        case CallResult(call):
            return codes(function.calls[call])
        case Bounded(ranges):
            return ranges
        case OneOf(values) if depth < _DEEPEST_CHOICE:
            found = EMPTY
            for source in values:
                found = found | _evaluate(function, source, state, codes, depth + 1)
            return found
        case Choice(arms) if depth < _DEEPEST_CHOICE:
            found = EMPTY
            for arm, facts in arms:
                narrowed = _refine(function, state, facts, codes, depth + 1)
                if narrowed is not None:
                    found = found | _evaluate(function, arm, narrowed, codes, depth + 1)
            return found
    # A phi that the walk has not entered, or something opaque.
    return FULL


def _allowed(fact: Fact | Within) -> Ranges:
    """Return the integers that a fact allows."""
    if isinstance(fact, Within):
        return fact.ranges
    allowed = Ranges.of(fact.constant)
    return allowed if fact.equal else ~allowed


def _refine(
    function: Function,
    state: State,
    facts: tuple[Fact | Within, ...],
    codes: ReturnedCodes,
    depth: int = 0,
) -> State | None:
    """Return the state after facts, or None when they cannot all hold."""
    if not facts:
        return state
    refined = dict(state)
    for fact in facts:
        found = _evaluate(function, fact.value, refined, codes, depth) & _allowed(fact)
        if not found:
            return None
        refined[fact.value] = found
    return refined


_Required = tuple[tuple[str, Ranges], ...]
"""What phis must have been for a path to go on as it did, the newest first."""

_MOST_REQUIRED = 2
_MOST_NODES = 16


def _before_edge(
    function: Function,
    required: _Required,
    edge: Edge,
    target: int,
    source: int,
    state: State,
    codes: ReturnedCodes,
) -> _Required | None:
    """Return what must hold in `source` for what is required in `target`; None when it cannot.

    Leaving out a requirement is always right: more paths are then thought possible.
    """
    found: dict[str, Ranges] = {}

    def require(name: str, ranges: Ranges) -> None:
        found[name] = found[name] & ranges if name in found else ranges

    for fact in edge.facts:
        if isinstance(function.values.get(fact.value), Phi):
            require(fact.value, _allowed(fact))
    for name, ranges in required:
        value = function.values.get(name)
        names: tuple[str, ...] = (name,)
        if isinstance(value, Phi) and value.block == target:
            names = tuple(v for v, b in value.incoming if b == source)
        if names and not any(_evaluate(function, n, state, codes, 0) & ranges for n in names):
            return None
        if len(names) == 1 and isinstance(function.values.get(names[0]), Phi):
            require(names[0], ranges)
    return tuple(found.items())[:_MOST_REQUIRED]


@dataclass(frozen=True)
class _Shape:
    """What of a function does not depend on codes: its order and its phis."""

    function: Function
    rank: Mapping[int, int]
    phis: Mapping[int, tuple[tuple[str, Mapping[int, tuple[str, ...]]], ...]]

    @staticmethod
    def of(function: Function) -> _Shape:
        successors = [[e.target for e in block.edges] for block in function.blocks]
        order = reverse_postorder(successors)
        phis: dict[int, list[tuple[str, Mapping[int, tuple[str, ...]]]]] = {}
        for name, value in function.values.items():
            if isinstance(value, Phi):
                incoming: dict[int, tuple[str, ...]] = {}
                for source, block in value.incoming:
                    incoming[block] = (*incoming.get(block, ()), source)
                phis.setdefault(value.block, []).append((name, incoming))
        return _Shape(
            function,
            {block: i for i, block in enumerate(order)},
            {block: tuple(found) for block, found in phis.items()},
        )

    def cross(self, state: State, edge: Edge, source: int, codes: ReturnedCodes) -> State | None:
        """Return what is known after an edge was taken, or None when it cannot be."""
        after = _refine(self.function, state, edge.facts, codes)
        phis = self.phis.get(edge.target)
        if after is None or not phis:
            return after
        moved = dict(after)
        for name, incoming in phis:
            moved.pop(name, None)
            sources = incoming.get(source)
            if sources is None:
                continue
            found = EMPTY
            for value in sources:
                found = found | _evaluate(self.function, value, after, codes, 0)
            if found != FULL:
                moved[name] = found
        return moved

    def walk(
        self, start: Block, state: State, codes: ReturnedCodes, deadly: CallTest, *, after: bool
    ) -> Flow:
        """Return all that can be reached from a block, or from its end when `after` is set.

        Optimistic: begins with nothing reached and grows to the least fixpoint, as conditional
        constant propagation does (Wegman and Zadeck 1991).
        """
        function, rank = self.function, self.rank
        states: dict[int, State] = {}
        edges: set[tuple[int, int]] = set()
        returned = EMPTY
        queue: list[tuple[int, int]] = []

        def leave(block: Block, state: State) -> None:
            nonlocal returned
            if any(deadly(function.calls[c]) for c in block.calls):
                return
            if block.exits:
                returned = returned | _evaluate(function, block.returns, state, codes, 0)
            for edge in block.edges:
                moved = self.cross(state, edge, block.index, codes)
                if moved is None:
                    continue
                edges.add((block.index, edge.target))
                old = states.get(edge.target)
                new = moved if old is None else _join(old, moved)
                if old is None or new != old:
                    states[edge.target] = new
                    heapq.heappush(queue, (rank.get(edge.target, 0), edge.target))

        if after:
            leave(start, state)
        else:
            states[start.index] = state
            queue.append((rank.get(start.index, 0), start.index))
        while queue:
            _, index = heapq.heappop(queue)
            while queue and queue[0][1] == index:
                heapq.heappop(queue)
            leave(function.blocks[index], states[index])
        return Flow(states, frozenset(edges), returned)


def _join(a: State, b: State) -> State:
    return {name: a[name] | b[name] for name in a if name in b}


@dataclass(frozen=True)
class FunctionPaths:
    """What the paths of one function are, given what its callees return.

    Parameters
    ----------
    function : Function
        The function.
    codes : Ranges
        The integers that it can return.
    by_block : mapping of int to Path
        How the function ends when it runs a block: `RETURN` when it may return normally from
        there, `RAISE` when it can only raise, `DIVERGE` otherwise: it may run without end, though
        it may also raise. Blocks that never run are missing.
    doomed : frozenset of int
        Blocks from which every path ends the process.
    raises : bool
        Whether it can end by raising.
    diverges : bool
        Whether it can reach a loop without exit, its own or a callee's.
    """

    function: Function
    codes: Ranges
    by_block: Mapping[int, Path]
    doomed: frozenset[int]
    raises: bool
    diverges: bool
    _analysis: _Analysis = field(repr=False, compare=False)

    def runs(self, call: Call) -> bool:
        """Return whether a call can be reached at all."""
        return call.block in self.by_block

    def after_error(self, call: Call) -> Path:
        """Return how this function ends when a call in it reports an error.

        `RETURN` means that the error may be caught.
        """
        return self._analysis.after_error(call, self.by_block)


@dataclass(frozen=True)
class _Analysis:
    shape: _Shape
    convention: StatusConvention
    returned: ReturnedCodes
    diverging: CallTest
    is_status_call: CallTest
    deadly: CallTest

    @cached_property
    def flow(self) -> Flow:
        return self.shape.walk(
            self.shape.function.blocks[0], {}, self.returned, self.deadly, after=False
        )

    @cached_property
    def governed(self) -> bool:
        return self.convention.governs(self.shape.function)

    @cached_property
    def successors(self) -> list[list[int]]:
        """Edges that can be taken."""
        graph: list[list[int]] = [[] for _ in self.shape.function.blocks]
        for source, target in sorted(self.flow.edges):
            graph[source].append(target)
        return graph

    @cached_property
    def cycles(self) -> set[int]:
        return cyclic(self.successors)

    @cached_property
    def trapped(self) -> set[int]:
        """Blocks from which a loop without exit, or a call that may not end, can be reached."""
        blocks, states = self.shape.function.blocks, self.flow.states
        backwards = predecessors(self.successors)
        leaves = [i for i in states if not self.successors[i]]
        escaping = reachable(backwards, leaves)
        seeds = [i for i in states if i not in escaping]
        for i in states:
            if any(self.diverging(self.shape.function.calls[c]) for c in blocks[i].calls):
                seeds.append(i)
        return reachable(backwards, seeds)

    @cached_property
    def normal_blocks(self) -> set[int]:
        """Blocks from which a normal end can be reached, seen along single edges.

        Walks back from each return with the value that is returned there: through a phi the
        walk goes on only along edges whose incoming value may be a code of a normal end, so a
        merged return block does not spoil the paths that raise. What the edges taken say of other
        phis is kept until the phi is met: a callee that was inlined ends in one block, with a phi
        that says how, and a branch on it after more code.
        """
        shape, states, returned = self.shape, self.flow.states, self.returned
        function = shape.function
        normal = self.convention.normal if self.governed else FULL
        incoming: dict[int, list[tuple[int, Edge]]] = {}
        for i in states:
            for edge in function.blocks[i].edges:
                incoming.setdefault(edge.target, []).append((i, edge))
        todo: list[tuple[int, str | None, _Required]] = []
        for i, state in states.items():
            block = function.blocks[i]
            if block.exits:
                name = block.returns if self.governed else None
                if evaluate(function, name, state, returned) & normal:
                    todo.append((i, name, ()))
        seen: set[tuple[int, str | None, _Required]] = set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            index, name, required = node
            value = function.values.get(name) if name is not None else None
            for source, edge in incoming.get(index, ()):
                before = _refine(function, states[source], edge.facts, returned)
                if before is None:
                    continue
                earlier = _before_edge(function, required, edge, index, source, before, returned)
                if earlier is None:
                    continue
                if len(seen) > _MOST_NODES * len(states):
                    earlier = ()
                names: tuple[str | None, ...] = (name,)
                if isinstance(value, Phi) and value.block == index:
                    names = tuple(v for v, b in value.incoming if b == source) or (None,)
                for moved in names:
                    if evaluate(function, moved, before, returned) & normal:
                        todo.append((source, moved, earlier))
        return {index for index, _, _ in seen}

    def by_block(self) -> dict[int, Path]:
        if self.shape.function.name in self.convention.wrappers:
            return self._wrapper_paths()
        ending = self._raising_blocks()
        paths = {}
        for i in sorted(self.flow.states):
            if i in self.normal_blocks:
                paths[i] = Path.RETURN
            elif i in ending and i not in self.cycles and i not in self.trapped:
                paths[i] = Path.RAISE
            else:
                paths[i] = Path.DIVERGE
        return paths

    def may_raise(self) -> bool:
        """Return whether the function can end by raising.

        An integer that is not known to be no status is taken for one here.
        """
        function, errors = self.shape.function, self.convention.errors
        if function.has_status and function.name not in self.convention.wrappers:
            return bool(self.flow.codes & errors)
        return any(
            self.is_status_call(call) and bool(self.returned(call) & errors)
            for call in function.calls
            if call.block in self.flow.states
        )

    def doomed(self) -> frozenset[int]:
        """Blocks from which nothing but the death of the process can be reached."""
        function, states = self.shape.function, self.flow.states
        surviving = [
            i
            for i in states
            if not self.successors[i]
            and not any(self.deadly(function.calls[c]) for c in function.blocks[i].calls)
        ]
        alive = reachable(predecessors(self.successors), surviving)
        return frozenset(states.keys() - alive - self.cycles - self.trapped)

    def _raising_blocks(self) -> set[int]:
        """Blocks from which an end by raising can be reached."""
        function = self.shape.function
        if not self.governed:
            return set()
        exits = [
            i
            for i, state in self.flow.states.items()
            if function.blocks[i].exits
            and evaluate(function, function.blocks[i].returns, state, self.returned)
            & self.convention.errors
        ]
        return reachable(predecessors(self.successors), exits)

    def _without_errors(self, call: Call) -> Ranges:
        codes = self.returned(call)
        return codes & self.convention.normal if self.is_status_call(call) else codes

    def _wrapper_paths(self) -> dict[int, Path]:
        """Paths of a wrapper: what does not run while no callee reports an error raises."""
        entry = self.shape.function.blocks[0]
        normal = self.shape.walk(entry, {}, self._without_errors, self.deadly, after=False).states
        paths = {}
        for i in sorted(self.flow.states):
            if i in normal:
                paths[i] = Path.RETURN
            elif i in self.cycles or i in self.trapped:
                paths[i] = Path.DIVERGE
            else:
                paths[i] = Path.RAISE
        return paths

    def after_error(self, call: Call, by_block: Mapping[int, Path]) -> Path:
        function = self.shape.function
        here = by_block.get(call.block, Path.DIVERGE)
        if here is Path.RAISE or function.name in self.convention.wrappers:
            return Path.RAISE
        block = function.blocks[call.block]
        state = dict(self.flow.states.get(call.block, {}))
        names = [n for n, v in function.values.items() if v == CallResult(call.index)]
        for name in names:
            state[name] = self.returned(call) & self.convention.errors
        if not names and not self.governed:
            return here
        flow = self.shape.walk(block, state, self.returned, self.deadly, after=True)
        if not self.governed or flow.codes & self.convention.normal:
            return Path.RETURN
        later = block.calls[block.calls.index(call.index) + 1 :]
        endless = (
            flow.states.keys() & self.cycles
            or flow.states.keys() & self.trapped
            or any(self.diverging(function.calls[c]) for c in later)
        )
        return Path.DIVERGE if endless or not flow.codes else Path.RAISE


def analyse_function(
    function: Function,
    convention: StatusConvention,
    returned: ReturnedCodes,
    diverging: CallTest = _never,
    is_status_call: CallTest = _never,
    deadly: CallTest = _never,
) -> FunctionPaths:
    """Return the paths of one function.

    A block runs only when the function ends by raising iff it reaches an end whose code is an
    error; it reaches no end whose code may be normal, where edges into a merged return block
    are told apart by the value that they bring; it is in no cycle; and it reaches no loop
    without exit.

    Parameters
    ----------
    function : Function
        The function.
    convention : StatusConvention
        What the integers it returns mean.
    returned : ReturnedCodes
        What its calls may return.
    diverging : callable
        Whether a call may reach a loop without exit.
    is_status_call : callable
        Whether what a call returns is a status.
    deadly : callable
        Whether a call ends the process.
    """
    analysis = _Analysis(
        _Shape.of(function), convention, returned, diverging, is_status_call, deadly
    )
    by_block = analysis.by_block()
    codes = analysis.flow.codes
    raises = analysis.may_raise()
    diverges = any(i in analysis.trapped for i in by_block)
    return FunctionPaths(function, codes, by_block, analysis.doomed(), raises, diverges, analysis)


def analyse_component(
    members: list[Function],
    convention: StatusConvention,
    external: Callable[[Function, Call], Ranges | None],
    callees: Callable[[Function, Call], tuple[str, ...]],
    callbacks: Callable[[Function, Call], tuple[str, ...]],
    solved: Mapping[str, FunctionPaths],
    governed: Callable[[str], bool],
    deadly: Callable[[Function, Call], bool],
) -> dict[str, FunctionPaths]:
    """Return the paths of the functions of one strongly connected component.

    Begins with functions that return nothing and grows to the least fixpoint, so that the
    codes of recursive functions are as exact as those of others.

    Parameters
    ----------
    members : list of Function
        The component; all that it calls outside itself is in `solved`.
    convention : StatusConvention
        What statuses mean.
    external : callable
        What a call that leaves the program may return; None for a call that does not leave it.
    callees : callable
        The functions of the program that a call may reach, whose result it then returns.
    callbacks : callable
        The functions of the program that run inside an external call.
    solved : mapping of str to FunctionPaths
        Results of the components below.
    governed : callable
        Whether the function of a name returns a status.
    deadly : callable
        Whether a call ends the process.
    """
    codes = {f.name: EMPTY for f in members}
    diverges = {f.name: False for f in members}

    def of(function: Function) -> FunctionPaths:
        def returned(call: Call) -> Ranges:
            found = external(function, call)
            total = EMPTY if found is None else found
            for name in callees(function, call):
                total = total | (codes[name] if name in codes else solved[name].codes)
            return total

        def diverging(call: Call) -> bool:
            return any(
                diverges[name] if name in diverges else solved[name].diverges
                for name in (*callees(function, call), *callbacks(function, call))
            )

        def is_status_call(call: Call) -> bool:
            return any(governed(name) for name in callees(function, call))

        return analyse_function(
            function,
            convention,
            returned,
            diverging,
            is_status_call,
            lambda call: deadly(function, call),
        )

    first = members[0]
    recursive = len(members) > 1 or any(
        first.name in (*callees(first, call), *callbacks(first, call)) for call in first.calls
    )
    while True:
        results = {f.name: of(f) for f in members}
        # Nothing new, not the same: a loop that seemed endless while a callee returned nothing
        # may have an exit after all, and what was assumed of it stays assumed.
        stable = all(
            codes[n] | r.codes == codes[n] and (diverges[n] or not r.diverges)
            for n, r in results.items()
        )
        for name, result in results.items():
            codes[name] = codes[name] | result.codes
            diverges[name] = diverges[name] or result.diverges
        if stable or not recursive:
            return results

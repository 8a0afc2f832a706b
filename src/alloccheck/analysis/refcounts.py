"""Which decrements of reference counts cannot free anything that existed before the call.

Two cases are decided: the object is an argument of the entry, which its caller holds; or the
decrement undoes an increment of the same pointer in the same function. Knows the program
graph and two names; nothing of what a decrement does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alloccheck.analysis.graphs import cyclic, dominates, dominators, reachable
from alloccheck.analysis.summary import Site
from alloccheck.program.model import Call, Direct, Function, Program

Running = Mapping[str, tuple[Call, ...]]
"""From each function that the entry may reach to its calls that can run."""


@dataclass(frozen=True, slots=True)
class RefcountNames:
    """The functions that count references; each takes the object as its only argument.

    Parameters
    ----------
    incref, decref : str
        Symbols; copies that linking renamed (``decref.5``) are meant too.
    held : frozenset of str
        Functions, apart from the entry, whose pointer arguments their caller holds.
    """

    incref: str = "NRT_incref"
    decref: str = "NRT_decref"
    held: frozenset[str] = frozenset()


def is_copy_of(symbol: str, name: str) -> bool:
    """Return whether a symbol is a name, or a copy of it that linking renamed.

    Examples
    --------
    >>> is_copy_of("NRT_decref.5", "NRT_decref"), is_copy_of("NRT_decref_x", "NRT_decref")
    (True, False)
    """
    return symbol == name or re.fullmatch(re.escape(name) + r"\.\d+", symbol) is not None


def harmless_decrefs(
    program: Program,
    running: Running,
    callees: Callable[[Site], tuple[str, ...]],
    names: RefcountNames,
) -> frozenset[Site]:
    """Return the calls of `decref` that cannot free what existed before the entry was called.

    Parameters
    ----------
    program : Program
        The program.
    running : mapping
        Its functions that may run, with their calls that may run.
    callees : callable
        The functions of the program that a call may reach.
    names : RefcountNames
        Which functions count references.
    """
    counting = {
        name: [
            (call, is_copy_of(call.target.symbol, names.incref))
            for call in calls
            if isinstance(call.target, Direct)
            and call.operand is not None
            and (
                is_copy_of(call.target.symbol, names.decref)
                or is_copy_of(call.target.symbol, names.incref)
            )
        ]
        for name, calls in running.items()
    }
    if not any(counting.values()):
        return frozenset()
    held = _held_parameters(program, running, callees, names)
    harmless: set[Site] = set()
    for name, calls in counting.items():
        function = program.functions[name]
        borrowed = {function.parameters[i] for i in held[name]}
        rest: list[Call] = []
        for call, is_incref in calls:
            if is_incref:
                continue
            if call.operand in borrowed:
                harmless.add(Site(name, call.index))
            else:
                rest.append(call)
        increfs = [call for call, is_incref in calls if is_incref]
        if increfs and rest:
            matched = _matched(function, increfs, rest)
            harmless.update(Site(name, call.index) for call in matched)
    return frozenset(harmless)


def _held_parameters(
    program: Program,
    running: Running,
    callees: Callable[[Site], tuple[str, ...]],
    names: RefcountNames,
) -> dict[str, set[int]]:
    """Return, for each function, the parameters that are always an argument of the entry.

    The greatest fixpoint: every parameter is held until a call passes something else for it.
    Functions that may be called through their address have no held parameters, since nobody
    sees those calls.
    """
    roots = names.held | {program.entry}
    held = {
        name: set()
        if name in program.address_taken and name not in roots
        else set(range(len(program.functions[name].parameters)))
        for name in running
    }
    changed = True
    while changed:
        changed = False
        for caller, calls in running.items():
            borrowed = {program.functions[caller].parameters[i] for i in held[caller]}
            for call in calls:
                for callee in callees(Site(caller, call.index)):
                    # A root that is also called from inside must be held there as well.
                    if callee in names.held or callee not in held:
                        continue
                    lost = {
                        i
                        for i in held[callee]
                        if i >= len(call.arguments) or call.arguments[i] not in borrowed
                    }
                    if lost:
                        held[callee] -= lost
                        changed = True
    return held


def _matched(function: Function, increfs: list[Call], decrefs: list[Call]) -> list[Call]:
    """Return the decrements that each undo one increment of the same pointer.

    An increment must come first on every path and be undone once at most on each; neither may
    be repeated without the other.
    """
    successors = [[e.target for e in block.edges] for block in function.blocks]
    above = dominators(successors)
    repeated = cyclic(successors)
    partners: dict[int, list[Call]] = {call.index: [] for call in increfs}
    matched: list[Call] = []

    def undoes(decref: Call, incref: Call) -> bool:
        if decref.operand != incref.operand:
            return False
        if decref.block == incref.block:
            order = function.blocks[decref.block].calls
            return order.index(incref.index) < order.index(decref.index)
        if decref.block in repeated or incref.block in repeated:
            return False
        return dominates(above, incref.block, decref.block)

    def exclusive(a: Call, b: Call) -> bool:
        """Return whether no path runs both."""
        if a.block == b.block:
            return False
        return b.block not in reachable(successors, [a.block]) and a.block not in reachable(
            successors, [b.block]
        )

    for decref in decrefs:
        for incref in increfs:
            others = partners[incref.index]
            if undoes(decref, incref) and all(exclusive(decref, other) for other in others):
                others.append(decref)
                matched.append(decref)
                break
    return matched

"""Which pointers of a program are always an argument of the entry, or no object at all.

An argument travels through parameters, merges, and memory: generators keep theirs in a structure
on the stack of whoever runs them. Knows the program graph; nothing of counts or effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from alloccheck.analysis.refcounts import RefcountNames
from alloccheck.analysis.summary import Site
from alloccheck.program.model import Call, Function, Pointers, Program, Read, Select, Write

NOTHING = frozenset({"null", "poison", "undef", "zeroinitializer"})
"""No object; to decrement it does nothing, or cannot happen."""

_POINTER = 8
"""Bytes of a pointer."""
_MOST_CELLS = 1000
"""So many names of one place are followed; more than that is recursion into ever other places."""

Cell = tuple[str, str, int]
"""A place in memory: function, slot, and distance from the slot's start."""


def held_pointers(
    program: Program,
    running: Mapping[str, tuple[Call, ...]],
    callees: Callable[[Site], tuple[str, ...]],
    inside: Callable[[Site], tuple[str, ...]],
    pointers: Mapping[str, Pointers],
    slots: Mapping[str, set[str]],
    names: RefcountNames,
) -> dict[str, frozenset[str]]:
    """Return, for each function, the pointers that are always an argument of the entry.

    Parameters
    ----------
    program : Program
        The program.
    running : mapping
        Its functions that may run, with their calls that may run.
    callees, inside : callable
        The functions of the program that a call may reach; the same, and none where it may reach
        something else as well.
    pointers : mapping
        The pointers of each of these functions.
    slots : mapping
        The slots of each that are passed only where they stay slots.
    names : RefcountNames
        Which functions are roots besides the entry.

    Returns
    -------
    dict
        Names, by function.

    Notes
    -----
    The greatest fixpoint: every parameter is held until a call passes something else for it, every
    place in memory holds such pointers alone until something else is written there, and a merge is
    held until something else flows into it. Time plays no part: whatever is read from a place was
    written there by one of the writes that were looked at, or by nobody. Functions that may be
    called through their address have no held parameters, since nobody sees those calls.
    """
    roots = names.held | {program.entry}
    closed = {name for name in running if name not in program.address_taken or name in roots}
    parameters = {
        name: set(range(len(program.functions[name].parameters))) if name in closed else set()
        for name in running
    }
    links = _Links(program, running, callees, inside, pointers, slots, closed - roots)
    places = _places(pointers, links)
    functions = {
        name: _Names(program.functions[name], pointers[name], places.reads(name))
        for name in running
    }
    while True:
        held = {name: one.held(parameters[name], places.spoilt) for name, one in functions.items()}
        changed = places.spoil(held)
        for caller, calls in running.items():
            borrowed = held[caller] | NOTHING
            aliases = pointers[caller].aliases
            for call in calls:
                for callee in callees(Site(caller, call.index)):
                    # A root that is also called from inside must be held there as well.
                    if callee in names.held or callee not in parameters:
                        continue
                    lost = {
                        i
                        for i in parameters[callee]
                        if i >= len(call.arguments)
                        or aliases.get(call.arguments[i], call.arguments[i]) not in borrowed
                    }
                    changed = changed or bool(lost)
                    parameters[callee] -= lost
        if not changed:
            return held


# --- names of one function ------------------------------------------------------------------------


class _Names:
    """The pointers of one function and where they come from."""

    def __init__(self, function: Function, pointers: Pointers, reads: Mapping[str, int]) -> None:
        self._function, self._pointers, self._reads = function, pointers, reads
        self._joins: dict[str, tuple[str, ...]] = {
            name: tuple(value for value, _ in merge.incoming)
            for name, merge in pointers.merges.items()
        }
        for event in _events(pointers):
            if isinstance(event, Select):
                self._joins[event.name] = event.values

    def held(self, parameters: Iterable[int], spoilt: set[int]) -> frozenset[str]:
        found = {self._function.parameters[i] for i in parameters}
        parts = self._pointers.parts
        while more := {p for p, whole in parts.items() if whole in found and p not in found}:
            found |= more
        found |= {name for name, group in self._reads.items() if group not in spoilt}
        found |= self._joins.keys()
        aliases = self._pointers.aliases
        while lost := {
            name
            for name, values in self._joins.items()
            if name in found
            and any(aliases.get(v, v) not in found and v not in NOTHING for v in values)
        }:
            found -= lost
        return frozenset(found)


def _events(pointers: Pointers) -> Iterable[int | Read | Write | Select]:
    for events in pointers.events.values():
        yield from events


# --- places in memory -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Places:
    """Groups of names for one place each, for every place that a pointer is read from."""

    group_of: dict[Cell, int] = field(default_factory=dict)
    written: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    """By group: pointers that are written there, as function and name."""
    spoilt: set[int] = field(default_factory=set)
    """Groups in which there may be something else."""
    by_function: dict[str, dict[str, int]] = field(default_factory=dict)

    def reads(self, function: str) -> Mapping[str, int]:
        """Return the pointers that a function reads from places, with the groups."""
        return self.by_function.get(function, {})

    def spoil(self, held: Mapping[str, frozenset[str]]) -> bool:
        """Give up groups into which something is written that is not held; tell whether any."""
        lost = {
            group
            for group, values in enumerate(self.written)
            if group not in self.spoilt
            and any(v not in held[function] and v not in NOTHING for function, v in values)
        }
        self.spoilt |= lost
        return bool(lost)


def _places(pointers: Mapping[str, Pointers], links: _Links) -> _Places:
    """Find the places that pointers are read from, under all their names."""
    writes: dict[tuple[str, str], list[Write]] = {}
    reads: list[tuple[str, Read]] = []
    for name, own in pointers.items():
        for event in _events(own):
            if isinstance(event, Write):
                writes.setdefault((name, event.slot), []).append(event)
            elif isinstance(event, Read):
                reads.append((name, event))
    found = _Places()
    for name, read in reads:
        cell = name, read.slot, read.offset
        if cell not in found.group_of:
            group = len(found.written)
            cells = links.names_of(cell)
            values: list[tuple[str, str]] = []
            clean = len(cells) <= _MOST_CELLS
            for function, slot, offset in cells:
                found.group_of[function, slot, offset] = group
                written = _written(writes.get((function, slot), ()), offset)
                clean = clean and written is not None and links.is_closed(function, slot)
                values += [(function, value) for value in written or ()]
            found.written.append(tuple(values))
            if not clean:
                found.spoilt.add(group)
        found.by_function.setdefault(name, {})[read.name] = found.group_of[cell]
    return found


def _written(writes: Iterable[Write], offset: int) -> list[str] | None:
    """Return the pointers that are written to a place; None if something else may be."""
    found = []
    for one in writes:
        if one.offset is None:
            if one.value not in NOTHING:
                return None
        elif one.offset == offset and one.size == _POINTER and one.value is not None:
            found.append(one.value)
        elif one.offset < offset + _POINTER and (
            one.size is None or offset < one.offset + one.size
        ):
            # Half of a pointer that becomes zero leaves another pointer.
            end = one.offset + (one.size or 0)
            if one.value != "zeroinitializer" or one.offset > offset or end < offset + _POINTER:
                return None
    return found


class _Links:
    """By which names callers and callees know the same memory.

    Parameters
    ----------
    program, running, callees, inside, pointers, slots
        As `held_pointers` takes them.
    closed : set of str
        Functions all of whose calls are seen.
    """

    def __init__(
        self,
        program: Program,
        running: Mapping[str, tuple[Call, ...]],
        callees: Callable[[Site], tuple[str, ...]],
        inside: Callable[[Site], tuple[str, ...]],
        pointers: Mapping[str, Pointers],
        slots: Mapping[str, set[str]],
        closed: set[str],
    ) -> None:
        self._slots = slots
        self._parameters = {name: set(program.functions[name].parameters) for name in running}
        self._closed = closed
        self._open: set[tuple[str, str]] = set()
        self._down: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
        self._up: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
        for caller, calls in running.items():
            for call in calls:
                site = Site(caller, call.index)
                seen = inside(site)
                for callee in callees(site):
                    if callee not in running:
                        continue
                    for i, parameter in enumerate(program.functions[callee].parameters):
                        argument = call.arguments[i] if i < len(call.arguments) else ""
                        self._link(
                            (caller, argument),
                            (callee, parameter),
                            pointers[caller],
                            is_seen=callee in seen,
                        )

    def _link(
        self, caller: tuple[str, str], callee: tuple[str, str], pointers: Pointers, *, is_seen: bool
    ) -> None:
        name, argument = caller
        places = pointers.places(argument)
        private = all(slot in self._slots[name] for slot, _ in places)
        if not (is_seen and places and private) or argument in pointers.partial:
            self._open.add(callee)
        for slot, distance in places:
            self._down.setdefault((name, slot), set()).add((*callee, -distance))
            self._up.setdefault(callee, set()).add((name, slot, distance))

    def is_closed(self, function: str, slot: str) -> bool:
        """Tell whether all that can reach a slot's memory is seen."""
        if slot not in self._slots[function]:
            return False
        if slot not in self._parameters[function]:
            return True
        return function in self._closed and (function, slot) not in self._open

    def names_of(self, cell: Cell) -> set[Cell]:
        """Return all names of a place; a few too many when it is not worth while to go on."""
        found = {cell}
        waiting = [cell]
        while waiting and len(found) <= _MOST_CELLS:
            function, slot, offset = waiting.pop()
            for table in (self._down, self._up):
                for other, name, distance in table.get((function, slot), ()):
                    one = other, name, offset + distance
                    if one not in found:
                        found.add(one)
                        waiting.append(one)
        return found

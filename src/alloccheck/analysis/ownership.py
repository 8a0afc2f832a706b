"""What a decrement of a reference count may do: which objects can lose their last reference.

Knows the program graph and the names of a few functions; nothing of effects.

Soundness
---------
Claim: while the entry runs, no object that existed before it was called is freed by a decrement
that this module calls harmless, or that it says frees only memory of this call.

Every executed decrement that is decided falls under one of these rules.

*Held.* Its object is an argument of the entry (`held.py`). Its caller holds a reference during the
whole call, and nobody drops a reference that is not his own: a function that takes over its
argument's reference is not the convention of these programs. So the count stays above zero.

*Own memory.* Its object was obtained by this very call, by a function that is known to set no
destructor, or one that is a function of the program. It did not exist before; freeing it runs
that destructor alone, whose effects are counted.

*Matched.* The decrement is mapped to an increment of the same object that ran before it in this
call, and no two decrements are mapped to one increment. Then, as long as all decrements of an
object are matched, its count is never below what it was at the beginning, which is at least
one. Nothing is assumed about who owns what; a decrement that cannot be mapped, of this object or
any other, is not decided, so that the entry as a whole is not proved. What externals drop is
their contracts' business. Threads that drop references to the same objects meanwhile are not
considered: to read a container while another thread changes it is an error anyway.

The mapping is found by counting. A *ticket* is an increment that no decrement was mapped to
yet; a state of the analysis says for each pointer how many tickets there are at least, on every
path that leads there (meet over all paths: minimum). A pointer is an SSA name: whenever control
enters the block that defines it, the name means a new value and its tickets are gone. A merge
(phi) takes the tickets of its source over, so that none is counted twice.

A ticket can pass from a callee to its caller, together with the pointer, through a slot: memory
of the caller's stack that nobody else can reach (see `Pointers`). At its return with the code
that means "a value is in the slot", the callee has tickets left for the pointer that it stored
there last; the caller finds pointer and tickets when it loads from the slot, unless something
was written in between, and may use them once the call's code is known. What holds for all calls
that are nested less deeply holds for the next, so the summaries of recursive functions may begin
with the best and shrink until they hold.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from alloccheck.analysis.graphs import reverse_postorder
from alloccheck.analysis.held import NOTHING, held_pointers
from alloccheck.analysis.paths import FunctionPaths
from alloccheck.analysis.refcounts import RefcountNames, is_copy_of
from alloccheck.analysis.summary import Site
from alloccheck.program.model import (
    Call,
    CallResult,
    Constant,
    Direct,
    Edge,
    Fact,
    Function,
    Phi,
    Pointers,
    Program,
    Read,
    Select,
    Within,
    Write,
)
from alloccheck.program.ranges import FULL, Ranges

Running = Mapping[str, tuple[Call, ...]]
"""From each function that the entry may reach to its calls that can run."""

Callees = Callable[[Site], tuple[str, ...]]
"""The functions of the program that a call may reach."""


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """What freeing one object of this call does.

    Parameters
    ----------
    obtained : int
        The call of the same function that obtained the object, for the report.
    destructor : str
        A function of the program, or empty.
    """

    obtained: int
    destructor: str = ""


def decided_decrefs(
    program: Program,
    running: Running,
    callees: Callees,
    leaves: Callable[[Site], bool],
    paths: Mapping[str, FunctionPaths],
    names: RefcountNames,
) -> dict[Site, tuple[Release, ...]]:
    """Return the calls of `decref` of which is known what they may do.

    Parameters
    ----------
    program : Program
        The program.
    running : mapping
        Its functions that may run, with their calls that may run.
    callees : callable
        The functions of the program that a call may reach.
    leaves : callable
        Whether a call may reach something else as well.
    paths : mapping
        The paths of each of these functions.
    names : RefcountNames
        Which functions count references.

    Returns
    -------
    dict
        For each such call the objects of this call of the entry that it may free; empty when
        it can free nothing. Calls that may free anything are not in it.
    """
    counting = {name for name, calls in running.items() if _has_decref(calls, names)}
    if not counting:
        return {}
    needed = _with_callees(counting, running, callees)
    pointers = {name: program.functions[name].read_pointers() for name in running}

    def inside(site: Site) -> tuple[str, ...]:
        return () if leaves(site) else callees(site)

    slots = _private_slots(program, running, inside, pointers, names)
    closed = _closed_slots(program, running, callees, inside, pointers, slots)
    held = held_pointers(program, running, callees, inside, pointers, slots, names)
    codes = {name: path.codes for name, path in paths.items()}
    walks = {
        name: _Walk(
            program.functions[name],
            pointers[name],
            paths[name],
            held[name],
            slots[name],
            closed[name],
            inside,
            program,
            names,
            codes,
            *_wanted_merges(program.functions[name], pointers[name], names),
            {index: result for result, index in pointers[name].results.items()},
        )
        for name in needed
    }
    summaries: dict[str, Returned | None] = dict.fromkeys(walks)
    # None: nothing is known to be wrong yet. Grows worse until it holds.
    callers: dict[str, set[str]] = {name: set() for name in walks}
    for name in walks:
        for call in running[name]:
            for callee in inside(Site(name, call.index)):
                callers[callee].add(name)
    states: dict[str, dict[int, _State]] = {}
    waiting = set(walks)
    while waiting:
        for name, walk in walks.items():
            if name not in waiting:
                continue
            waiting.discard(name)
            states[name] = walk.states(summaries)
            new = walk.summary(states[name], summaries)
            if new != summaries[name]:
                summaries[name] = new
                waiting |= callers[name]
    decided: dict[Site, tuple[Release, ...]] = {}
    for name in counting:
        for index, releases in walks[name].decrefs(states[name], summaries).items():
            if releases is not None:
                decided[Site(name, index)] = tuple(sorted(releases))
    return decided


def _has_decref(calls: Iterable[Call], names: RefcountNames) -> bool:
    return any(
        isinstance(c.target, Direct) and is_copy_of(c.target.symbol, names.decref) for c in calls
    )


def _with_callees(roots: set[str], running: Running, callees: Callees) -> list[str]:
    """Return functions and all that they may call, callees first as far as that goes."""
    found: dict[str, None] = {}
    todo = sorted(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = None
        for call in running[name]:
            todo.extend(n for n in callees(Site(name, call.index)) if n in running)
    return list(reversed(found))


# --- facts about whole functions --------------------------------------------------------------


def _private_slots(
    program: Program,
    running: Running,
    callees: Callees,
    pointers: Mapping[str, Pointers],
    names: RefcountNames,
) -> dict[str, set[str]]:
    """Return the slots of each function that are passed only where they stay slots."""
    slots = {name: set(pointers[name].slots) for name in running}

    def stays(site: Site, call: Call, i: int) -> bool:
        found = callees(site)
        return bool(found) and all(
            callee in slots
            and i < len(program.functions[callee].parameters)
            and program.functions[callee].parameters[i] in slots[callee]
            for callee in found
        )

    changed = True
    while changed:
        changed = False
        for name, calls in running.items():
            for call in calls:
                if isinstance(call.target, Direct) and (
                    is_copy_of(call.target.symbol, names.incref)
                    or is_copy_of(call.target.symbol, names.decref)
                ):
                    continue  # they touch counts alone
                for i, argument in enumerate(call.arguments):
                    places = {slot for slot, _ in pointers[name].places(argument)}
                    found = places & slots[name]
                    if found and not stays(Site(name, call.index), call, i):
                        slots[name] -= found
                        changed = True
    return slots


def _closed_slots(
    program: Program,
    running: Running,
    callees: Callees,
    inside: Callees,
    pointers: Mapping[str, Pointers],
    slots: Mapping[str, set[str]],
) -> dict[str, set[str]]:
    """Return those slots that nobody else can reach, whoever calls.

    A parameter stays inside its function, but its memory may be known to others: the caller may
    have stored its address, or passed it twice.
    """
    closed = {name: set(slots[name]) for name in running}
    for name in running:
        if name == program.entry or name in program.address_taken:
            closed[name] -= set(program.functions[name].parameters)
    changed = True
    while changed:
        changed = False
        for caller, calls in running.items():
            for call in calls:
                site = Site(caller, call.index)
                seen = inside(site)
                private = [
                    bool(places := pointers[caller].places(argument))
                    and argument not in pointers[caller].partial
                    and all(slot in closed[caller] for slot, _ in places)
                    for argument in call.arguments
                ]
                for callee in callees(site):
                    if callee not in running:
                        continue
                    lost = {
                        parameter
                        for i, parameter in enumerate(program.functions[callee].parameters)
                        if parameter in closed[callee]
                        and not (callee in seen and i < len(private) and private[i])
                    }
                    closed[callee] -= lost
                    changed = changed or bool(lost)
    return closed


def _wanted_merges(
    function: Function, pointers: Pointers, names: RefcountNames
) -> tuple[dict[int, list[str]], frozenset[str]]:
    """Return, by block, the merges whose tickets may be asked for, and who asks."""
    merges, selects = pointers.merges, {}
    operands = [c.operand for c in function.calls if _has_decref([c], names)]
    todo = {pointers.aliases.get(name, name) for name in operands if name}
    for events in pointers.events.values():
        for event in events:
            if isinstance(event, Write) and event.value:
                todo.add(event.value)
            elif isinstance(event, Select):
                selects[event.name] = event.values
    seen: set[str] = set()
    stack = list(todo)
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        if merge := merges.get(name):
            stack.extend(value for value, _ in merge.incoming)
        stack.extend(selects.get(name, ()))
    wanted: dict[int, list[str]] = {}
    for name, merge in merges.items():
        if name in seen:
            wanted.setdefault(merge.block, []).append(name)
    return wanted, frozenset(todo)


# --- counting inside one function -------------------------------------------------------------

_MANY = 1 << 20
"""So many tickets that they never run out: the object is held, or of this call, or none."""
_CAP = 64


@dataclass(frozen=True, slots=True)
class Owned:
    """What is known of a pointer at some point.

    Parameters
    ----------
    tickets : int
        Increments that no decrement was mapped to.
    releases : frozenset of Release
        Objects of this call that it may be; for these a decrement needs no ticket.
    pending : str
        Holds only if the call that returned this status returned a value; empty when it did.
    """

    tickets: int = 0
    releases: frozenset[Release] = frozenset()
    pending: str = ""

    def meet(self, other: Owned) -> Owned:
        """Return what holds if either does."""
        if self == other:
            return self
        if self.pending and other.pending and self.pending != other.pending:
            return UNKNOWN
        return Owned(
            min(self.tickets, other.tickets),
            self.releases | other.releases,
            self.pending or other.pending,
        )


_ANYWHERE = -1 << 40
"""Offset that stands for all: what a call leaves of which nothing bad is known yet."""

UNKNOWN = Owned()
HARMLESS = Owned(_MANY)

Returned = Mapping[tuple[int, int], Owned]
"""What a function leaves, when it returns a value, in the memory that its parameters point to:
from index of the parameter and offset."""


@dataclass(frozen=True, slots=True)
class _State:
    names: Mapping[str, Owned] = field(default_factory=dict)
    slots: Mapping[tuple[str, int], Owned | str] = field(default_factory=dict)
    """What slots hold: a pointer stored by this function, or what a call left."""
    codes: Mapping[str, Ranges] = field(default_factory=dict)
    """What calls are known to have returned."""

    def meet(self, other: _State) -> _State:
        slots: dict[tuple[str, int], Owned | str] = {}
        for key, mine in self.slots.items():
            theirs = other.slots.get(key)
            if theirs is None:
                continue
            if isinstance(mine, Owned) and isinstance(theirs, Owned):
                slots[key] = mine.meet(theirs)
            elif mine == theirs:
                slots[key] = mine
        return _State(
            {n: o.meet(other.names[n]) for n, o in self.names.items() if n in other.names},
            slots,
            {n: r | other.codes[n] for n, r in self.codes.items() if n in other.codes},
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """The analysis of one function."""

    function: Function
    pointers: Pointers
    paths: FunctionPaths
    held: frozenset[str]
    slots: set[str]
    closed: set[str]
    """Those of them whose memory nobody else can reach, whoever calls."""
    callees: Callees
    program: Program
    names: RefcountNames
    codes: Mapping[str, Ranges]
    """What functions return."""
    merges: Mapping[int, list[str]]
    asked: frozenset[str]
    """Pointers that are decremented or stored in slots."""
    results: Mapping[int, str]
    """From calls to the names of what they return."""

    # --- results

    def decrefs(
        self, states: Mapping[int, _State], summaries: Mapping[str, Returned | None]
    ) -> dict[int, frozenset[Release] | None]:
        """Return what each decrement may free; None for anything."""
        found: dict[int, frozenset[Release] | None] = {}
        for block, state in states.items():
            self._through(block, state, summaries, found)
        return found

    def summary(
        self, states: Mapping[int, _State], summaries: Mapping[str, Returned | None]
    ) -> Returned | None:
        """Return what is left in parameters; None when it never returns a value."""
        total: dict[tuple[int, int], Owned] | None = None
        parameters = {p: i for i, p in enumerate(self.function.parameters) if p in self.slots}
        if not any(
            isinstance(e, Write) and e.value and e.slot in parameters
            for events in self.pointers.events.values()
            for e in events
        ) and not any(
            self.pointers.addresses.get(a, ("",))[0] in parameters
            for c in self.function.calls
            for a in c.arguments
        ):
            return {}  # it hands no pointer to its caller
        for block, state in self._exits(states, summaries):
            state = self._through(block, state, summaries, None)
            spent: dict[str, int] = {}
            left: dict[tuple[int, int], Owned] = {}
            for (slot, offset), content in sorted(state.slots.items(), key=lambda one: one[0]):
                if slot not in parameters:
                    continue
                if isinstance(content, str):
                    name, content = content, self._owned(content, state)
                    tickets = content.tickets
                    if tickets < _MANY:
                        tickets = min(1, max(0, tickets - spent.get(name, 0)))
                        spent[name] = spent.get(name, 0) + tickets
                    content = replace(content, tickets=tickets)
                content = _settled(content, state, self.names.returned)
                if content != UNKNOWN:
                    left[parameters[slot], offset] = content
            if total is None:
                total = left
            else:
                total = {key: o.meet(left[key]) for key, o in total.items() if key in left}
        return total

    def _exits(
        self, states: Mapping[int, _State], summaries: Mapping[str, Returned | None]
    ) -> list[tuple[int, _State]]:
        """Return the states on entry of blocks that return a value, apart for each way in."""
        found = []
        for block in self.function.blocks:
            if not block.exits or block.index not in states:
                continue
            value = self.function.values.get(block.returns or "")
            if isinstance(value, Phi) and value.block == block.index and block.index != 0:
                for source, before in value.incoming:
                    if before not in states:
                        continue
                    after = self._through(before, states[before], summaries, None)
                    for edge in self.function.blocks[before].edges:
                        if edge.target != block.index:
                            continue
                        state = self._cross(after, edge, before)
                        if state and self._may_return_value(source, state):
                            found.append((block.index, state))
            elif self._may_return_value(block.returns, states[block.index]):
                found.append((block.index, states[block.index]))
        return found

    def _may_return_value(self, name: str | None, state: _State) -> bool:
        value = self.function.values.get(name or "")
        if isinstance(value, Constant):
            return value.value == self.names.returned
        return name is None or self.names.returned in state.codes.get(name, FULL)

    # --- the data flow

    def states(self, summaries: Mapping[str, Returned | None]) -> dict[int, _State]:
        """Return the state on entry of each block that runs."""
        blocks = self.function.blocks
        order = reverse_postorder([[e.target for e in b.edges] for b in blocks])
        rank = {block: i for i, block in enumerate(order)}
        states = {0: _State()}
        waiting = [(0, 0)]
        while waiting:
            _, index = heapq.heappop(waiting)
            while waiting and waiting[0][1] == index:
                heapq.heappop(waiting)
            if index not in self.paths.by_block:
                continue
            after = self._through(index, states[index], summaries, None)
            for edge in blocks[index].edges:
                new = self._cross(after, edge, index)
                if new is None:
                    continue
                old = states.get(edge.target)
                met = new if old is None else old.meet(new)
                if met != old:
                    states[edge.target] = met
                    heapq.heappush(waiting, (rank[edge.target], edge.target))
        return states

    def _cross(self, state: _State, edge: Edge, source: int) -> _State | None:
        """Return the state at the start of the block that an edge leads to."""
        codes = dict(state.codes)
        for fact in edge.facts:
            if isinstance(self.function.values.get(fact.value), CallResult):
                allowed = _allowed(fact) & codes.get(fact.value, FULL)
                if not allowed:
                    return None
                codes[fact.value] = allowed
        before = _State(state.names, state.slots, codes)
        target = edge.target
        names = {
            name: owned
            for name, owned in state.names.items()
            if self.pointers.homes.get(name) != target
        }
        for name in self.merges.get(target, ()):
            merge = self.pointers.merges[name]
            sources = [value for value, block in merge.incoming if block == source]
            found = [self._owned(value, before) for value in dict.fromkeys(sources)]
            if len(found) != 1:
                names[name] = UNKNOWN
                continue
            value, taken = sources[0], found[0]
            names[name] = taken
            if value not in before.names or taken.tickets == _MANY:
                continue  # held, of this call, or unknown: there is nothing to hand over
            rest = UNKNOWN
            if value in self.asked and 1 < taken.tickets < _MANY:
                # The source is decremented or stored under its own name too.
                names[name] = replace(taken, tickets=1)
                rest = replace(taken, tickets=taken.tickets - 1)
            # What two merges of one block take from the same source, the first has.
            before = _State({**before.names, value: rest}, before.slots, codes)
            if self.pointers.homes.get(value) != target:
                names[value] = rest
        slots = {
            key: content
            for key, content in state.slots.items()
            if not isinstance(content, str) or self.pointers.homes.get(content) != target
        }
        return _State(names, slots, codes)

    def _owned(self, name: str, state: _State) -> Owned:
        """Return what is known of a pointer."""
        if name in self.held or name in NOTHING:
            return HARMLESS
        index = self.pointers.results.get(name)
        if index is not None and (release := self._obtained(self.function.calls[index])):
            return Owned(_MANY, frozenset({release}))
        return state.names.get(name, UNKNOWN)

    def _obtained(self, call: Call) -> Release | None:
        """Return what freeing the object does that a call obtains; None if that is not known."""
        target = call.target
        if not isinstance(target, Direct) or target.symbol in self.program.functions:
            return None
        if target.symbol in self.names.plain:
            return Release(call.index)
        where = self.names.destructible.get(target.symbol)
        if where is None or where >= len(call.arguments):
            return None
        destructor = call.arguments[where]
        if destructor == "null":
            return Release(call.index)
        symbol = destructor[1:].strip('"')
        if destructor[:1] == "@" and symbol in self.program.functions:
            return Release(call.index, symbol)
        return None

    def _through(
        self,
        block: int,
        state: _State,
        summaries: Mapping[str, Returned | None],
        decrefs: dict[int, frozenset[Release] | None] | None,
    ) -> _State:
        """Return the state at the end of a block; note what its decrements may free."""
        names, slots, codes = dict(state.names), dict(state.slots), dict(state.codes)
        now = _State(names, slots, codes)
        for event in self.pointers.events.get(block, ()):
            if isinstance(event, Read):
                content = slots.get((event.slot, event.offset))
                if content is None:
                    content = slots.get((event.slot, _ANYWHERE))
                names[event.name] = UNKNOWN
                if isinstance(content, Owned) and event.slot in self.closed:
                    names[event.name] = content
                    # The tickets go with the name that was loaded first.
                    if content.tickets < _MANY:
                        slots[event.slot, event.offset] = UNKNOWN
            elif isinstance(event, Write):
                self._write(event, slots)
            elif isinstance(event, Select):
                found = [self._owned(value, now) for value in event.values]
                for value, owned in zip(event.values, found, strict=True):
                    if owned.tickets < _MANY:
                        names.pop(value, None)
                names[event.name] = functools.reduce(Owned.meet, found)
            else:
                self._call(self.function.calls[event], now, names, slots, codes, summaries, decrefs)
        return now

    def _write(self, event: Write, slots: dict[tuple[str, int], Owned | str]) -> None:
        if event.slot not in self.slots:
            return
        for key in [k for k in slots if k[0] == event.slot]:
            if (
                event.offset is None
                or event.size is None
                or (key[1] < event.offset + event.size and event.offset < key[1] + 8)
            ):
                del slots[key]
        whole = event.size is not None and event.size >= 8
        if event.offset is not None and event.value is not None and whole and not event.maybe:
            slots[event.slot, event.offset] = event.value

    def _call(
        self,
        call: Call,
        now: _State,
        names: dict[str, Owned],
        slots: dict[tuple[str, int], Owned | str],
        codes: dict[str, Ranges],
        summaries: Mapping[str, Returned | None],
        decrefs: dict[int, frozenset[Release] | None] | None,
    ) -> None:
        if isinstance(call.target, Direct):
            symbol, operand = call.target.symbol, call.operand
            if operand is not None:
                operand = self.pointers.aliases.get(operand, operand)
            if is_copy_of(symbol, self.names.incref):
                if operand is not None:
                    owned = self._owned(operand, now)
                    if owned.tickets < _CAP:
                        pending = "" if owned.tickets == 0 and not owned.releases else owned.pending
                        names[operand] = Owned(owned.tickets + 1, owned.releases, pending)
                return
            if is_copy_of(symbol, self.names.decref):
                released: frozenset[Release] | None = None
                if operand is None:
                    released = frozenset()
                else:
                    owned = _settled(self._owned(operand, now), now, self.names.returned)
                    if owned.tickets:
                        released = owned.releases
                        if owned.tickets < _MANY:
                            names[operand] = replace(owned, tickets=owned.tickets - 1)
                if decrefs is not None:
                    decrefs[call.index] = released
                return
        self._returns(call, names, slots, codes, summaries)

    def _returns(
        self,
        call: Call,
        names: dict[str, Owned],
        slots: dict[tuple[str, int], Owned | str],
        codes: dict[str, Ranges],
        summaries: Mapping[str, Returned | None],
    ) -> None:
        """Take over what a call left in slots."""
        status = self.results.get(call.index, "")
        if status:
            # The name means a new value from here on: what waited for the old one is decided.
            here = _State(names, slots, codes)
            for name, owned in list(names.items()):
                if owned.pending == status:
                    names[name] = _settled(owned, here, self.names.returned)
            for key, content in list(slots.items()):
                if isinstance(content, Owned) and content.pending == status:
                    slots[key] = _settled(content, here, self.names.returned)
            codes.pop(status, None)
        passed = {
            i: self.pointers.addresses[a]
            for i, a in enumerate(call.arguments)
            if a in self.pointers.addresses and self.pointers.addresses[a][0] in self.slots
        }
        touched = {slot for a in call.arguments for slot, _ in self.pointers.places(a)}
        if not touched:
            return
        for key in [k for k in slots if k[0] in touched]:
            del slots[key]
        callees = self.callees(Site(self.function.name, call.index))
        total: dict[tuple[str, int], Owned] | None = None
        always = True
        for callee in callees:
            left = summaries.get(callee)
            if left is None and callee in summaries:
                continue  # it never returns a value, as far as is known
            always = always and self.codes[callee] == Ranges.of(self.names.returned)
            left = left or {}
            moved = {
                (passed[i][0], passed[i][1] + offset): replace(
                    owned,
                    releases=frozenset(Release(call.index, r.destructor) for r in owned.releases),
                )
                for (i, offset), owned in left.items()
                if i in passed
            }
            if total is None:
                total = moved
            else:
                total = {k: o.meet(moved[k]) for k, o in total.items() if k in moved}
        if not always and not status:
            return
        if callees and total is None:
            total = {(slot, _ANYWHERE): HARMLESS for slot, _ in passed.values()}
        for key, owned in (total or {}).items():
            slots[key] = replace(owned, pending="" if always else status)


def _allowed(fact: Fact | Within) -> Ranges:
    if isinstance(fact, Within):
        return fact.ranges
    only = Ranges.of(fact.constant)
    return only if fact.equal else ~only


def _settled(owned: Owned, state: _State, returned: int) -> Owned:
    """Return what is known of a pointer once the call that it waits for is looked at."""
    if not owned.pending:
        return owned
    if state.codes.get(owned.pending, FULL) == Ranges.of(returned):
        return replace(owned, pending="")
    return UNKNOWN

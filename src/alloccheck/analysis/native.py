"""What native code may do: effects, witnesses and evidence from a walk of its machine code.

Knows walked chunks, system call numbers and the table of runtime symbols; nothing of Numba, files
or users. Whatever the walk could not decide is an effect of its own (`dispatch`, `unknown`), so
an answer without effects is a proof under the assumptions that it lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from alloccheck.analysis.native_answer import (
    LibraryEvidence,
    NativeAnswer,
    NativeAssumption,
    NativeEvidence,
    NativeWitness,
)
from alloccheck.analysis.native_paths import Ends, ends_of
from alloccheck.analysis.native_symbols import KnownSymbol, SymbolTable, symbol_table
from alloccheck.effects import Effect, Occasion, Path
from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import (
    AccessPath,
    Chunk,
    CodeBlock,
    Ending,
    Event,
    EventKind,
)
from alloccheck.program.machine.handlers import landing_pads
from alloccheck.program.machine.images import Image
from alloccheck.program.machine.lookup import symbol_address
from alloccheck.program.machine.syscalls import KnownSystemCall, SystemCallKind, classify
from alloccheck.program.machine.walk import ChunkStore, Link, Node, Region, Walker

EXEMPT = frozenset({Path.DIVERGE, Path.RAISE})
"""Paths that are told from those that return."""
_LATER = (Path.RETURN, Path.RAISE, Path.DIVERGE)
_RETURN_DEPTH = 12
"""How deep calls are followed to prove that a function never returns."""
_STUB_INSTRUCTIONS = 3
_INTERPRETER_BUDGET = 60
"""Most chunks that are read to prove a function of the interpreter harmless."""


class Trust(StrEnum):
    """Assumptions that a walk may rest on; each one used is in the answer's evidence."""

    GOT = "got"
    """Slots of the dynamic linker in writable memory keep the function that they hold."""
    CONSTANT = "constant-variable"
    """A variable that no code of its library writes keeps its value."""
    DEATH = "death"
    """A runtime function that ends the process does not jump back through a pointer."""
    PANIC = "panic"
    """The panic of Rust's standard library does not jump back through a pointer."""
    SMALL = "small-input"
    """A runtime function with a small constant input does not need the heap."""
    CALLBACK = "callback"
    """A runtime function calls the function that it is given and no other."""
    SWITCH = "switch"
    """A jump table whose index the compiler left unchecked stays inside its function."""
    POINTERS = "pointers"
    """Writable pointers keep the function that they hold now. Never assumed by default."""


DEFAULT_TRUST = frozenset(Trust) - {Trust.POINTERS}

_REASONS = {
    Trust.GOT: "nobody hooks the slots of the dynamic linker",
    Trust.CONSTANT: "no code of its library writes it and no relocation gives its address away",
    Trust.SWITCH: "the compiler left the check of the index out; every entry is in the function",
    Trust.POINTERS: "accepted by the user: the pointer keeps its present value",
}


def decide(
    function: int | tuple[str, str],
    *,
    assumptions: frozenset[Trust] = DEFAULT_TRUST,
    accept: frozenset[str] = frozenset(),
    regions: Iterable[Region] = (),
    store: ChunkStore | None = None,
    budget: int = 5_000,
) -> NativeAnswer:
    """Decide what a function of native code in this process may do.

    Parameters
    ----------
    function : int or (str, str)
        Address of its entry; or library (or module) and symbol, which are loaded if need be.
    assumptions : frozenset of Trust, optional
        Assumptions that may be used; those used are listed in the evidence.
    accept : frozenset of str, optional
        Writable pointers (``"library+0x123"``, as a witness names them) that keep their value.
    regions : iterable of Region, optional
        Ranges of jitted code.
    store : ChunkStore, optional
        A cache of what was read before.
    budget : int, optional
        Most functions to read; beyond it the answer is `unknown`.

    Examples
    --------
    >>> decide(("libm.so.6", "sin")).effects
    frozenset()
    >>> from alloccheck.effects import Guarantee
    >>> decide(("libc.so.6", "malloc")).satisfies(Guarantee.NONALLOCATING)
    False

    Raises
    ------
    UsageError
        If the library or the symbol does not exist.

    Notes
    -----
    Method: reachability over the machine code that is mapped now, see ``docs/machine-code.md``.
    """
    address = function if isinstance(function, int) else symbol_address(*function)
    decider = Decider(
        assumptions=assumptions, accept=accept, regions=regions, store=store, budget=budget
    )
    return decider.decide(address)


class Decider:
    """Decides many functions against one view of the process.

    What it has read it keeps: make a new one after libraries were loaded or pointers changed.
    Parameters as for `decide`.
    """

    def __init__(
        self,
        *,
        assumptions: frozenset[Trust] = DEFAULT_TRUST,
        accept: frozenset[str] = frozenset(),
        regions: Iterable[Region] = (),
        store: ChunkStore | None = None,
        budget: int = 5_000,
        walker: Walker | None = None,
        names: bool = True,
    ) -> None:
        self.trust = assumptions
        self.budget = budget
        self.names = names

        def accepted(slot: str) -> bool:
            return Trust.POINTERS in assumptions or slot in accept

        self.walker = walker or Walker(regions=regions, store=store, accept=accepted)
        self.table: SymbolTable = symbol_table()
        # Many functions have several names.
        self._answers: dict[int, NativeAnswer] = {}
        self._known: dict[int, KnownSymbol | None] = {}
        self._fatal: dict[int, str | None] = {}
        self._returns: dict[int, tuple[bool, int]] = {}
        self._dooms: dict[int, bool] = {}
        self._harmless: dict[int, bool] = {}
        self._runtime: dict[Image, bool] = {}
        self._python: dict[Image, bool] = {}
        self._labels: dict[int, str] = {}
        self._throws: dict[int, bool] = {}
        self._panics: dict[int, KnownSymbol | None] = {}
        self._entrances: dict[int, _Entrance] = {}
        self._twice: dict[int, bool] = {}
        self._local: dict[tuple[int, frozenset[Path]], _Local] = {}
        self._behind: dict[Link, Link] = {}
        self.unwound: set[Image] = set()
        """Images whose exception tables were read."""

    def decide(self, address: int) -> NativeAnswer:
        """Decide one function.

        Parameters
        ----------
        address : int
            Live address of its entry.
        """
        if address not in self._answers:
            walk = _Walk(self, address, EXEMPT).run()
            if Path.DIVERGE in walk.refuted:
                # Something on the way to a death may escape from it: then nothing is exempt for it.
                walk = _Walk(self, address, EXEMPT - {Path.DIVERGE}).run()
            self._answers[address] = walk.answer()
        return self._answers[address]

    # --- names ------------------------------------------------------------------------------

    def known(self, address: int) -> KnownSymbol | None:
        """Return the known symbol at exactly this address, in a runtime library."""
        if address not in self._known:
            found = None
            image = self.walker.images.find(address)
            if self.names and image is not None and self._is_runtime(image):
                rows = (self.table.stops.get(s.name) for s in image.exports.at(address))
                found = next((row for row in rows if row is not None), None)
            self._known[address] = found
        return self._known[address]

    def fatal(self, address: int) -> str | None:
        """Return the name of the runtime function at an address that ends the process.

        The name alone does not suffice: its code must show that it never returns.
        """
        if address not in self._fatal:
            name = None
            image = self.walker.images.find(address)
            if Trust.DEATH in self.trust and image is not None and self._is_runtime(image):
                names = [s.name for s in image.exports.at(address) if s.name in self.table.deaths]
                name = names[0] if names and not self.returns(address) else None
            self._fatal[address] = name
        return self._fatal[address]

    def returns_twice(self, address: int) -> bool:
        """Return whether a jump out may lead to where the function at an address was called."""
        if address not in self._twice:
            image = self.walker.images.find(address)
            self._twice[address] = (
                image is not None
                and self._is_runtime(image)
                and any(symbol.name in self.table.twice for symbol in image.exports.at(address))
            )
        return self._twice[address]

    def panic(self, address: int) -> KnownSymbol | None:
        """Return what the function at an address does if it is Rust's panic, else None.

        It is linked into each library, and known by its name there. The name alone does not
        suffice: its code must show that it never returns.
        """
        if address not in self._panics:
            self._panics[address] = None
            if Trust.PANIC in self.trust and self.table.panic_names.match(
                self.walker.name(address)
            ):
                shown = not self.returns(address)
                self._panics[address] = self.table.panic if shown else None
        return self._panics[address]

    def entrance(self, address: int) -> _Entrance:
        """Return what is known of a function before its code is read."""
        found = self._entrances.get(address)
        if found is None:
            known = self.known(address)
            found = self._entrances[address] = _Entrance(
                self.label(address),
                self.fatal(address) is not None,
                known,
                self.panic(address) if known is None else None,
                self.returns_twice(address),
                self.is_interpreter(self.walker.images.find(address)),
            )
        return found

    def _is_runtime(self, image: Image) -> bool:
        if image not in self._runtime:
            by_name = image.short.startswith(self.table.libraries)
            self._runtime[image] = by_name or self.is_interpreter(image)
        return self._runtime[image]

    def is_interpreter(self, image: Image | None) -> bool:
        """Return whether an image is the Python interpreter."""
        if image is None:
            return False
        if image not in self._python:
            self._python[image] = image.defines(self.table.interpreter)
        return self._python[image]

    def harmless(self, address: int) -> bool:
        """Return whether a function of the interpreter is proved to have no effect.

        What happens at the first call only is left to the walk, which then goes through it.
        """
        if address not in self._harmless:
            walk = _Walk(
                self, address, frozenset({Path.DIVERGE}), inside=True, budget=_INTERPRETER_BUDGET
            ).run()
            self._harmless[address] = not walk.lasting and Path.DIVERGE not in walk.refuted
        return self._harmless[address]

    def label(self, address: int) -> str:
        """Return ``library!symbol`` for a code address."""
        if address not in self._labels:
            image = self.walker.images.find(address)
            name = self.walker.name(address)
            self._labels[address] = f"{image.short}!{name}" if image is not None else name
        return self._labels[address]

    def local(self, address: int, exempt: frozenset[Path]) -> _Local:
        """Return what one function does by itself, along the paths that control can take.

        Parameters
        ----------
        address : int
        exempt : frozenset of Path
            Which paths to tell from those that return: `DIVERGE` is what happens only while the
            process surely dies, `RAISE` only when the call ends by unwinding.
        """
        key = (address, exempt)
        if key not in self._local:
            self._local[key] = self._read_local(self._traced_if_needed(address), exempt)
        return self._local[key]

    def _read_local(self, node: Node, exempt: frozenset[Path]) -> _Local:
        chunk = node.chunk
        if chunk is None:
            return _Local(node, ())
        paths = self._block_paths(node, chunk, exempt)
        steps: list[_Step] = []
        taken: set[tuple[Path, tuple[AccessPath, ...]]] = set()
        work, seen = [0], {0}
        while work:
            number = work.pop()
            block = chunk.blocks[number]
            last = self.last_event(node, number, block) if block.events else None
            for position, event in enumerate(block.events):
                key = (paths[number], event.targets or ())
                if key not in taken:
                    links = node.links.get((number, position), ())
                    through = tuple(self.through(link) for link in links)
                    steps.append(_Step(paths[number], event, through, _direct(event, through)))
                    if event.targets and all(map(self._is_plain, through)):
                        # Another call of the same adds nothing to the first.
                        taken.add(key)
                if position == last:
                    break
            if last is not None:
                continue
            if block.ending is Ending.OVERRUN:
                text = "control may run past the end of the function"
                problem = Event(EventKind.PROBLEM, chunk.high, text=text)
                steps.append(_Step(paths[number], problem, (), None))
            for successor in block.successors:
                if successor not in seen:
                    seen.add(successor)
                    work.append(successor)
        return _Local(node, tuple(steps))

    def _is_plain(self, link: Link) -> bool:
        """Return whether all calls by a link are alike, whatever their arguments and places."""
        if link.target is None:
            return False
        known = self.known(link.target) or self.panic(link.target)
        return known is None or not (known.callbacks or known.small is not None)

    def _block_paths(self, node: Node, chunk: Chunk, exempt: frozenset[Path]) -> list[Path]:
        paths = [Path.RETURN] * len(chunk.blocks)
        # Most functions have no call that unwinds for sure: they need no graph.
        if Path.RAISE in exempt and self._may_unwind(node, chunk):
            for number in self.ends(node, chunk).raising():
                paths[number] = Path.RAISE
        if Path.DIVERGE in exempt:
            for number, doomed in enumerate(self.doomed_blocks(node, chunk)):
                if doomed:
                    paths[number] = Path.DIVERGE
        return paths

    def _traced_if_needed(self, address: int) -> Node:
        """Return the node, with its values followed where a known callee needs its arguments."""
        node = self.walker.node(address)
        if node.chunk is None or node.chunk.traced:
            return node
        for links in node.links.values():
            for link in links:
                target = self.through(link).target
                known = self.known(target) if target is not None else None
                if known is not None and (known.small is not None or known.callbacks):
                    return self.walker.node(address, trace=True)
        return node

    def through(self, link: Link) -> Link:
        """Skip linkage stubs: code that is nothing but one jump."""
        found = self._behind.get(link)
        if found is None:
            found = self._behind[link] = self._through(link)
        return found

    def _through(self, link: Link) -> Link:
        for _ in range(4):
            if link.target is None or self.known(link.target) is not None:
                return link
            node = self.walker.node(link.target)
            if node.chunk is None or len(node.chunk.blocks) != 1:
                return link
            (block,) = node.chunk.blocks
            if block.ending is not Ending.LEAVE or len(block.events) != 1:
                return link
            onward = node.links.get((0, 0), ())
            if node.chunk.instructions > _STUB_INSTRUCTIONS or len(onward) != 1:
                return link
            step = onward[0]
            link = Link(
                step.target,
                step.slot or link.slot,
                step.problem,
                step.got or link.got,
                step.lazy or link.lazy,
                link.accepted + step.accepted,
            )
        return link

    # --- returning and dying ----------------------------------------------------------------

    def returns(self, address: int, depth: int = _RETURN_DEPTH) -> bool:
        """Return False only if the code proves that a function never returns to its caller."""
        before = self._returns.get(address)
        # "Returns" may be for want of depth only; "never returns" is final.
        if before is not None and (not before[0] or before[1] >= depth):
            return before[0]
        if depth == 0:
            return True
        # While it is being decided, a recursive call counts as returning: that errs on the safe
        # side, because more code is then reached.
        self._returns[address] = (True, _RETURN_DEPTH)
        known = self.known(address)
        if known is not None:
            found = not known.leaves
        else:
            node = self.walker.node(address)
            found = node.chunk is None or self._chunk_returns(node, node.chunk, depth)
        self._returns[address] = (found, depth)
        return found

    def _chunk_returns(self, node: Node, chunk: Chunk, depth: int) -> bool:
        # Most functions that never return end in a call after which the compiler put nothing:
        # if these calls do not return, the others need not be read.
        if self._may_return(node, chunk, depth, every=False):
            return self._may_return(node, chunk, depth, every=True)
        return False

    def _may_return(self, node: Node, chunk: Chunk, depth: int, *, every: bool) -> bool:
        """Return False only if no path leads back to the caller.

        Parameters
        ----------
        node, chunk
            The function.
        depth : int
            How deep calls are followed.
        every : bool
            Look at every call; otherwise at those that nothing follows, which suffices for False.
        """
        work, seen = [0], {0}
        while work:
            number = work.pop()
            block = chunk.blocks[number]
            if not block.events:
                pass
            elif every or block.ending is Ending.OVERRUN:
                if self.last_event(node, number, block, depth) is not None:
                    continue
            elif any(
                e.kind is EventKind.SYSTEM and self._ends_everything(node, e) for e in block.events
            ):
                continue
            if block.ending is Ending.LEAVE:
                links = node.links.get((number, len(block.events) - 1), ())
                if any(link.target is None for link in links) or not links:
                    return True
                if any(link.target and self.returns(link.target, depth - 1) for link in links):
                    return True
            elif block.ending not in (Ending.NEXT, Ending.DIE):
                return True
            for successor in block.successors:
                if successor not in seen:
                    seen.add(successor)
                    work.append(successor)
        return False

    def last_event(
        self, node: Node, number: int, block: CodeBlock, depth: int = _RETURN_DEPTH
    ) -> int | None:
        """Return the position of the event after which control provably does not go on."""
        for position, event in enumerate(block.events):
            if event.kind is EventKind.CALL:
                links = node.links.get((number, position), ())
                if links and all(
                    link.target is not None and not self.returns(link.target, depth - 1)
                    for link in links
                ):
                    return position
            elif event.kind is EventKind.SYSTEM and self._ends_everything(node, event):
                return position
        return None

    def _ends_everything(self, node: Node, event: Event) -> bool:
        ends = (SystemCallKind.DEATH, SystemCallKind.THREAD_END)
        return bool(event.numbers) and all(
            self.system_call(node, number).kind in ends for number in event.numbers or ()
        )

    def _may_unwind(self, node: Node, chunk: Chunk) -> bool:
        """Return whether some call, jump out or system call ends otherwise than by coming back."""
        for number, (events, _, _) in enumerate(chunk.blocks):
            for position, event in enumerate(events):
                if event.kind is EventKind.SYSTEM:
                    if self._ends_everything(node, event):
                        return True
                elif event.kind is not EventKind.PROBLEM:
                    targets = [link.target for link in node.links.get((number, position), ())]
                    known = [target for target in targets if target is not None]
                    if known and not any(map(self.returns, known)) and any(map(self.throws, known)):
                        return True
        return False

    def ends(self, node: Node, chunk: Chunk) -> Ends:
        """Return how control can leave a function, by block."""
        return ends_of(
            node,
            chunk,
            lambda number, block: self.last_event(node, number, block),
            self.returns,
            self.throws,
        )

    def throws(self, address: int) -> bool:
        """Return whether a function that never returns may end by unwinding or jumping out.

        False for what only dies or loops for ever, and while it is being decided.
        """
        if address not in self._throws:
            self._throws[address] = False
            known = self.known(address) or self.panic(address)
            if known is not None:
                found = any(effect is Effect.RAISE for effect, _ in known.effects)
            elif self.dooms(address):
                found = False
            else:
                node = self.walker.node(address)
                found = node.chunk is not None and bool(self.ends(node, node.chunk).thrown)
            self._throws[address] = found
        return self._throws[address]

    def system_call(self, node: Node, number: int) -> KnownSystemCall:
        """Look a system call of a chunk up."""
        image = node.image
        return classify(image.machine if image is not None else self.walker.machine, number)

    def dooms(self, address: int) -> bool:
        """Return whether calling this function surely ends the process.

        Proved by induction over the code: every path ends in a fault, in ``exit_group``, or in a
        call of such a function, without a loop on the way that might go on for ever.
        """
        if address not in self._dooms:
            self._dooms[address] = False
            if self.fatal(address):
                self._dooms[address] = True
            elif self.known(address) is None:
                node = self.walker.node(address)
                if (
                    node.chunk is not None
                    and not self.returns(address)
                    and self.panic(address) is None
                ):
                    self._dooms[address] = self.doomed_blocks(node, node.chunk)[0]
        return self._dooms[address]

    def doomed_blocks(self, node: Node, chunk: Chunk) -> tuple[bool, ...]:
        """Return for each block whether the process surely ends once it is entered."""
        doomed = [
            self._dies_within(node, number, block) if block.events else block.ending is Ending.DIE
            for number, block in enumerate(chunk.blocks)
        ]
        changed = any(doomed)
        while changed:
            changed = False
            for number, (events, onward, ending) in enumerate(chunk.blocks):
                if doomed[number] or ending is not Ending.NEXT or not onward:
                    continue
                if all(map(doomed.__getitem__, onward)) and self._passes(
                    node, number, chunk.blocks[number], len(events)
                ):
                    doomed[number] = changed = True
        return tuple(doomed)

    def _dies_within(self, node: Node, number: int, block: CodeBlock) -> bool:
        """Return whether the events of a block, or its own end, surely end the process."""
        for position, event in enumerate(block.events):
            if event.kind is EventKind.PROBLEM:
                return False
            if event.kind is EventKind.SYSTEM and event.numbers:
                kinds = {self.system_call(node, n).kind for n in event.numbers}
                if kinds == {SystemCallKind.DEATH}:
                    return self._passes(node, number, block, position)
                continue
            links = node.links.get((number, position), ())
            if links and all(one.target and self.dooms(one.target) for one in links):
                return self._passes(node, number, block, position)
        return block.ending is Ending.DIE and self._passes(node, number, block, len(block.events))

    def _passes(self, node: Node, number: int, block: CodeBlock, until: int) -> bool:
        """Return whether control gets past the first events of a block if it dies nowhere."""
        for position, event in enumerate(block.events[:until]):
            if event.kind is EventKind.PROBLEM:
                return False
            if event.kind is EventKind.SYSTEM and event.numbers:
                continue
            links = node.links.get((number, position), ())
            if links and all(one.target and not self.returns(one.target) for one in links):
                # It loops for ever or leaves: what follows is never reached.
                return False
        return True


class _Entrance(NamedTuple):
    """What is known of a function before its code is read."""

    label: str
    fatal: bool
    known: KnownSymbol | None
    panic: KnownSymbol | None
    twice: bool
    interpreter: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """An event that control can reach in a function."""

    path: Path
    event: Event
    links: tuple[Link, ...]
    direct: int | None
    """The one target, if no pointer led to it."""


def _direct(event: Event, links: tuple[Link, ...]) -> int | None:
    if len(links) != 1 or event.kind in (EventKind.SYSTEM, EventKind.PROBLEM):
        return None
    (link,) = links
    return link.target if link == Link(link.target) else None


@dataclass(frozen=True, slots=True)
class _Local:
    """What one function does by itself."""

    node: Node
    steps: tuple[_Step, ...]


@dataclass(slots=True)
class _Visit:
    """A function to look at, and how it was reached."""

    address: int
    path: Path
    """On which path of the call as a whole the function is reached."""
    trail: tuple[str, ...]


@dataclass(slots=True)
class _Walk:
    """One traversal from one entry."""

    decider: Decider
    entry: int
    exempt: frozenset[Path]
    inside: bool = False
    budget: int = 0
    lasting: bool = False
    """Whether there is an effect at other calls than the first, outside process death."""
    refuted: set[Path] = field(default_factory=set)
    """Paths that were told from those that return, and must not be."""
    witnesses: dict[tuple[Effect, Path, Occasion, str], NativeWitness] = field(default_factory=dict)
    deaths: dict[str, None] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    images: dict[Image, None] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    assumptions: dict[tuple[str, str, str], NativeAssumption] = field(default_factory=dict)
    queue: deque[_Visit] = field(default_factory=deque)
    queued: set[tuple[int, Path]] = field(default_factory=set)
    visited: list[_Visit] = field(default_factory=list)

    def run(self) -> _Walk:
        """Visit everything that is reached."""
        try:
            self._enter(self.entry, Path.RETURN, ())
        except ProgramError as error:
            visit = _Visit(self.entry, Path.RETURN, ())
            self._add(Effect.UNKNOWN, visit, f"{self.entry:#x}", str(error), "")
        budget = self.budget or self.decider.budget
        while self.queue or self._handlers():
            if Path.DIVERGE in self.refuted & self.exempt or (self.inside and self.lasting):
                # Begun anew, or harmful whatever else there is.
                break
            visit = self.queue.popleft()
            if len(self.functions) >= budget:
                # What was not looked at may return.
                self.refuted |= {Path.RAISE, Path.DIVERGE}
                self._add(Effect.UNKNOWN, visit, "work limit", f"more than {budget} functions", "")
                break
            try:
                self._visit(visit)
            except ProgramError as error:
                label = self.decider.label(visit.address)
                self.refuted.add(visit.path)
                self._add(Effect.UNKNOWN, visit, label, str(error), "")
        return self

    def _handlers(self) -> bool:
        """Take up the exception handlers of what was visited, once something may throw.

        Returns
        -------
        bool
            Whether there was one that was not taken up before.
        """
        throws = (Effect.RAISE, Effect.DISPATCH, Effect.UNKNOWN)
        if not any(effect in throws for effect, _, _, _ in self.witnesses):
            return False
        for visit in self.visited:
            node = self.decider.local(visit.address, self.exempt).node
            if node.image is None or node.chunk is None:
                continue
            for part in node.chunk.parts:
                self._take_up(visit, node.image, node.image.base + part)
        self.visited.clear()
        return bool(self.queue)

    def _take_up(self, visit: _Visit, image: Image, part: int) -> None:
        self.decider.unwound.add(image)
        try:
            pads = landing_pads(image, part)
        except ProgramError as error:
            self.refuted.add(Path.RAISE)  # whoever catches there may return
            self._add(Effect.UNKNOWN, visit, self.decider.label(part), str(error), "")
            return
        for pad in pads:
            if visit.path is Path.RETURN and self.decider.returns(pad):
                # What is thrown may be caught here, and the call return after all.
                self.refuted.add(Path.RAISE)
            if (pad, visit.path) not in self.queued:
                self.queued.add((pad, visit.path))
                trail = (*visit.trail, f"{self.decider.label(visit.address)} (handler)")
                self.queue.append(_Visit(pad, visit.path, trail))

    def effects(self) -> frozenset[Effect]:
        """Return the effects outside process death."""
        return frozenset(
            effect for effect, path, _, _ in self.witnesses if path is not Path.DIVERGE
        )

    def answer(self) -> NativeAnswer:
        """Return the result."""
        libraries = tuple(
            LibraryEvidence(i.short, i.path, i.build_id, i.code_digest) for i in self.images
        )
        return NativeAnswer(
            self.decider.label(self.entry),
            self.entry,
            self.effects(),
            self._witnesses(),
            tuple(self.deaths),
            NativeEvidence(
                tuple(self.functions.values()),
                libraries,
                tuple(self.slots.items()),
                tuple(sorted(self.assumptions.values())),
            ),
        )

    def _witnesses(self) -> tuple[NativeWitness, ...]:
        """Return the witnesses; where control may come back after all, that is their path."""
        if Path.RAISE not in self.refuted:
            return tuple(self.witnesses.values())
        found: dict[tuple[Effect, Path, Occasion, str], NativeWitness] = {}
        for (effect, path, occasion, symbol), witness in self.witnesses.items():
            if path is Path.RAISE and effect is not Effect.RAISE:
                path = Path.RETURN
                witness = replace(witness, path=path)
            found.setdefault((effect, path, occasion, symbol), witness)
        return tuple(found.values())

    # --- recording --------------------------------------------------------------------------

    def _add(
        self,
        effect: Effect,
        visit: _Visit,
        symbol: str,
        reason: str,
        source: str,
        *,
        occasion: Occasion = Occasion.EVERY_CALL,
        site: str = "",
    ) -> None:
        undecided = effect in (Effect.UNKNOWN, Effect.DISPATCH, Effect.RAISE)
        if visit.path is Path.DIVERGE and undecided:
            self.refuted.add(Path.DIVERGE)
        path = visit.path
        if effect is Effect.RAISE and path is Path.RETURN:
            path = Path.RAISE
        key = (effect, path, occasion, symbol)
        if path is not Path.DIVERGE and occasion is not Occasion.FIRST_CALL:
            self.lasting = True
        if key not in self.witnesses:
            self.witnesses[key] = NativeWitness(
                effect, path, occasion, symbol, reason, source, visit.trail, site
            )

    def _assume(self, trust: Trust, subject: str, reason: str = "") -> None:
        key = (trust, subject, reason or _REASONS[trust])
        if key not in self.assumptions:
            self.assumptions[key] = NativeAssumption(*key)

    # --- entering functions -----------------------------------------------------------------

    def _enter(
        self,
        address: int,
        path: Path,
        trail: tuple[str, ...],
        event: Event | None = None,
        caller: Node | None = None,
    ) -> None:
        """Take a function up: by its name, as part of the interpreter, or by its code."""
        if (address, path) in self.queued:
            return
        if path is Path.RAISE and (address, Path.RETURN) in self.queued:
            return  # whatever it does counts already
        decider = self.decider
        found = decider.entrance(address)
        label = found.label
        if found.fatal and trail:
            self.deaths[label] = None
            self._assume(Trust.DEATH, label, decider.table.death_reason)
            return
        if found.known is not None:
            self._note_known(found.known, _Visit(address, path, (*trail, label)), event, caller)
            return
        if found.panic is not None:
            self._assume(Trust.PANIC, label, found.panic.reason)
            self._note_known(found.panic, _Visit(address, path, (*trail, label)), event, caller)
            return
        if found.twice and path is Path.RETURN:
            # A jump out may lead back here, and the call return after all.
            self.refuted.add(Path.RAISE)
        if found.interpreter and not self.inside and not decider.harmless(address):
            visit = _Visit(address, path, (*trail, label))
            table = decider.table
            reason, source = table.interpreter_reason, table.interpreter_source
            self._add(Effect.PYTHON, visit, label, reason, source)
            return
        self.queued.add((address, path))
        self.queue.append(_Visit(address, path, (*trail, label)))

    def _note_known(
        self, known: KnownSymbol, visit: _Visit, event: Event | None, caller: Node | None
    ) -> None:
        effects = known.effects
        if known.small is not None and self._is_small(known, event):
            effects = ()
            self._assume(Trust.SMALL, known.name, known.small.reason)
        for effect, occasion in effects:
            self._add(effect, visit, known.name, known.reason, known.source, occasion=occasion)
        for position in known.callbacks:
            self._callback(known, position, visit, event, caller)

    def _is_small(self, known: KnownSymbol, event: Event | None) -> bool:
        if known.small is None or event is None or Trust.SMALL not in self.decider.trust:
            return False
        arguments = dict(event.arguments)
        product = 1
        for position in known.small.arguments:
            if position not in arguments:
                return False
            product *= arguments[position]
        return product < known.small.below

    def _callback(
        self,
        known: KnownSymbol,
        position: int,
        visit: _Visit,
        event: Event | None,
        caller: Node | None,
    ) -> None:
        pointers = dict(event.pointers) if event is not None else {}
        if position not in pointers or caller is None or Trust.CALLBACK not in self.decider.trust:
            text = f"{known.name} calls a function that it is given"
            self._add(Effect.DISPATCH, visit, f"argument of {known.name}", text, known.source)
            return
        self._assume(Trust.CALLBACK, known.name, known.reason)
        base = caller.image.base if caller.image is not None else 0
        link = self.decider.walker.resolve(caller.image, base, pointers[position])
        self._follow(self.decider.through(link), visit, None, None)

    # --- one function -----------------------------------------------------------------------

    def _visit(self, visit: _Visit) -> None:
        local = self.decider.local(visit.address, self.exempt)
        node = local.node
        self.visited.append(visit)
        self.functions[visit.address] = self.decider.label(visit.address)
        if node.image is not None:
            self.images[node.image] = None
        if node.chunk is None:
            self.refuted.add(visit.path)
            self._add(Effect.UNKNOWN, visit, node.label, node.problem, "")
            return
        self._note_trust(visit, node, node.chunk)
        if visit.path in self.exempt and self._may_escape(visit, node):
            self.refuted.add(visit.path)
        own, queued = visit.path, self.queued
        for step in local.steps:
            path = own if step.path is Path.RETURN else max(own, step.path, key=_LATER.index)
            if step.direct is not None:
                # By far the most: a call of code at a fixed place.
                if (step.direct, path) not in queued:
                    self._enter(step.direct, path, visit.trail, step.event, node)
                continue
            reached = visit if path is own else _Visit(visit.address, path, visit.trail)
            self._event(reached, node, step)

    def _may_escape(self, visit: _Visit, node: Node) -> bool:
        """Return whether a function is not shown to come back to its caller, or to unwind."""
        # Read in full: of a function that only computes, its loops were not kept.
        node = self.decider.walker.node(visit.address, trace=True)
        if node.chunk is None or any(b.ending is Ending.ESCAPE for b in node.chunk.blocks):
            return True
        return self.decider.ends(node, node.chunk).may_hang()

    def _note_trust(self, visit: _Visit, node: Node, chunk: Chunk) -> None:
        """Record the assumptions under which a chunk was read."""
        for constant in chunk.constants:
            if Trust.CONSTANT not in self.decider.trust:
                reason = f"{constant.name} decides a branch and is not trusted"
                self._add(Effect.UNKNOWN, visit, constant.name, reason, "")
            self._assume(Trust.CONSTANT, f"{constant.name} = {constant.value}")
        for unbounded in chunk.unbounded:
            site = self._site(node, unbounded)
            if Trust.SWITCH not in self.decider.trust:
                reason = "a jump table whose index has no proven bound"
                self._add(Effect.DISPATCH, visit, node.label, reason, "", site=site)
            self._assume(Trust.SWITCH, site)

    @staticmethod
    def _site(node: Node, relative: int) -> str:
        return f"{node.image.short}+{relative:#x}" if node.image is not None else f"{relative:#x}"

    def _event(self, visit: _Visit, node: Node, step: _Step) -> None:
        event = step.event
        if event.kind is EventKind.PROBLEM:
            self.refuted.add(visit.path)
            site = self._site(node, event.site)
            self._add(Effect.UNKNOWN, visit, node.label, event.text, "", site=site)
        elif event.kind is EventKind.SYSTEM:
            self._system(visit, node, event, self._site(node, event.site))
        else:
            for link in step.links:
                self._follow(link, visit, event, node)

    def _system(self, visit: _Visit, node: Node, event: Event, site: str) -> None:
        if not event.numbers:
            text = "a system call whose number is not known"
            self._add(Effect.UNKNOWN, visit, "system call", text, "", site=site)
            return
        for number in event.numbers:
            found = self.decider.system_call(node, number)
            effect = _SYSTEM_EFFECTS.get(found.kind)
            name = f"system call {found.name}"
            if found.kind is SystemCallKind.DEATH:
                self.deaths[name] = None
            elif found.kind is SystemCallKind.THREAD_END:
                self._add(Effect.RAISE, visit, name, "ends the thread", "", site=site)
            elif effect is not None:
                reason = f"enters the kernel by number {number}"
                self._add(effect, visit, name, reason, "machine/syscalls.toml", site=site)

    def _follow(
        self,
        link: Link,
        visit: _Visit,
        event: Event | None,
        caller: Node | None,
    ) -> None:
        site = ""
        if (link.got or link.lazy or link.target is None) and event is not None and caller:
            site = self._site(caller, event.site)
        if link.got and Trust.GOT not in self.decider.trust:
            reason = f"slot {link.slot} is writable and not trusted"
            self._add(Effect.DISPATCH, visit, link.slot, reason, "", site=site)
        elif link.got:
            self._assume(Trust.GOT, link.slot)
        for slot in link.accepted:
            self._assume(Trust.POINTERS, slot)
        if link.lazy:
            reason = "the dynamic linker binds this call when it is first made"
            for effect in (Effect.ALLOCATE, Effect.BLOCK):
                self._add(
                    effect,
                    visit,
                    f"lazy binding of {link.slot}",
                    reason,
                    "glibc elf/dl-runtime.c: _dl_fixup",
                    occasion=Occasion.FIRST_CALL,
                    site=site,
                )
        if link.target is None:
            subject = link.slot or (event.text if event is not None else "pointer")
            if link.problem == "null pointer":
                # Calling address 0 faults: the process dies.
                self.deaths[f"call of the null pointer in {subject}"] = None
                return
            self._add(Effect.DISPATCH, visit, subject, link.problem, "", site=site)
            return
        if link.slot:
            self.slots[link.slot] = self.decider.label(link.target)
        self._enter(link.target, visit.path, visit.trail, event, caller)


_SYSTEM_EFFECTS: Mapping[SystemCallKind, Effect] = {
    SystemCallKind.ALLOCATE: Effect.ALLOCATE,
    SystemCallKind.FREE: Effect.FREE,
    SystemCallKind.BLOCK: Effect.BLOCK,
    SystemCallKind.UNKNOWN: Effect.UNKNOWN,
}

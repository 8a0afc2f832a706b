"""From an address to everything that it can reach: chunks, and the links between them.

Knows images, chunks and the dynamic linker's slots; nothing of what a reached symbol means (a
`stop` function of the caller says where there is no need to go on). A link whose target is not
known stays in the result as such.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from alloccheck.errors import ProgramError
from alloccheck.program import model
from alloccheck.program.machine import aarch64
from alloccheck.program.machine.chunk import (
    AccessPath,
    Chunk,
    CodeBlock,
    ConstantGlobal,
    Ending,
    Event,
    EventKind,
    Part,
)
from alloccheck.program.machine.images import (
    EM_AARCH64,
    EM_X86_64,
    GOT_TYPES,
    JUMP_SLOT,
    Image,
    ImageMap,
    bind,
    loaded_images,
)
from alloccheck.program.machine.memory import (
    LiveMemory,
    Memory,
    NotedMemory,
    Unreadable,
    is_executable,
    is_immutable,
    pointer,
)
from alloccheck.program.machine.symbols import STT_FUNC, STT_GNU_IFUNC
from alloccheck.program.machine.tables import ConstantReader
from alloccheck.source import Backtrace, Frame

if TYPE_CHECKING:
    from alloccheck.program.machine.globals_ import ConstantVariables

_MASK = (1 << 64) - 1
_GUESSED_RANGE = 1 << 16
_STUB = 16
"""Bytes of a linkage stub."""


@dataclass(frozen=True, slots=True)
class Region:
    """Code outside every loaded library (jitted code): its range, its name, and its constants.

    Parameters
    ----------
    start, size : int
        Live address, and bytes.
    name : str
    words : mapping
        Words of constant data that hold addresses of its code (jump tables), by address.
    ends : frozenset of int
        Functions that never return: what stands after a call of one is not what comes next.
    """

    start: int
    size: int
    name: str
    words: Mapping[int, int] = field(default_factory=dict, compare=False)
    ends: frozenset[int] = field(default=frozenset(), compare=False)


class Link(NamedTuple):
    """One resolved target of a call or jump.

    Parameters
    ----------
    target : int or None
        Live address; None when not known.
    slot : str
        The pointer that was followed, ``library+0x123``, or ``""``.
    problem : str
        Why the target is not known.
    got : bool
        Whether the pointer is a slot of the dynamic linker in writable memory.
    lazy : bool
        Whether the slot is bound at the first call only.
    accepted : tuple of str
        Writable pointers that were followed because the caller accepted them.
    """

    target: int | None
    slot: str = ""
    problem: str = ""
    got: bool = False
    lazy: bool = False
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One chunk in place: what it is called and where its links go.

    `chunk` is None when the caller's `stop` said so, or when `problem` says why the code could
    not be read.
    """

    address: int
    name: str
    image: Image | None
    chunk: Chunk | None
    links: Mapping[tuple[int, int], tuple[Link, ...]] = field(default_factory=dict)
    """By block and event."""
    problem: str = ""

    @property
    def label(self) -> str:
        """``library!symbol``."""
        return f"{self.image.short}!{self.name}" if self.image else self.name


@dataclass(frozen=True, slots=True)
class Exploration:
    """All that is reached from `entry`."""

    entry: int
    nodes: Mapping[int, Node]
    complete: bool = True
    """Whether the work was done before the budget was spent."""


class ChunkStore(Protocol):
    """Keeps chunks of an image between processes."""

    def get(self, image: Image, key: tuple[int, bool]) -> Chunk | None:
        """Return a stored chunk by relative entry and whether values were followed."""

    def put(self, image: Image, key: tuple[int, bool], chunk: Chunk) -> None:
        """Store a chunk."""


Stop = Callable[[int, Image | None], bool]
_NEVER: Stop = lambda address, image: False  # noqa: E731 - a default value


class Walker:
    """A reader of the code of this process, as it is mapped at the moment of creation.

    Parameters
    ----------
    memory : Memory, optional
        Address space; this process's by default.
    images : iterable of Image, optional
        Loaded modules; this process's by default.
    regions : iterable of Region, optional
        Ranges of jitted code.
    store : ChunkStore, optional
        Where chunks are kept.
    accept : callable, optional
        Given ``library+0x123`` of a writable pointer, returns whether its present value may be
        followed.
    machine : int, optional
        ELF machine number of code outside images.
    keep_addresses : bool, optional
        Keep the address of every instruction in the chunks (stored chunks are then not used).
    variables : callable, optional
        What is known already of an image's constant variables.

    Examples
    --------
    >>> import ctypes
    >>> libm = ctypes.CDLL("libm.so.6")
    >>> address = ctypes.cast(libm.fabs, ctypes.c_void_p).value
    >>> exploration = Walker().explore(address)
    >>> [node.label for node in exploration.nodes.values()]
    ['libm.so.6!fabs']
    """

    def __init__(
        self,
        *,
        memory: Memory | None = None,
        images: Iterable[Image] | None = None,
        regions: Iterable[Region] = (),
        store: ChunkStore | None = None,
        accept: Callable[[str], bool] = lambda slot: False,
        machine: int | None = None,
        keep_addresses: bool = False,
        variables: Callable[[Image], ConstantVariables] | None = None,
    ) -> None:
        self._shared_variables = variables
        self.memory: Memory = LiveMemory.open() if memory is None else memory
        self.images = ImageMap(loaded_images(self.memory) if images is None else images)
        self.regions = tuple(sorted(regions, key=lambda region: region.start))
        self.accept = accept
        self.keep_addresses = keep_addresses
        self._store = store
        self.machine = _host_machine() if machine is None else machine
        self._nodes: dict[tuple[int, bool], Node] = {}
        self._names: dict[int, str] = {}
        self._constant: dict[Image, ConstantVariables] = {}
        self.followed: dict[int, int] = {}
        """Every pointer in memory that was followed: its address, and what it held."""
        self._constants_read: set[tuple[int, int]] = set()
        self.bound: dict[int, int] = {}
        """Those of them that the dynamic linker has not bound yet, and what it will put there."""

    # --- names ------------------------------------------------------------------------------

    def name(self, address: int) -> str:
        """Return the best name for a code address, without the library."""
        known = self._names.get(address)
        if known is None:
            known = self._names[address] = self._find_name(address)
        return known

    def _find_name(self, address: int) -> str:
        image = self.images.find(address)
        if image is not None:
            return image.describe(address)
        region = self.region(address)
        if region is not None:
            offset = address - region.start
            return f"{region.name}+{offset:#x}" if offset else region.name
        return f"{address:#x}"

    def region(self, address: int) -> Region | None:
        """Return the region of jitted code that holds an address."""
        for region in self.regions:
            if region.start <= address < region.start + region.size:
                return region
        return None

    def locate(self, address: int) -> Backtrace:
        """Return the one frame that machine code knows of itself: library and symbol."""
        image = self.images.find(address)
        file = image.path if image is not None else "<jitted code>"
        return (Frame(file, 0, None, self.name(address)),)

    # --- exploring --------------------------------------------------------------------------

    def explore(self, entry: int, *, stop: Stop = _NEVER, budget: int = 20_000) -> Exploration:
        """Read everything that can be reached from an address.

        Parameters
        ----------
        entry : int
            Live address of a function.
        stop : callable, optional
            ``stop(address, image)`` returns True for code that need not be read.
        budget : int, optional
            Most chunks to read.
        """
        nodes: dict[int, Node] = {}
        queue = deque([entry])
        queued = {entry}
        while queue:
            if len(nodes) >= budget:
                return Exploration(entry, nodes, complete=False)
            address = queue.popleft()
            node = self.node(address, stop=stop)
            nodes[address] = node
            for links in node.links.values():
                for link in links:
                    if link.target is not None and link.target not in queued:
                        queued.add(link.target)
                        queue.append(link.target)
        return Exploration(entry, nodes)

    def node(self, address: int, *, stop: Stop = _NEVER, trace: bool = False) -> Node:
        """Read one chunk and resolve its links.

        Parameters
        ----------
        address : int
            Live entry.
        stop : callable, optional
            See `explore`.
        trace : bool, optional
            Demand that values are followed, also where no jump needs it.
        """
        image = self.images.find(address)
        if stop(address, image):
            return Node(address, self.name(address), image, None)
        known = self._nodes.get((address, trace))
        if known is None:
            known = self._nodes[address, trace] = self._read_node(address, image, trace)
        return known

    def _read_node(self, address: int, image: Image | None, trace: bool) -> Node:
        name = self.name(address)
        if not is_executable(self.memory, address):
            return Node(address, name, image, None, problem="not executable memory")
        try:
            chunk = self._chunk(address, image, trace)
        except ProgramError as error:
            return Node(address, name, image, None, problem=str(error))
        base = image.base if image is not None else 0
        links: dict[tuple[int, int], tuple[Link, ...]] = {}
        resolved: dict[tuple[AccessPath, ...], tuple[Link, ...]] = {}
        for number, block in enumerate(chunk.blocks):
            for position, event in enumerate(block.events):
                if event.kind is not EventKind.CALL and event.kind is not EventKind.JUMP:
                    continue
                found = resolved.get(event.targets) if event.targets is not None else None
                if found is None:
                    found = self._links(image, base, event)
                    if event.targets is not None:
                        resolved[event.targets] = found
                links[number, position] = found
        return Node(address, name, image, chunk, links)

    def _links(self, image: Image | None, base: int, event: Event) -> tuple[Link, ...]:
        if event.targets is None:
            return (Link(None, problem=f"target not known: {event.text}"),)
        return tuple([self.resolve(image, base, path) for path in event.targets])

    def resolve(self, image: Image | None, base: int, path: AccessPath) -> Link:
        """Follow an access path through memory that cannot change, to its live target.

        Parameters
        ----------
        image : Image or None
            Image of the code.
        base : int
            Its load address.
        path : tuple of int
            See `AccessPath`.
        """
        address = (base + path[0]) & _MASK
        slots: list[str] = []
        accepted: list[str] = []
        got = lazy = False
        for step in path[1:]:
            slot = self._slot_name(address)
            slots.append(slot)
            holder = self.images.find(address)
            relocation = holder.relocations.get(address) if holder is not None else None
            try:
                value = pointer(self.memory, address)
            except Unreadable:
                return Link(None, slot, f"unreadable pointer at {slot}")
            self.followed[address] = value
            machine = holder.machine if holder is not None else self.machine
            is_got = relocation is not None and relocation.kind in GOT_TYPES.get(machine, ())
            if not is_immutable(self.memory, address):
                if is_got:
                    got = True
                elif self.accept(slot):
                    accepted.append(slot)
                else:
                    return Link(None, slot, f"writable pointer at {slot}")
            if (
                is_got
                and holder is not None
                and relocation is not None
                and relocation.kind == JUMP_SLOT.get(machine)
                and holder.holds(value)
                and self._is_lazy_stub(value)
            ):
                bound = bind(holder, relocation)
                if bound is None:
                    return Link(None, slot, f"{relocation.symbol} cannot be bound")
                self.bound[address] = bound
                lazy, value = True, bound
            address = (value + step) & _MASK
        where = " -> ".join(slots)
        if address == 0:
            return Link(None, where, "null pointer", got, lazy, tuple(accepted))
        return Link(address, where, "", got, lazy, tuple(accepted))

    def _is_lazy_stub(self, address: int) -> bool:
        try:
            code = self.memory.read(address, _STUB)
        except Unreadable:
            return False
        if code[:4] == b"\xf3\x0f\x1e\xfa":
            code = code[4:]
        return code[:1] == b"\x68" or code[:2] == b"\xf2\xe9"

    def _slot_name(self, address: int) -> str:
        image = self.images.find(address)
        if image is None:
            return f"{address:#x}"
        return f"{image.short}+{address - image.base:#x}"

    # --- chunks -----------------------------------------------------------------------------

    def _chunk(self, address: int, image: Image | None, trace: bool) -> Chunk:
        if image is None:
            return self._read_chunk(address, None, trace)
        key = (address - image.base, trace)
        usable = self._store is not None and not self.keep_addresses
        stored = self._store.get(image, key) if usable and self._store else None
        if stored is not None and self._still_holds(image, stored):
            return stored
        chunk = self._read_chunk(address, image, trace)
        if usable and self._store:
            self._store.put(image, key, chunk)
        return chunk

    def _still_holds(self, image: Image, chunk: Chunk) -> bool:
        """Return whether the variables that a stored chunk took as constant still are."""
        return all(self._variables(image).still(constant) for constant in chunk.constants)

    def _read_chunk(self, address: int, image: Image | None, trace: bool) -> Chunk:
        low, high, framed = self._range(address, image)
        base = image.base if image is not None else 0
        machine = image.machine if image is not None else self.machine
        code = self.memory.read(low, high - low)
        region = self.region(address) if image is None else None
        if machine == EM_X86_64:
            try:
                # Other machines do without its decoder.
                from alloccheck.program.machine import x86_64
            except ImportError as error:
                raise ProgramError(
                    "reading x86-64 machine code needs the package iced-x86"
                ) from error
            return x86_64.read_chunk(
                x86_64.Source(
                    memory=NotedMemory(self.memory, self._constants_read),
                    image=image,
                    base=base,
                    part=Part(low - base, high - base, code),
                    partner=lambda target: self._partner(image, target),
                    framed=framed,
                    variables=self._variables(image) if image is not None else None,
                    words={} if region is None else region.words,
                    ends=frozenset() if region is None else region.ends,
                ),
                address - base,
                trace=trace,
                keep_addresses=self.keep_addresses,
            )
        if machine == EM_AARCH64:
            noted = NotedMemory(self.memory, self._constants_read)
            return aarch64.read_chunk(
                code,
                low - base,
                high - base,
                address - base,
                framed=framed,
                constants=ConstantReader(noted, image, base, None),
                keep_addresses=self.keep_addresses,
            )
        raise ProgramError(f"machine code of ELF machine {machine} is not read")

    @staticmethod
    def _partner(image: Image | None, relative: int) -> Part | None:
        """Return the range around a jump target that is not the beginning of a function."""
        found = image.partner(image.base + relative) if image is not None else None
        if image is None or found is None:
            return None
        return Part(found.low - image.base, found.high - image.base, found.code)

    def constants_used(self) -> Iterable[tuple[Image, ConstantGlobal]]:
        """Yield the variables that were taken to be constant, with their images."""
        for node in self._nodes.values():
            if node.chunk is not None and node.image is not None:
                for constant in node.chunk.constants:
                    yield node.image, constant

    def spans_read(self) -> dict[Image, list[tuple[int, int]] | None]:
        """Return the live ranges of code and constants that were read of each image.

        None stands for the whole image: something was concluded from all of its code, or something
        could not be read. Tables that only say how code is to be read are left out; exception
        tables are not known here.
        """
        found: dict[Image, list[tuple[int, int]] | None] = {}
        for node in self._nodes.values():
            image, chunk = node.image, node.chunk
            if image is None:
                continue
            spans = found.setdefault(image, [])
            parts = [image.frames.find(image.base + low) for low in chunk.parts] if chunk else []
            if chunk is None or chunk.constants or None in parts[1:]:
                found[image] = None
            elif spans is not None:
                spans.append((image.base + chunk.low, image.base + chunk.high))
                spans += [part for part in parts if part is not None]
        stubs = ((self.followed[slot], _STUB) for slot in self.bound)
        for place, size in (*self._constants_read, *stubs):
            image = self.images.find(place)
            if image is not None:
                spans = found.setdefault(image, [])
                if spans is not None:
                    spans.append((place, place + size))
        return found

    def images_used(self) -> frozenset[Image]:
        """Return the images that hold anything that was read or followed."""
        places = {address for address, _ in self._nodes}
        for slot, value in self.followed.items():
            places |= {slot, value, self.bound.get(slot, value)}
        found = (self.images.find(place) for place in places)
        return frozenset(image for image in found if image is not None)

    def _variables(self, image: Image) -> ConstantVariables:
        if self._shared_variables is not None:
            return self._shared_variables(image)
        if image not in self._constant:
            from alloccheck.program.machine.globals_ import ConstantVariables

            self._constant[image] = ConstantVariables(image, self.images.images)
        return self._constant[image]

    def _range(self, address: int, image: Image | None) -> tuple[int, int, bool]:
        """Return the function that holds an address, and whether its bounds are certain."""
        if image is None:
            region = self.region(address)
            if region is None:
                raise ProgramError(
                    f"code at {address:#x} is outside every loaded library; pass its range"
                )
            return region.start, region.start + region.size, True
        found = image.frames.find(address)
        if found is not None:
            return (*found, True)
        segment = image.segment(address)
        if segment is None:
            raise ProgramError(f"{address:#x} is in no segment of {image.short}")
        low, high = image.frames.gap(address, segment.start, segment.start + segment.size)
        for symbol in image.exports.at(address):
            if symbol.kind in (STT_FUNC, STT_GNU_IFUNC) and symbol.size:
                return address, min(address + symbol.size, high), True
        return max(low, address), min(high, address + _GUESSED_RANGE), False


def _host_machine() -> int:
    return {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}.get(platform.machine(), 0)


def unique_names(nodes: Mapping[int, Node]) -> dict[int, str]:
    """Return one distinct name for each node, by address."""
    taken: dict[str, int] = {}
    names: dict[int, str] = {}
    for address, node in nodes.items():
        name = node.label
        if name in taken:
            name = f"{name}@{address:#x}"
        taken[name] = address
        names[address] = name
    return names


def to_program(exploration: Exploration, walker: Walker) -> model.Program:
    """Return the neutral program graph of what was explored.

    Chunks that were not read become externals; a jump out of a chunk is a call in a block that
    returns; a problem is an `Unread` call.
    """
    names = unique_names(exploration.nodes)
    functions: dict[str, model.Function] = {}
    externals = set()
    for address, node in exploration.nodes.items():
        if node.chunk is None:
            externals.add(names[address])
        else:
            functions[names[address]] = _to_function(node, node.chunk, names)
    return model.Program(functions, frozenset(externals), frozenset(), walker.locate)


def _to_function(node: Node, chunk: Chunk, names: Mapping[int, str]) -> model.Function:
    base = node.image.base if node.image is not None else 0
    calls: list[model.Call] = []
    blocks = []
    for number, block in enumerate(chunk.blocks):
        first = len(calls)
        for position, event in enumerate(block.events):
            links = node.links.get((number, position), ())
            calls.extend(
                model.Call(len(calls) + k, number, target, base + event.site)
                for k, target in enumerate(_targets(event, links, names))
            )
        if block.ending is Ending.OVERRUN:
            unread = model.Unread("control may run past the end of the function")
            calls.append(model.Call(len(calls), number, unread, base + chunk.high))
        blocks.append(_to_block(number, block, tuple(range(first, len(calls)))))
    return model.Function(names[node.address], tuple(blocks), tuple(calls))


def _to_block(number: int, block: CodeBlock, calls: tuple[int, ...]) -> model.Block:
    leaves = block.ending not in (Ending.NEXT, Ending.DIE)
    return model.Block(
        number,
        f"block{number}",
        tuple(model.Edge(successor) for successor in block.successors),
        calls,
        exits=leaves,
        dies=block.ending is Ending.DIE,
    )


def _targets(
    event: Event, links: tuple[Link, ...], names: Mapping[int, str]
) -> Iterable[model.Target]:
    if event.kind is EventKind.PROBLEM:
        yield model.Unread(event.text)
    elif event.kind is EventKind.SYSTEM:
        for number in event.numbers or (None,):
            yield model.SystemCall(number)
    elif any(link.target is None for link in links):
        problem = "; ".join(link.problem for link in links if link.target is None)
        yield model.Indirect(None, problem)
    else:
        reached = [link.target for link in links if link.target is not None]
        found = tuple(names[target] for target in reached if target in names)
        if len(found) < len(links):
            yield model.Unread("beyond the budget of the walk")
        elif len(found) == 1:
            yield model.Direct(found[0])
        else:
            yield model.Indirect(found, event.text)

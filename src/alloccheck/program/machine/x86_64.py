"""Chunks of x86-64 code: descent, value analysis where it is needed, and blocks.

Knows how to read one function; nothing of symbols or of other functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any

import iced_x86 as iced

from alloccheck.program.machine.chunk import (
    AccessPath,
    Chunk,
    CodeBlock,
    Ending,
    Event,
    EventKind,
    Part,
    RawBlock,
    compact,
)
from alloccheck.program.machine.decode import (
    Flow,
    Kind,
    Listing,
    Mnemonic,
    Partner,
    always_faults,
    branch_target,
)
from alloccheck.program.machine.flow import StepLimit, Trace
from alloccheck.program.machine.globals_ import ConstantVariables
from alloccheck.program.machine.images import Image
from alloccheck.program.machine.memory import Memory
from alloccheck.program.machine.tables import ConstantReader
from alloccheck.program.machine.values import (
    Numbers,
    Pointers,
    Range,
    enumerate_numbers,
    signed,
)

_BRANCHES = frozenset({Flow.CONDITIONAL_BRANCH, Flow.XBEGIN_XABORT_XEND})
_CALL, _BRANCH, _JUMP, _END = map(int, (Kind.CALL, Kind.BRANCH, Kind.JUMP, Kind.END))
_NEAR_RETURN = frozenset({Mnemonic.RET})
_LOOK_BACK = 48
_XABORT = frozenset({Mnemonic.XABORT, Mnemonic.XEND})


@dataclass(frozen=True, slots=True)
class Source:
    """The code that a chunk is read from.

    Parameters
    ----------
    memory : Memory
    image : Image or None
        None for jitted code.
    base : int
        Load address; 0 for jitted code.
    part : Part
        The range of the function, relative.
    partner : callable
        Finds further parts of the function by a relative address that is jumped to.
    framed : bool
        Whether the range is certain.
    variables : ConstantVariables or None
        Variables that may turn out to be constant.
    words : mapping
        Constant words of jitted code, by address.
    ends : frozenset of int
        Functions that jitted code may call and that never return.
    """

    memory: Memory
    image: Image | None
    base: int
    part: Part
    partner: Partner
    framed: bool
    variables: ConstantVariables | None
    words: Mapping[int, int] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()


def read_chunk(source: Source, entry: int, *, trace: bool, keep_addresses: bool = False) -> Chunk:
    """Read the code that is reached from `entry` without leaving its function.

    Parameters
    ----------
    source : Source
    entry : int
        Relative address.
    trace : bool
        Demand that values are followed; otherwise that is done only where a jump, a system call or
        a constant variable needs it.
    keep_addresses : bool, optional
        Keep the address of every instruction.
    """
    listing = Listing(source.part, source.partner)
    listing.descend((entry,))
    variables = _mentioned(listing, source.variables)
    reader = ConstantReader(
        source.memory, source.image, source.base, source.variables, source.words
    )
    problems: list[str] = []
    followed: Trace | None = None
    odd = _odd_returns(listing)
    if trace or variables or odd or _needs_values(listing):
        try:
            followed = Trace(
                listing,
                entry,
                reader,
                absolute=source.base == 0,
                whole=not source.framed or entry == source.part.low,
                ends=source.ends,
            ).run()
        except StepLimit:
            problems.append("too large to follow its values")
    if listing.exhausted:
        problems.append("more instructions than are read for one function")
    if followed is None and not odd and not problems and _only_returns(listing):
        blocks: tuple[CodeBlock, ...] = (CodeBlock((), (), Ending.RETURN),)
    else:
        switches = frozenset(at for at, kind in odd.items() if kind == "switch")
        built = _Builder(listing, followed, switches).build(entry)
        if problems:
            built[entry] = _with_problems(built[entry], entry, problems)
        blocks = compact(built, entry)
    reached = listing.instructions.keys() if followed is None else followed.reached
    return Chunk(
        entry,
        source.part.low,
        source.part.high,
        blocks,
        tuple(reader.used.values()),
        () if followed is None else tuple(sorted(followed.unbounded)),
        tuple(part.low for part in listing.parts),
        len(reached),
        followed is not None,
        source.framed,
        frozenset(reached) if keep_addresses else frozenset(),
    )


def _only_returns(listing: Listing) -> bool:
    """Return whether a function computes and returns, and does nothing else on any path.

    Its branches then tell nothing: it is one block that returns. (One that never returns is not
    such a function, because whoever calls it does not go on.)
    """
    return listing.quiet and _END in listing.kinds.values()


def _with_problems(block: RawBlock, site: int, problems: Iterable[str]) -> RawBlock:
    added = tuple(Event(EventKind.PROBLEM, site, text=text) for text in problems)
    events, successors, ending = block
    return added + events, successors, ending


def _mentioned(listing: Listing, variables: ConstantVariables | None) -> bool:
    mentions = variables.mentions if variables is not None else frozenset()
    if not mentions:
        return False
    instructions = listing.instructions.values()
    relative = compress(instructions, map(_IS_RELATIVE, instructions))
    return any(one.ip_rel_memory_address in mentions for one in relative)


_IS_RELATIVE = attrgetter("is_ip_rel_memory_operand")


def _odd_returns(listing: Listing) -> dict[int, str]:
    """Return the returns that may not lead to the caller.

    Looks back from each return: ``switch`` when the last that happened to the stack pointer is
    that another one was loaded; ``rewrite`` when a value was pushed or put where the return
    address is, which only value analysis can judge.
    """
    found = {}
    for start, plain, instruction in listing.returns:
        kind = _before_return(listing, start, plain, instruction.ip)
        if kind:
            found[instruction.ip] = kind
    return found


def _before_return(listing: Listing, start: int, plain: int, at: int) -> str:
    """Classify a return by what stands before it in its straight line, and before that."""
    looked = 0
    line = listing.line(plain, at)
    while looked < _LOOK_BACK:
        if not line:
            # Whether or not control comes from there: what stands before belongs to the return.
            before = listing.lines.get(start) if start == plain else None
            if before is None:
                return ""
            line, start, plain = listing.line(before, start), before, before
            continue
        instruction = line.pop()
        if instruction.ip in listing.kinds:
            return ""
        kind = _stack_change(instruction)
        if kind:
            return "" if kind == "settled" else kind
        looked += 1
    return ""


def _stack_change(instruction: Any) -> str:
    """Classify what an instruction before a return does to the stack."""
    mnemonic, register = instruction.mnemonic, iced.Register
    if mnemonic in (Mnemonic.POP, Mnemonic.LEAVE):
        return "settled"
    if mnemonic == Mnemonic.PUSH:
        return "rewrite"
    if not instruction.op_count:
        return ""
    if instruction.op0_kind == iced.OpKind.REGISTER and instruction.op0_register == register.RSP:
        if mnemonic not in (Mnemonic.MOV, Mnemonic.XCHG):
            return "settled"
        return "settled" if instruction.op1_register == register.RBP else "switch"
    if instruction.op0_kind == iced.OpKind.MEMORY and instruction.memory_base == register.RSP:
        reads = (Mnemonic.CMP, Mnemonic.TEST)
        at_return = instruction.memory_displacement == 0 and mnemonic not in reads
        return "rewrite" if at_return else ""
    return ""


def _needs_values(listing: Listing) -> bool:
    """Return whether a jump, a call or a system call depends on what a register holds."""
    for at, kind in listing.kinds.items():
        if kind not in (_CALL, _END):
            continue
        instruction = listing.instructions[at]
        flow = instruction.flow_control
        if flow in (Flow.INDIRECT_CALL, Flow.INDIRECT_BRANCH):
            if _plain_slot(instruction) is None:
                return True
        elif flow == Flow.CALL and instruction.mnemonic == Mnemonic.SYSCALL:
            return True
    return False


def _plain_slot(instruction: Any) -> AccessPath | None:
    """Return the path of ``*slot(%rip)``, or None for any other operand."""
    if (
        instruction.op0_kind == iced.OpKind.MEMORY
        and instruction.is_ip_rel_memory_operand
        and iced.MemorySizeExt.size(instruction.memory_size) == 8
        and instruction.segment_prefix == iced.Register.NONE
    ):
        return (signed(instruction.ip_rel_memory_address, 64), 0)
    return None


class _Builder:
    """Turns a listing (and the facts of its trace) into blocks, keyed by address.

    A place outside the range that is jumped to gets a block of its own under a negative key.
    """

    def __init__(
        self, listing: Listing, trace: Trace | None, switches: frozenset[int] = frozenset()
    ) -> None:
        self.switches = switches
        self.listing = listing
        self.trace = trace
        self.blocks: dict[int, RawBlock] = {}

    def build(self, entry: int) -> dict[int, RawBlock]:
        """Return all blocks that are reached from `entry`."""
        leaders = self._leaders(entry)
        ordered = [*sorted(leaders), 1 << 64]
        work = [entry]
        while work:
            at = work.pop()
            if at in self.blocks:
                continue
            block = self._block(at, leaders, ordered)
            self.blocks[at] = block
            work += block[1]
        return self.blocks

    def _leaders(self, entry: int) -> set[int]:
        leaders = self.listing.leaders | {entry}
        if self.trace is not None:
            leaders |= self.trace.leaders
        return leaders

    def _block(self, at: int, leaders: set[int], ordered: list[int]) -> RawBlock:
        events: list[Event] = []
        first = at
        stops, following = self.listing.stops, ordered[bisect_right(ordered, at)]
        # In the one part that most functions have, everything is that is reached.
        part = self.listing.part_of(at) if len(self.listing.parts) > 1 else self.listing.part
        end = part.high if part is not None else at
        instructions, kinds = self.listing.instructions, self.listing.kinds
        while True:
            stop = stops.get(at)
            if stop is not None and stop < following:
                # Nothing but plain instructions up to there, and no other block begins.
                at = stop
            instruction = instructions.get(at)
            if instruction is None:
                text = "bytes that are not an instruction"
                if self.listing.exhausted:
                    text = "code beyond the limit"
                events.append(Event(EventKind.PROBLEM, at, text=text))
                return tuple(events), (), Ending.RETURN
            kind = kinds.get(at)
            if kind:
                if kind == _JUMP or (kind == _BRANCH and self.trace is None):
                    target, onward = instruction.near_branch_target, instruction.next_ip
                    if target in instructions:
                        if kind == _JUMP:
                            return tuple(events), (target,), Ending.NEXT
                        if onward in instructions and onward != target:
                            ways = (onward, target) if onward < target else (target, onward)
                            return tuple(events), ways, Ending.NEXT
                if kind != _CALL:
                    return self._close(at, instruction, events)
                events.append(self._call(at, instruction))
            onward = instruction.next_ip
            if onward >= end:
                return self._overrun(instruction, events)
            if onward in leaders or onward == first:
                return tuple(events), (onward,), Ending.NEXT
            at = onward

    def _overrun(self, instruction: Any, events: list[Event]) -> RawBlock:
        if instruction.flow_control in (Flow.CALL, Flow.INDIRECT_CALL):
            return tuple(events), (), Ending.OVERRUN
        onward = instruction.next_ip
        events.append(Event(EventKind.JUMP, instruction.ip, ((onward,),), text="falls through"))
        return tuple(events), (), Ending.LEAVE

    def _close(self, at: int, instruction: Any, events: list[Event]) -> RawBlock:
        flow = instruction.flow_control
        if always_faults(instruction) or flow == Flow.EXCEPTION:
            return tuple(events), (), Ending.DIE
        if flow in _BRANCHES:
            return tuple(events), self._branch(at, instruction), Ending.NEXT
        if flow == Flow.UNCONDITIONAL_BRANCH:
            target = branch_target(instruction)
            if target is None:
                return self._strange(at, instruction, events)
            return tuple(events), (self._place(at, target),), Ending.NEXT
        if flow == Flow.INDIRECT_BRANCH:
            return self._indirect(at, instruction, events)
        if flow == Flow.RETURN and instruction.mnemonic in _NEAR_RETURN:
            return self._return(at, instruction, events)
        return self._strange(at, instruction, events)

    def _return(self, at: int, instruction: Any, events: list[Event]) -> RawBlock:
        trace = self.trace
        rewritten = trace is not None and trace.whole and trace.returns_elsewhere(at)
        if at in self.switches or rewritten:
            text = f"{instruction} to an address that the code provides"
            events.append(Event(EventKind.JUMP, at, None, text=text))
            return tuple(events), (), Ending.ESCAPE
        return tuple(events), (), self._ending(at, Ending.RETURN)

    @staticmethod
    def _strange(at: int, instruction: Any, events: list[Event]) -> RawBlock:
        text = f"instruction that is not followed: {instruction}"
        events.append(Event(EventKind.PROBLEM, at, text=text))
        return tuple(events), (), Ending.RETURN

    def _branch(self, at: int, instruction: Any) -> tuple[int, ...]:
        onward = {instruction.next_ip}
        target = branch_target(instruction)
        if target is not None:
            onward.add(target)
        elif instruction.mnemonic not in _XABORT:
            # A branch without a direct target does not exist; fail closed all the same.
            onward.add(-1)
        if self.trace is not None and at in self.trace.edges:
            onward &= self.trace.edges[at]
        return tuple([self._place(at, address) for address in sorted(onward)])

    def _place(self, site: int, target: int) -> int:
        """Return the block key of an address, making a block for one outside the range."""
        if target in self.listing.instructions or self.listing.holds(target):
            return target
        key = -1 - len(self.blocks) - (site << 2)
        while key in self.blocks:
            key -= 1
        event = self._event(EventKind.JUMP, site, ((target,),), "jump")
        self.blocks[key] = ((event,), (), Ending.LEAVE)
        return key

    def _ending(self, at: int, ending: Ending) -> Ending:
        if self.trace is not None and not self.trace.balanced.get(at, True):
            return Ending.ESCAPE
        return ending

    def _event(
        self, kind: EventKind, at: int, paths: Iterable[AccessPath] | None, text: str = ""
    ) -> Event:
        """Return a call or jump with what is known of its arguments."""
        targets = None if paths is None else tuple(sorted(paths))
        known = self.trace.arguments.get(at) if self.trace is not None else None
        if not known:
            return Event(kind, at, targets, None, text)
        numbers, pointers = [], []
        for position, value in sorted(known.items()):
            if isinstance(value, Numbers):
                numbers.append((position, max(value.values)))
            elif isinstance(value, Range) and value.bits == 64:
                numbers.append((position, value.high))
            elif isinstance(value, Pointers) and len(value.paths) == 1:
                pointers.append((position, min(value.paths)))
        return Event(
            kind, at, targets, text=text, arguments=tuple(numbers), pointers=tuple(pointers)
        )

    def _indirect(self, at: int, instruction: Any, events: list[Event]) -> RawBlock:
        paths = self._paths(at, instruction)
        local: set[int] = set()
        outside: list[AccessPath] = []
        for path in paths or ():
            target = self.trace.local_target(path) if self.trace is not None else None
            if target is None:
                outside.append(path)
            else:
                local.add(target)
        if local and not outside:
            return tuple(events), tuple(sorted(local)), Ending.NEXT
        jump = self._event(EventKind.JUMP, at, outside or None, str(instruction))
        ending = self._ending(at, Ending.LEAVE)
        if not local:
            return (*events, jump), (), ending
        key = -1 - len(self.blocks) - (at << 2)
        while key in self.blocks:
            key -= 1
        self.blocks[key] = ((jump,), (), ending)
        return tuple(events), (*sorted(local), key), Ending.NEXT

    def _paths(self, at: int, instruction: Any) -> tuple[AccessPath, ...] | None:
        if self.trace is not None:
            value = self.trace.targets.get(at)
            return tuple(sorted(value.paths)) if isinstance(value, Pointers) else None
        plain = _plain_slot(instruction)
        return (plain,) if plain is not None else None

    def _call(self, at: int, instruction: Any) -> Event:
        if self.trace is None and instruction.code == iced.Code.CALL_REL32_64:
            return Event(EventKind.CALL, at, ((instruction.near_branch_target,),))
        flow = instruction.flow_control
        if flow == Flow.INTERRUPT:
            text = f"software interrupt: {instruction}"
            return Event(EventKind.PROBLEM, at, text=text)
        if flow == Flow.INDIRECT_CALL:
            return self._event(EventKind.CALL, at, self._paths(at, instruction), str(instruction))
        if instruction.mnemonic == Mnemonic.SYSCALL:
            value = self.trace.targets.get(at) if self.trace is not None else None
            known = enumerate_numbers(value) if isinstance(value, Numbers) else None
            numbers = tuple(sorted(known)) if known is not None else None
            return Event(EventKind.SYSTEM, at, numbers=numbers, text="syscall")
        target = branch_target(instruction)
        if target is None:
            text = f"instruction that is not followed: {instruction}"
            return Event(EventKind.PROBLEM, at, text=text)
        return self._event(EventKind.CALL, at, ((target,),))

"""What one stretch of machine code does: blocks, calls, jumps out, system calls, problems.

A chunk is position-independent data: addresses are relative to the image's load address and
pointers read from memory are kept as access paths, so that a chunk can be stored and used in
another process. Knows nothing of instruction sets or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

AccessPath = tuple[int, ...]
"""Where a pointer comes from. ``(a,)`` is the address ``base + a``; ``(a, b)`` is what the word at
``base + a`` holds, plus ``b``; ``(a, b, c)`` follows one more pointer; and so on."""


@dataclass(frozen=True, slots=True)
class Part:
    """A range of code bytes that belongs to one function."""

    low: int
    high: int
    code: bytes


class EventKind(StrEnum):
    """What happens at a site."""

    CALL = "call"
    JUMP = "jump"
    """Control leaves the chunk for good: a tail call, or a jump to a part elsewhere."""
    SYSTEM = "system"
    PROBLEM = "problem"


class Ending(StrEnum):
    """How control leaves a block other than to its successors."""

    NEXT = "next"
    RETURN = "return"
    LEAVE = "leave"
    """By the jump that is its last event."""
    DIE = "die"
    """An instruction that always faults."""
    OVERRUN = "overrun"
    """Past the end of the function after a call: possible only if that call returns."""
    ESCAPE = "escape"
    """To a place that the stack pointer does not show to be the caller."""


class Event(NamedTuple):
    """A call, jump, system call or problem.

    A tuple, as a block is: a library has tens of thousands of them.

    Parameters
    ----------
    kind : EventKind
    site : int
        Address of the instruction, relative to the image.
    targets : tuple of AccessPath or None
        Where a call or jump may go; None when not known.
    numbers : tuple of int or None
        Possible system call numbers; None when not known.
    text : str
        The instruction, or what is wrong.
    arguments : tuple of (int, int)
        Integer arguments with a known upper bound: position (from 0) and bound (unsigned).
    pointers : tuple of (int, AccessPath)
        Pointer arguments with one known origin.
    """

    kind: EventKind
    site: int
    targets: tuple[AccessPath, ...] | None = None
    numbers: tuple[int, ...] | None = None
    text: str = ""
    arguments: tuple[tuple[int, int], ...] = ()
    pointers: tuple[tuple[int, AccessPath], ...] = ()


class CodeBlock(NamedTuple):
    """A basic block, or several merged ones."""

    events: tuple[Event, ...]
    successors: tuple[int, ...]
    ending: Ending = Ending.NEXT


@dataclass(frozen=True, slots=True)
class ConstantGlobal:
    """A writable variable that was taken to be constant, with the value it was read with."""

    address: int
    size: int
    value: int
    name: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """The code that is reached from one entry without leaving its function.

    Parameters
    ----------
    entry, low, high : int
        Entry and range, relative to the image.
    blocks : tuple of CodeBlock
        The first is the entry.
    constants : tuple of ConstantGlobal
        Variables that decided a branch.
    unbounded : tuple of int
        Places where a jump table was read whose index has no proven bound.
    parts : tuple of int
        Where the ranges that the function is spread over begin.
    instructions : int
        How many instructions were read.
    traced : bool
        Whether values were followed (then arguments and escapes are known).
    framed : bool
        Whether the range is from an unwind table or a caller, not guessed.
    addresses : frozenset of int
        Every instruction, relative; kept only when asked for, never stored.
    """

    entry: int
    low: int
    high: int
    blocks: tuple[CodeBlock, ...]
    constants: tuple[ConstantGlobal, ...] = ()
    unbounded: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    instructions: int = 0
    traced: bool = False
    framed: bool = True
    addresses: frozenset[int] = frozenset()


_KINDS = tuple(EventKind)
_ENDINGS = tuple(Ending)


def to_json(chunk: Chunk) -> list[Any]:
    """Turn a chunk into nested lists of numbers and strings.

    Examples
    --------
    >>> chunk = Chunk(0, 0, 1, (CodeBlock((), (), Ending.RETURN),))
    >>> from_json(to_json(chunk)) == chunk
    True
    """
    blocks = [
        [
            [
                [
                    _KINDS.index(e.kind),
                    e.site,
                    None if e.targets is None else [list(path) for path in e.targets],
                    None if e.numbers is None else list(e.numbers),
                    e.text,
                    [list(pair) for pair in e.arguments],
                    [[position, list(path)] for position, path in e.pointers],
                ]
                for e in block.events
            ],
            list(block.successors),
            _ENDINGS.index(block.ending),
        ]
        for block in chunk.blocks
    ]
    constants = [[c.address, c.size, c.value, c.name] for c in chunk.constants]
    flags = int(chunk.traced) | int(chunk.framed) << 1
    return [
        chunk.entry,
        chunk.low,
        chunk.high,
        chunk.instructions,
        flags,
        constants,
        list(chunk.unbounded),
        list(chunk.parts),
        blocks,
    ]


def from_json(data: Any) -> Chunk:
    """Rebuild a chunk; the inverse of `to_json`.

    Raises
    ------
    ValueError, TypeError, IndexError
        If the data does not have that form.
    """
    entry, low, high, instructions, flags, constants, unbounded, parts, blocks = data
    if not blocks:
        raise ValueError("a chunk has at least one block")
    count = len(blocks)
    built = []
    for events, successors, ending in blocks:
        if any(not 0 <= s < count for s in successors):
            raise ValueError("a successor that does not exist")
        built.append(
            CodeBlock(
                tuple(
                    Event(
                        _KINDS[kind],
                        int(site),
                        None if targets is None else tuple(_path(path) for path in targets),
                        None if numbers is None else tuple(int(n) for n in numbers),
                        str(text),
                        tuple((int(k), int(v)) for k, v in arguments),
                        tuple((int(k), _path(path)) for k, path in pointers),
                    )
                    for kind, site, targets, numbers, text, arguments, pointers in events
                ),
                tuple(int(s) for s in successors),
                _ENDINGS[ending],
            )
        )
    return Chunk(
        int(entry),
        int(low),
        int(high),
        tuple(built),
        tuple(ConstantGlobal(int(a), int(s), int(v), str(n)) for a, s, v, n in constants),
        tuple(int(site) for site in unbounded),
        tuple(int(low) for low in parts),
        int(instructions),
        bool(flags & 1),
        bool(flags & 2),
    )


def _path(steps: Any) -> AccessPath:
    if not steps:
        raise ValueError("an empty access path")
    return tuple(int(step) for step in steps)


RawBlock = tuple[tuple[Event, ...], tuple[int, ...], Ending]
"""What a `CodeBlock` holds, while its successors are keys of any kind."""


def compact(blocks: Mapping[int, RawBlock], entry: int) -> tuple[CodeBlock, ...]:
    """Give blocks numbers from the entry on and drop those that only lead on to one other.

    Parameters
    ----------
    blocks : dict
        Blocks by any key; `successors` are such keys.
    entry : int
        Key of the entry.

    Notes
    -----
    A cycle of empty blocks (a loop without calls) keeps one member, which leads to itself.
    """
    empty = {
        key: successors[0]
        for key, (events, successors, ending) in blocks.items()
        if not events
        and ending is Ending.NEXT
        and (len(successors) == 1 or len(set(successors)) == 1)
    }

    def forward(key: int) -> int:
        seen: set[int] = set()
        while key in empty and key not in seen:
            seen.add(key)
            key = empty[key]
        return key

    order: dict[int, int] = {}
    work = [forward(entry)]
    reached: list[list[int]] = []
    while work:
        key = work.pop()
        if key in order:
            continue
        order[key] = len(order)
        onward = [forward(s) if s in empty else s for s in blocks[key][1]]
        if len(onward) > 1:
            onward = sorted(set(onward))
        reached.append(onward)
        work += onward
    return tuple(
        CodeBlock(blocks[key][0], tuple([order[s] for s in onward]), blocks[key][2])
        for key, onward in zip(order, reached, strict=True)
    )

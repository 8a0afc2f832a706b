"""Chunks of aarch64 code: a scan of the fixed-width words, and values where they are needed.

Knows the A64 encodings of branches and system calls; nothing of symbols or other functions.
Every word is four bytes, so control flow is read from bit patterns; capstone names an instruction
when one has to be shown. Where a function jumps or calls through a register, its values are
followed.
"""

from __future__ import annotations

import contextlib
import struct

from alloccheck.program.machine.aarch64_flow import StepLimit, Trace
from alloccheck.program.machine.chunk import (
    AccessPath,
    Chunk,
    CodeBlock,
    Ending,
    Event,
    EventKind,
    compact,
)
from alloccheck.program.machine.tables import ConstantReader
from alloccheck.program.machine.values import Numbers, Pointers

_STUB_LENGTH = 6
_SYSTEM_CALL_LOOKBACK = 16


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def branch(word: int, at: int) -> tuple[str, int | None] | None:
    """Classify one instruction word.

    Parameters
    ----------
    word : int
        The instruction.
    at : int
        Its address.

    Returns
    -------
    (kind, target) or None
        None for an instruction that only goes on to the next. Kinds: ``call``, ``jump``,
        ``branch`` (conditional), ``return``, ``call register``, ``jump register``,
        ``system``, ``die``, ``invalid``.

    Examples
    --------
    >>> branch(0x94000001, 0x100), branch(0xD65F03C0, 0), branch(0xD503201F, 0)
    (('call', 260), ('return', None), None)
    """
    if word >> 26 == 0b100101:
        return "call", at + 4 * _signed(word & 0x3FFFFFF, 26)
    if word >> 26 == 0b000101:
        return "jump", at + 4 * _signed(word & 0x3FFFFFF, 26)
    if word >> 24 == 0x54 or word >> 25 & 0x3F == 0b011010:  # b.cond, bc.cond; cbz, cbnz
        return "branch", at + 4 * _signed(word >> 5 & 0x7FFFF, 19)
    if word >> 25 & 0x3F == 0b011011:  # tbz, tbnz
        return "branch", at + 4 * _signed(word >> 5 & 0x3FFF, 14)
    if word >> 25 == 0b1101011:  # branches to a register, with or without authentication
        operation = word >> 21 & 0xF
        kinds = {0: "jump register", 1: "call register", 2: "return"}
        kinds |= {8: "jump register", 9: "call register"}
        return kinds.get(operation, "invalid"), None
    if word >> 24 & 0x7F in (0x74, 0x75):  # compare and branch, a later extension
        return "invalid", None
    if word & 0xFFE0001F == 0xD4000001:
        return "system", None
    if word >> 24 == 0xD4 or word >> 16 == 0:  # brk, hlt, other exceptions; udf
        return "die" if word >> 21 in (0x6A1, 0x6A2) or word >> 16 == 0 else "invalid", None
    return None


def stub_slot(words: list[int], at: int) -> tuple[int, int] | None:
    """Return the slot of a linkage stub and its length in words, or None.

    The form is ``[bti c]; adrp x16; ldr x17, [x16, #n]; add x16; br x17``.

    Parameters
    ----------
    words : list of int
        Instructions from the beginning of the stub.
    at : int
        Address of the first one.
    """
    skipped = 1 if words and words[0] == 0xD503245F else 0
    rest = words[skipped:]
    if len(rest) < 4 or rest[0] & 0x9F00001F != 0x90000010 or rest[3] != 0xD61F0220:
        return None
    if rest[1] & 0xFFC003FF != 0xF9400211 or rest[2] & 0xFFC003FF != 0x91000210:
        return None
    page = _signed((rest[0] >> 5 & 0x7FFFF) << 2 | rest[0] >> 29 & 3, 21) << 12
    start = at + 4 * skipped
    return (start & ~0xFFF) + page + (rest[1] >> 10 & 0xFFF) * 8, skipped + 4


def _number(words: list[int], position: int, leaders: set[int]) -> tuple[int, ...] | None:
    """Return the system call number set by ``mov x8, #n`` in the same straight line."""
    for back in range(position - 1, max(-1, position - _SYSTEM_CALL_LOOKBACK), -1):
        word = words[back]
        if word & 0xFFE0001F in (0xD2800008, 0x52800008):
            return (word >> 5 & 0xFFFF,)
        # Anything else that names x8, or another way in, ends the search.
        if (
            8 in (word >> shift & 0x1F for shift in (0, 5, 10, 16))
            or back + 1 in leaders
            or branch(word, 0) is not None
        ):
            return None
    return None


def describe(word: int, at: int) -> str:
    """Return the assembly text of one instruction (capstone's, if it is installed)."""
    try:
        import capstone
    except ImportError:
        return f"{word:#010x}"
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    for instruction in decoder.disasm(struct.pack("<I", word), at):
        return f"{instruction.mnemonic} {instruction.op_str}".strip()
    return f"{word:#010x}"


def read_chunk(
    code: bytes,
    low: int,
    high: int,
    entry: int,
    *,
    framed: bool = True,
    constants: ConstantReader | None = None,
    keep_addresses: bool = False,
) -> Chunk:
    """Read the code that is reached from `entry` without leaving its function.

    Parameters
    ----------
    code : bytes
        Bytes of the range.
    low, high : int
        The range.
    entry : int
        Where to begin; all three in the same coordinates.
    framed : bool, optional
        Whether the range is certain.
    constants : ConstantReader, optional
        What tables are read with; without it, jumps through registers stay unknown.
    keep_addresses : bool, optional
        Keep the address of every instruction.

    Examples
    --------
    >>> chunk = read_chunk(bytes.fromhex("c0035fd6"), 0, 4, 0)
    >>> chunk.blocks[0].ending
    <Ending.RETURN: 'return'>
    """
    count = len(code) // 4
    words = list(struct.unpack(f"<{count}I", code[: 4 * count]))
    reader = _Reader(words, low, entry, constants)
    blocks = reader.read()
    return Chunk(
        entry,
        low,
        high,
        compact(blocks, entry),
        parts=(low,),
        instructions=len(reader.seen),
        framed=framed,
        addresses=frozenset(reader.seen) if keep_addresses else frozenset(),
    )


class _Reader:
    """Descent through the words of one function."""

    def __init__(
        self, words: list[int], low: int, entry: int, constants: ConstantReader | None
    ) -> None:
        self.constants = constants
        self.trace: Trace | None = None
        self.words = words
        self.low = low
        self.high = low + 4 * len(words)
        self.entry = entry
        self.seen: set[int] = set()
        self.blocks: dict[int, CodeBlock] = {}
        self.leaders: set[int] = {(entry - low) // 4}

    def read(self) -> dict[int, CodeBlock]:
        """Return the blocks by address."""
        self._find_leaders()
        if self._needs_values() and self.constants is not None:
            trace = Trace(self.words, self.low, self.entry, self.leaders, self.constants, branch)
            with contextlib.suppress(StepLimit):
                self.trace = trace.run()
        work = [self.entry]
        while work:
            at = work.pop()
            if at not in self.blocks:
                self.blocks[at] = self._block(at)
                work.extend(self.blocks[at].successors)
        return self.blocks

    def _needs_values(self) -> bool:
        if not self.low <= self.entry < self.high or self.entry % 4:
            return False
        # Jumps and calls through registers, and system calls.
        return any(
            word & 0xFE9F0000 == 0xD61F0000 or word & 0xFFE0001F == 0xD4000001
            for word in self.words
        )

    def _paths(self, at: int) -> tuple[AccessPath, ...] | None:
        """Return where a jump or call through a register may go, or None."""
        value = self.trace.targets.get(at) if self.trace is not None else None
        return tuple(sorted(value.paths)) if isinstance(value, Pointers) else None

    def _find_leaders(self) -> None:
        for position, word in enumerate(self.words):
            found = branch(word, self.low + 4 * position)
            if found is None:
                continue
            kind, target = found
            if kind in ("jump", "branch") and target is not None:
                self.leaders.add((target - self.low) // 4)
            if kind not in ("call", "call register", "system"):
                self.leaders.add(position + 1)

    def _problem(self, at: int, events: list[Event], text: str) -> CodeBlock:
        events.append(Event(EventKind.PROBLEM, at, text=text))
        return CodeBlock(tuple(events), (), Ending.RETURN)

    def _block(self, at: int) -> CodeBlock:
        events: list[Event] = []
        if at % 4 or not self.low <= at < self.high:
            return self._problem(at, events, "not the address of an instruction")
        stub = stub_slot(self.words[(at - self.low) // 4 :][:_STUB_LENGTH], at)
        if stub is not None:
            jump = Event(EventKind.JUMP, at, ((stub[0], 0),), text="linkage stub")
            return CodeBlock((jump,), (), Ending.LEAVE)
        while True:
            position = (at - self.low) // 4
            word = self.words[position]
            self.seen.add(at)
            found = branch(word, at)
            called = False
            if found is not None:
                kind, target = found
                closing = self._close(at, word, kind, target, events)
                if closing is not None:
                    return closing
                called = kind in ("call", "call register")
                events.append(self._event(at, position, word, kind, target))
            at += 4
            if at >= self.high:
                if called:
                    return CodeBlock(tuple(events), (), Ending.OVERRUN)
                events.append(Event(EventKind.JUMP, at - 4, ((at,),), text="falls through"))
                return CodeBlock(tuple(events), (), Ending.LEAVE)
            if position + 1 in self.leaders:
                return CodeBlock(tuple(events), (at,))

    def _event(self, at: int, position: int, word: int, kind: str, target: int | None) -> Event:
        if kind == "system":
            numbers = _number(self.words, position, self.leaders)
            value = self.trace.targets.get(at) if self.trace is not None else None
            if isinstance(value, Numbers):
                numbers = tuple(sorted(value.values))
            return Event(EventKind.SYSTEM, at, numbers=numbers, text="svc")
        if kind == "call" and target is not None:
            return Event(EventKind.CALL, at, ((target,),))
        return Event(EventKind.CALL, at, self._paths(at), text=describe(word, at))

    def _close(
        self, at: int, word: int, kind: str, target: int | None, events: list[Event]
    ) -> CodeBlock | None:
        """Return the finished block when the instruction ends one."""
        if kind == "return":
            return CodeBlock(tuple(events), (), Ending.RETURN)
        if kind == "die":
            return CodeBlock(tuple(events), (), Ending.DIE)
        if kind == "invalid":
            text = f"instruction that is not followed: {describe(word, at)}"
            return self._problem(at, events, text)
        if kind == "jump register":
            return self._jump(at, word, events)
        if kind == "jump" and target is not None:
            return CodeBlock(tuple(events), (self._place(at, target),))
        if kind == "branch" and target is not None:
            return CodeBlock(tuple(events), (self._place(at, target), self._place(at, at + 4)))
        return None

    def _jump(self, at: int, word: int, events: list[Event]) -> CodeBlock:
        """Close a block with a jump through a register: to places here, elsewhere, or unknown."""
        paths = self._paths(at)
        text = describe(word, at)
        local: set[int] = set()
        outside: list[AccessPath] = []
        for path in paths or ():
            target = self.trace.local(path) if self.trace is not None else None
            if target is None:
                outside.append(path)
            else:
                local.add(target)
        if local and not outside:
            return CodeBlock(tuple(events), tuple(sorted(local)))
        jump = Event(EventKind.JUMP, at, tuple(outside) or None, text=text)
        if not local:
            return CodeBlock((*events, jump), (), Ending.LEAVE)
        return CodeBlock(tuple(events), (*sorted(local), self._leaving(at, jump)))

    def _leaving(self, site: int, jump: Event) -> int:
        """Make a block that only leaves; return its key."""
        key = -1 - 2 * site - len(self.blocks)
        while key in self.blocks:
            key -= 1
        self.blocks[key] = CodeBlock((jump,), (), Ending.LEAVE)
        return key

    def _place(self, site: int, target: int) -> int:
        if self.low <= target < self.high:
            return target
        return self._leaving(site, Event(EventKind.JUMP, site, ((target,),), text="jump"))

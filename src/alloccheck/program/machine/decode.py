"""x86-64 instructions by descent inside one range: what can run after what.

Knows iced-x86; nothing of images or values. Descent (and not a linear sweep) means that data
between functions is never taken for code; whatever cannot be decoded is recorded as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import Part

try:
    import iced_x86 as iced
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ProgramError(
        "reading x86-64 machine code needs the package iced-x86: pip install iced-x86"
    ) from error

Flow = iced.FlowControl
Mnemonic = iced.Mnemonic
INSTRUCTION_LIMIT = 400_000
"""Most instructions that are read for one function: bounds the work on hostile bytes."""

PART_LIMIT = 16
"""Most ranges that one function may be spread over."""

_TRAPS = frozenset({Mnemonic.UD0, Mnemonic.UD1, Mnemonic.UD2, Mnemonic.HLT, Mnemonic.INT3})
_BRANCHES = frozenset({Flow.CONDITIONAL_BRANCH, Flow.XBEGIN_XABORT_XEND})


class Kind(IntEnum):
    """What an instruction means for the flow of control."""

    PLAIN = 0
    """Control goes on behind it, and nowhere else."""
    CALL = 1
    """Control leaves and comes back: calls, system calls, software interrupts."""
    BRANCH = 2
    """A branch to a direct target."""
    JUMP = 3
    """A jump to a direct target."""
    END = 4
    """Returns, indirect jumps, traps, and whatever else does not go on behind it."""
    INVALID = 5
    OTHER = 6
    """What may go on behind it or elsewhere, and has no direct target."""


_KIND = {
    Flow.NEXT: Kind.PLAIN,
    Flow.CALL: Kind.CALL,
    Flow.INDIRECT_CALL: Kind.CALL,
    Flow.INTERRUPT: Kind.CALL,
    Flow.CONDITIONAL_BRANCH: Kind.BRANCH,
    Flow.XBEGIN_XABORT_XEND: Kind.BRANCH,
    Flow.UNCONDITIONAL_BRANCH: Kind.JUMP,
}
_kinds = [-1] * (1 + max(code for code in vars(iced.Code).values() if isinstance(code, int)))
"""By iced's code of the encoding: a fact about the instruction set, found when first needed."""


def kind_of(instruction: Any) -> int:
    """Return the `Kind` of an instruction, as a plain number.

    Examples
    --------
    >>> [Kind(kind_of(one)).name for one in iced.Decoder(64, bytes.fromhex("90e800000000c3"))]
    ['PLAIN', 'CALL', 'END']
    """
    kind = _kinds[instruction.code]
    return _classify(instruction) if kind < 0 else kind


def _classify(instruction: Any) -> int:
    if not instruction:
        kind = Kind.INVALID
    elif instruction.mnemonic in _TRAPS:
        kind = Kind.END
    else:
        kind = _KIND.get(instruction.flow_control, Kind.END)
        if kind in (Kind.BRANCH, Kind.JUMP) and branch_target(instruction) is None:
            kind = Kind.OTHER if kind is Kind.BRANCH else Kind.END
    _kinds[instruction.code] = int(kind)
    return int(kind)


Partner = Callable[[int], Part | None]
"""Given the target of a jump out of the parts, returns the part of the function that it is in."""


@dataclass(slots=True)
class Listing:
    """The instructions of a function reached so far, by address relative to the image.

    Parameters
    ----------
    part : Part
        The range of the function.
    partner : callable
        Finds further ranges, to which the compiler moved unlikely code.
    """

    part: Part
    partner: Partner = lambda target: None
    instructions: dict[int, Any] = field(default_factory=dict)
    kinds: dict[int, int] = field(default_factory=dict)
    """Kind of each instruction that is not plain."""
    leaders: set[int] = field(default_factory=set)
    """Where branches and jumps lead, and what stands behind them."""
    lines: dict[int, int] = field(default_factory=dict)
    """Where the straight lines begin in which they were read, by where they end."""
    stops: dict[int, int] = field(default_factory=dict)
    """The next instruction that is not plain, by the one that follows the last of them."""
    returns: list[tuple[int, int, Any]] = field(default_factory=list)
    """Where its line begins, where the last plain instructions of that begin, and the return."""
    quiet: bool = True
    """Nothing was met but plain instructions, branches that stay in the parts, and returns."""
    undecodable: set[int] = field(default_factory=set)
    exhausted: bool = False
    parts: list[Part] = field(default_factory=list)
    _decoders: dict[int, Any] = field(default_factory=dict)
    _boundaries: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts.append(self.part)

    def part_of(self, address: int) -> Part | None:
        """Return the part that holds an address."""
        for part in self.parts:
            if part.low <= address < part.high:
                return part
        return None

    def holds(self, address: int) -> bool:
        """Return whether an address is in one of the parts."""
        return self.part_of(address) is not None

    def join(self, target: int) -> bool:
        """Return whether a jump target is in this function, taking in a new part if need be."""
        if self.part_of(target) is not None:
            return True
        found = self.partner(target) if len(self.parts) < PART_LIMIT else None
        if found is None:
            return False
        self.parts.append(found)
        return True

    def is_boundary(self, address: int) -> bool:
        """Return whether a sweep over its whole part finds an instruction at an address."""
        part = self.part_of(address)
        if part is None:
            return False
        if part.low not in self._boundaries:
            sweep = iced.Decoder(64, part.code, ip=part.low)
            self._boundaries[part.low] = frozenset(i.ip for i in sweep if i)
        return address in self._boundaries[part.low]

    def descend(self, entries: Iterable[int]) -> None:
        """Read everything that is reached from `entries` by direct flow inside the parts."""
        instructions, kinds, leaders = self.instructions, self.kinds, self.leaders
        stops = self.stops
        work = [entry for entry in entries if self.holds(entry)]
        while work:
            at = start = plain = work.pop()
            if at in instructions or at in self.undecodable:
                continue
            part = self.part_of(at)
            if part is None:
                continue
            low, high = part.low, part.high
            decoder = self._decoders.get(low)
            if decoder is None:
                decoder = self._decoders[low] = iced.Decoder(64, part.code, ip=low)
            decoder.position = at - low
            decoder.ip = at
            may_exhaust = len(instructions) + high - at > INSTRUCTION_LIMIT
            # The decoder has the bytes of the part and no more: no instruction reaches out of it.
            for instruction in decoder:
                if at in instructions:
                    break
                kind = _kinds[instruction.code]
                if kind:
                    if kind < 0:
                        kind = _classify(instruction)
                    if kind == _INVALID:
                        self.undecodable.add(at)
                        self.quiet = False
                        break
                if may_exhaust and len(instructions) >= INSTRUCTION_LIMIT:
                    self.exhausted = True
                    self.quiet = False
                    return
                instructions[at] = instruction
                if not kind:
                    at = instruction.next_ip
                    continue
                kinds[at] = kind
                stops[plain] = at
                at = instruction.next_ip
                if kind == _CALL:
                    plain = at
                    self.quiet = False
                    continue
                leaders.add(at)
                if kind == _END:
                    if instruction.flow_control == Flow.RETURN:
                        self.returns.append((start, plain, instruction))
                    self.quiet = self.quiet and instruction.mnemonic == Mnemonic.RET
                    break
                if kind == _OTHER:
                    plain = at
                    self.quiet = False
                    continue
                target = instruction.near_branch_target
                leaders.add(target)
                if low <= target < high or self.join(target):
                    work.append(target)
                else:
                    self.quiet = False
                if kind == _JUMP:
                    break
                plain = at
            else:
                # Past the end of the part.
                self.quiet = False
            if at != start:
                self.lines[at] = start

    def line(self, start: int, end: int) -> list[Any]:
        """Return the instructions from one in a straight line to another one."""
        found = []
        while start != end:
            instruction = self.instructions[start]
            found.append(instruction)
            start = instruction.next_ip
        return found


_CALL, _JUMP, _END, _INVALID, _OTHER = (
    int(kind) for kind in (Kind.CALL, Kind.JUMP, Kind.END, Kind.INVALID, Kind.OTHER)
)


def branch_target(instruction: Any) -> int | None:
    """Return the direct target of a near branch or call, None for other forms.

    Examples
    --------
    >>> branch_target(next(iter(iced.Decoder(64, bytes.fromhex("eb10"), ip=0x100)))) == 0x112
    True
    """
    if instruction.op_count and instruction.op0_kind == iced.OpKind.NEAR_BRANCH64:
        return int(instruction.near_branch_target)
    return None


def always_faults(instruction: Any) -> bool:
    """Return whether the process dies (or a signal handler runs) at this instruction."""
    return instruction.mnemonic in _TRAPS

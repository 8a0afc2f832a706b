"""x86-64 instructions by descent inside one range: what can run after what.

Knows iced-x86; nothing of images or values. Descent (and not a linear sweep) means that data
between functions is never taken for code; whatever cannot be decoded is recorded as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import Part

try:
    import iced_x86 as iced
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ProgramError(
        "reading x86-64 machine code needs the package iced-x86: pip install 'alloccheck[native]'"
    ) from error

Flow = iced.FlowControl
Mnemonic = iced.Mnemonic
INSTRUCTION_LIMIT = 400_000
"""Most instructions that are read for one function: bounds the work on hostile bytes."""

PART_LIMIT = 16
"""Most ranges that one function may be spread over."""

FALLS_THROUGH = frozenset({Flow.NEXT, Flow.CALL, Flow.INDIRECT_CALL, Flow.INTERRUPT})
_TRAPS = frozenset({Mnemonic.UD0, Mnemonic.UD1, Mnemonic.UD2, Mnemonic.HLT, Mnemonic.INT3})


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
        instructions = self.instructions
        work = [entry for entry in entries if self.holds(entry)]
        while work:
            at = work.pop()
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
            while low <= at < high and at not in instructions:
                instruction = decoder.decode()
                if not instruction or instruction.next_ip > high:
                    self.undecodable.add(at)
                    break
                if len(instructions) >= INSTRUCTION_LIMIT:
                    self.exhausted = True
                    return
                instructions[at] = instruction
                flow = instruction.flow_control
                at = instruction.next_ip
                if flow == Flow.NEXT:
                    if instruction.mnemonic == Mnemonic.HLT:
                        break
                    continue
                if flow in (Flow.CONDITIONAL_BRANCH, Flow.XBEGIN_XABORT_XEND):
                    target = branch_target(instruction)
                    if target is not None and (low <= target < high or self.join(target)):
                        work.append(target)
                elif flow == Flow.UNCONDITIONAL_BRANCH:
                    target = branch_target(instruction)
                    if target is not None and (low <= target < high or self.join(target)):
                        work.append(target)
                    break
                elif flow not in FALLS_THROUGH or instruction.mnemonic in _TRAPS:
                    break


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

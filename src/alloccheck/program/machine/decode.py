"""x86-64 instructions by descent inside one range: what can run after what.

Knows iced-x86; nothing of images or values. Descent (and not a linear sweep) means that data
between functions is never taken for code; whatever cannot be decoded is recorded as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from alloccheck.errors import ProgramError

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

FALLS_THROUGH = frozenset({Flow.NEXT, Flow.CALL, Flow.INDIRECT_CALL, Flow.INTERRUPT})
_TRAPS = frozenset({Mnemonic.UD0, Mnemonic.UD1, Mnemonic.UD2, Mnemonic.HLT, Mnemonic.INT3})


@dataclass(slots=True)
class Listing:
    """The instructions reached so far, by address relative to the image.

    Parameters
    ----------
    code : bytes
        Bytes of the range.
    low, high : int
        The range.
    """

    code: bytes
    low: int
    high: int
    instructions: dict[int, Any] = field(default_factory=dict)
    undecodable: set[int] = field(default_factory=set)
    exhausted: bool = False
    _decoder: Any = None

    def __post_init__(self) -> None:
        self._decoder = iced.Decoder(64, self.code, ip=self.low)

    def descend(self, entries: Iterable[int]) -> None:
        """Read everything that is reached from `entries` by direct flow inside the range."""
        decoder, instructions = self._decoder, self.instructions
        low, high = self.low, self.high
        work = [entry for entry in entries if low <= entry < high]
        while work:
            at = work.pop()
            if at in instructions or at in self.undecodable:
                continue
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
                    if target is not None and low <= target < high:
                        work.append(target)
                elif flow == Flow.UNCONDITIONAL_BRANCH:
                    target = branch_target(instruction)
                    if target is not None and low <= target < high:
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


def thunk_slot(code: bytes, at: int) -> int | None:
    """Return the slot of a linkage stub (``[endbr64] jmp *slot(%rip)``), or None.

    Parameters
    ----------
    code : bytes
        At least the first 16 bytes of the stub.
    at : int
        Address of the first byte, relative to the image.
    """
    for instruction in iced.Decoder(64, code, ip=at):
        if instruction.mnemonic == Mnemonic.ENDBR64:
            continue
        if (
            instruction.flow_control == Flow.INDIRECT_BRANCH
            and instruction.op0_kind == iced.OpKind.MEMORY
            and instruction.is_ip_rel_memory_operand
        ):
            return int(instruction.ip_rel_memory_address)
        return None
    return None

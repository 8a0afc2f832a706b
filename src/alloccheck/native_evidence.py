"""Contracts for functions that no table names, read from the machine code that will really run.

A constant pointer (ctypes, cffi, a Cython function's address) and an external symbol of a user's
library are decided by walking the code at their address in this process. Knows the walker's
answers and the form of a contract; nothing of Numba or reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from alloccheck.analysis.contracts import Contract
from alloccheck.errors import ProgramError, UsageError
from alloccheck.program.machine.memory import LiveMemory
from alloccheck.symbols import well_known_name

if TYPE_CHECKING:
    from alloccheck.analysis.native import Decider, NativeAnswer
    from alloccheck.program.machine.walk import Region, Walker

PREFIX = "native code at "
"""How a constant address is named where no symbol of a well-known library stands there."""


@dataclass(frozen=True, slots=True)
class _RegionMemory:
    """The address space of this process, of which one range is read in a given way."""

    live: LiveMemory
    low: int
    high: int
    read_region: Callable[[int, int], bytes]

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes, or raise `Unreadable`."""
        inside = self.low <= address and address + size <= self.high
        return self.read_region(address, size) if inside else self.live.read(address, size)

    def permissions(self, address: int) -> str:
        """Return the permissions of a page."""
        return self.live.permissions(address)


class NativeEvidence:
    """Answers for the symbols and addresses of one artifact.

    Parameters
    ----------
    lookup : callable
        Returns the contract of a symbol in the tables, or None; asked first.
    addresses : mapping of str to int
        Address of each external symbol that the artifact is bound to.

    Examples
    --------
    >>> from alloccheck.analysis.contracts import load_contracts
    >>> NativeEvidence(load_contracts().lookup, {}).lookup("no such symbol") is None
    True
    """

    def __init__(
        self, lookup: Callable[[str], Contract | None], addresses: Mapping[str, int]
    ) -> None:
        self._in_tables = lookup
        self._addresses = addresses
        self._answers: dict[int, NativeAnswer | None] = {}
        self._contracts: dict[str, Contract] = {}
        self._decider: Decider | None = None

    def name(self, address: int) -> str:
        """Return the name under which `lookup` answers for a constant address."""
        return well_known_name(address) or f"{PREFIX}{address:#x}"

    def lookup(self, symbol: str) -> Contract | None:
        """Return the contract of a symbol or named address; None when nothing is known."""
        known = self._in_tables(symbol) or self._contracts.get(symbol)
        if known is not None:
            return known
        if symbol.startswith(PREFIX):
            address = int(symbol[len(PREFIX) :], 16)
        elif symbol in self._addresses:
            address = self._addresses[symbol]
        else:
            return None
        answer = self._decide(address)
        if answer is None:
            return None
        shown = answer.symbol if symbol.startswith(PREFIX) else symbol
        contract = replace(answer.contract, symbol=shown)
        self._contracts[symbol] = contract
        return contract

    def read(self) -> dict[str, Contract]:
        """Return the contracts that were read from machine code, by the name asked for."""
        return dict(self._contracts)

    def assumptions(self) -> tuple[tuple[str, str], ...]:
        """Return the named assumptions on which the walks rest, with what they are used for."""
        found = {
            (f"{one.name} ({one.subject})", one.reason)
            for answer in self._answers.values()
            if answer is not None
            for one in answer.evidence.assumptions
        }
        return tuple(sorted(found))

    def walker(self, region: Region, read: Callable[[int, int], bytes]) -> Walker:
        """Return a walker that reads one function of jitted code.

        Parameters
        ----------
        region : Region
            Where it is.
        read : callable
            Reads its bytes: ``read(address, size)``.
        """
        from alloccheck.program.machine.walk import Walker

        known = self._native().walker
        memory = _RegionMemory(LiveMemory.open(), region.start, region.start + region.size, read)
        return Walker(memory=memory, images=known.images.images, regions=(region,))

    def _native(self) -> Decider:
        if self._decider is None:
            # The disassembler is only loaded where there is something to read.
            from alloccheck.analysis.native import Decider

            self._decider = Decider()
        return self._decider

    def _decide(self, address: int) -> NativeAnswer | None:
        if address not in self._answers:
            self._answers[address] = self._walk(address)
        return self._answers[address]

    def _walk(self, address: int) -> NativeAnswer | None:
        try:
            return self._native().decide(address)
        except (UsageError, ProgramError):
            return None

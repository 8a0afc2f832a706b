"""Contracts read from the machine code that will really run, where tables leave that to it.

A constant pointer (ctypes, cffi, a Cython function's address), an external symbol of a user's
library, and symbols whose contract is but a fallback are decided by walking the code at their
address in this process. Knows the walker's answers and the form of a contract; nothing of Numba or
reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from alloccheck.analysis.contracts import Contract
from alloccheck.effects import Effect, Path
from alloccheck.errors import ProgramError, UsageError
from alloccheck.native_answers import AnswerCache
from alloccheck.program.machine.memory import LiveMemory
from alloccheck.symbols import well_known_name

if TYPE_CHECKING:
    from alloccheck.analysis.native_answer import NativeAnswer
    from alloccheck.program.machine.walk import Region, Walker

_OPEN = frozenset({Effect.DISPATCH, Effect.UNKNOWN})
PREFIX = "native code at "
"""How a constant address is named where no symbol of a well-known library stands there."""


def is_decided(answer: NativeAnswer) -> bool:
    """Return whether a walk read everything that a function reaches.

    Parameters
    ----------
    answer : NativeAnswer
        Its result; what happens while the process dies does not count.
    """
    return answer.effects.isdisjoint(_OPEN)


def _with_what_is_shown(known: Contract, answer: NativeAnswer) -> Contract:
    """Return a contract with the effects that a walk found, which was not read to the end.

    The contract speaks for what the walk could not follow; it clears nothing of what it saw. That
    an effect ends by unwinding is not shown by code that was not read to the end.
    """
    said = {effect for effect in known.effects if effect.path is Path.RETURN}
    seen = dict.fromkeys(replace(one, path=Path.RETURN) for one in answer.contract.effects)
    shown = [one for one in seen if one.effect not in _OPEN and one not in said]
    if not shown:
        return known
    reason = f"{known.reason}; the machine code, not read to the end, shows more"
    return replace(known, effects=(*known.effects, *shown), reason=reason)


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
        self._addresses = dict(addresses)
        self._names: dict[int, str] = {}
        self._answers: dict[int, NativeAnswer | None] = {}
        self._contracts: dict[str, Contract] = {}
        self._kept = AnswerCache()
        self.seconds = 0.0
        """Spent on walks so far."""

    def name(self, address: int) -> str:
        """Return the name under which `lookup` answers for a constant address."""
        known = self._names.get(address)
        if known is None:
            known = well_known_name(address)
            if known is not None and self._in_tables(known) is None:
                known = self._alias(address, known)
            # A name has several versions at times, each with code of its own.
            if known is None or self._addresses.setdefault(known, address) != address:
                known = f"{PREFIX}{address:#x}"
            self._names[address] = known
        return known

    def _alias(self, address: int, name: str) -> str:
        """Return the best of the names that a library has for an address, of which one is given."""
        from alloccheck.program.machine.view import current_view

        image = current_view().images.find(address)
        names = {name} if image is None else {name, *(s.name for s in image.exports.at(address))}
        return min(
            names,
            key=lambda one: (self._in_tables(one) is None, one.startswith("_"), len(one), one),
        )

    def lookup(self, symbol: str) -> Contract | None:
        """Return the contract of a symbol or named address; None when nothing is known.

        Parameters
        ----------
        symbol : str
            An external symbol, or what `name` gave.

        Notes
        -----
        Machine code comes first where the table says that its contract is but a fallback, and
        wherever the table has none. Where the code is not read to the end, such a contract
        speaks for the rest, and what the code shows counts as well. Any other contract says what
        machine code cannot show: what a pointer of the run time leads to, or what is called back.
        """
        if symbol in self._contracts:
            return self._contracts[symbol]
        known = self._in_tables(symbol)
        if known is not None and not known.fallback:
            return known
        answer = self._answer(symbol)
        if answer is None:
            return known
        if known is not None and not is_decided(answer):
            contract = _with_what_is_shown(known, answer)
            if contract is known:
                return known
        else:
            shown = answer.symbol if symbol.startswith(PREFIX) else symbol
            contract = replace(answer.contract, symbol=shown)
        self._contracts[symbol] = contract
        return contract

    def _answer(self, symbol: str) -> NativeAnswer | None:
        if symbol.startswith(PREFIX):
            return self._decide(int(symbol[len(PREFIX) :], 16))
        address = self._addresses.get(symbol)
        return None if address is None else self._decide(address)

    def read(self) -> dict[str, Contract]:
        """Return the contracts that were read from machine code, by the name asked for."""
        return dict(self._contracts)

    def assumptions(self) -> tuple[tuple[str, str], ...]:
        """Return the named assumptions on which the walks rest, with what they are used for."""
        subjects: dict[tuple[str, str], set[str]] = {}
        for answer in self._answers.values():
            for one in answer.evidence.assumptions if answer is not None else ():
                subjects.setdefault((one.name, one.reason), set()).add(one.subject)
        return tuple(
            (f"{name} ({', '.join(sorted(named))})", reason)
            for (name, reason), named in sorted(subjects.items())
        )

    def unusual_assumptions(self) -> tuple[tuple[str, str], ...]:
        """Return those of functions that no table names: what a reader of a report must know."""
        found: dict[tuple[str, str], None] = {}
        for symbol in self._contracts:
            if self._in_tables(symbol) is not None:
                continue
            answer = self._answer(symbol)
            for one in answer.evidence.assumptions if answer is not None else ():
                found[f"{one.name} ({one.subject})", one.reason] = None
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
        from alloccheck.program.machine.view import current_view
        from alloccheck.program.machine.walk import Walker

        view = current_view()
        memory = _RegionMemory(LiveMemory.open(), region.start, region.start + region.size, read)
        return Walker(memory=memory, images=view.images.images, regions=(region,))

    def _decide(self, address: int) -> NativeAnswer | None:
        if address not in self._answers:
            started = time.perf_counter()
            self._answers[address] = self._walk(address)
            self.seconds += time.perf_counter() - started
        return self._answers[address]

    def _walk(self, address: int) -> NativeAnswer | None:
        try:
            return self._kept.decide(address)
        except (UsageError, ProgramError):
            return None

"""What a measurement says: tallies, events and what could be seen at all.

Plain data; knows nothing of how it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from alloccheck.effects import Effect, Guarantee


class Category(StrEnum):
    """Why a counted function matters."""

    ALLOCATE = "allocate"
    FREE = "free"
    LOCK = "lock"
    WAIT = "wait"
    GIL = "gil"

    @property
    def effect(self) -> Effect:
        """The effect that a count in this category witnesses."""
        return {
            Category.ALLOCATE: Effect.ALLOCATE,
            Category.FREE: Effect.FREE,
            Category.LOCK: Effect.BLOCK,
            Category.WAIT: Effect.BLOCK,
            Category.GIL: Effect.PYTHON,
        }[self]


@dataclass(frozen=True, slots=True)
class Tally:
    """How often one function was called, or one system call made, in a window.

    Parameters
    ----------
    name : str
        Such as ``"malloc"`` or ``"system call write"``.
    category : Category
        Why it matters.
    count : int
        How often; never zero.
    """

    name: str
    category: Category
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """An address in a process, resolved as far as possible.

    Parameters
    ----------
    address : int
        The address itself: a return address, so it lies just behind a call.
    symbol : str or None
        The function that it lies in, when known.
    offset : int
        From the symbol, or from the module's start when there is no symbol.
    module : str
        File of the shared object, or ``"<jit>"``.
    """

    address: int
    symbol: str | None
    offset: int
    module: str

    def __str__(self) -> str:
        name = self.symbol or "?"
        return f"{name}+{self.offset:#x} ({self.module})"


@dataclass(frozen=True, slots=True)
class Event:
    """One counted call.

    Parameters
    ----------
    name : str
        As in `Tally`.
    category : Category
        As in `Tally`.
    size : int
        Bytes asked for; 0 when the function takes no size.
    caller : Place
        Who called it: exact.
    site : Place or None
        The innermost place in jitted code on the stack at that moment. It is found by searching
        the stack for return addresses, so a stale one is possible: a hint, not evidence.
    """

    name: str
    category: Category
    size: int
    caller: Place
    site: Place | None


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What one call did, on its own thread, between its first and its last instruction.

    Parameters
    ----------
    tallies : tuple of Tally
        Everything counted.
    bytes : int
        Bytes asked for by allocations.
    events : tuple of Event
        The first of them (at most 256), in order.
    outcome : str
        ``"returned"`` or ``"raised"``.
    exception : str or None
        Its rendering, when it raised.
    result : object
        What it returned, when that can be carried over; else its `repr` in a `Remote`.
    other_threads : tuple of Tally
        What all other threads did meanwhile. Not necessarily on behalf of the call.
    system_calls : mapping of str to int, or None
        All system calls of the thread, also those inside counted functions; None when the kernel
        cannot tell.
    complete : bool
        Whether every system call was seen.
    """

    tallies: tuple[Tally, ...]
    bytes: int
    events: tuple[Event, ...]
    outcome: str
    exception: str | None
    result: Any
    other_threads: tuple[Tally, ...]
    system_calls: Mapping[str, int] | None
    complete: bool

    def total(self, category: Category) -> int:
        """Return the sum of one category's counts."""
        return sum(t.count for t in self.tallies if t.category is category)

    def count(self, name: str) -> int:
        """Return how often the function of this name was called."""
        return sum(t.count for t in self.tallies if t.name == name)

    @property
    def allocations(self) -> int:
        """How often memory was obtained, whether by the heap or straight from the kernel."""
        return self.total(Category.ALLOCATE)

    @property
    def frees(self) -> int:
        """How often memory was given back."""
        return self.total(Category.FREE)

    @property
    def locks(self) -> int:
        """How often a lock was taken or a condition waited for."""
        return self.total(Category.LOCK)

    @property
    def waits(self) -> int:
        """How often something was called that may wait, apart from locks."""
        return self.total(Category.WAIT)

    @property
    def gil(self) -> int:
        """How often the interpreter's lock was taken."""
        return self.total(Category.GIL)

    @property
    def effects(self) -> frozenset[Effect]:
        """The effects that were seen."""
        seen = {t.category.effect for t in self.tallies}
        if self.outcome == "raised":
            seen.add(Effect.RAISE)
        return frozenset(seen)


@dataclass(frozen=True, slots=True)
class Remote:
    """A value that stayed in the measuring process."""

    text: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the measuring process can see; it tests this on itself when it starts.

    Parameters
    ----------
    heap : bool
        Calls of the malloc family, libc's own included.
    system_calls : bool
        Every system call of the thread. Without it, memory taken and waits made inside libc or
        by inline system calls are not seen.
    gil : bool
        The interpreter's lock being taken from native code. False when Python is linked
        statically: its functions cannot be wrapped then.
    """

    heap: bool
    system_calls: bool
    gil: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """A measured function: one `CallCounts` for each call.

    Parameters
    ----------
    function : str
        ``module:qualname``.
    signature : str
        The overload that ran.
    calls : tuple of CallCounts
        In order.
    artifact : bool
        Whether the machine code came from a checked artifact rather than Numba's own library.
    digest : str or None
        The artifact's digest there, to be compared with a certificate.
    coverage : Coverage
        What could be seen at all.
    address : int
        Of the entry that was called, in the measuring process; places in its code are near it.
    """

    function: str
    signature: str
    calls: tuple[CallCounts, ...]
    artifact: bool
    digest: str | None
    coverage: Coverage
    address: int = 0

    @property
    def first_call(self) -> CallCounts:
        """The first call, with whatever is set up only once."""
        return self.calls[0]

    @property
    def steady(self) -> CallCounts:
        """The last call."""
        return self.calls[-1]

    @property
    def allocations(self) -> int:
        """Allocations of the last call: the steady state."""
        return self.steady.allocations

    @property
    def frees(self) -> int:
        """Frees of the last call."""
        return self.steady.frees

    @property
    def locks(self) -> int:
        """Locks taken by the last call."""
        return self.steady.locks

    @property
    def waits(self) -> int:
        """Possible waits of the last call."""
        return self.steady.waits

    @property
    def gil(self) -> int:
        """How often the last call took the interpreter's lock."""
        return self.steady.gil

    @property
    def events(self) -> tuple[Event, ...]:
        """The last call's events."""
        return self.steady.events

    @property
    def result(self) -> Any:
        """What the last call returned."""
        return self.steady.result

    def refutations(
        self, guarantee: Guarantee, *, first_call: bool = True, other_threads: bool = False
    ) -> tuple[str, ...]:
        """Return one sentence for each thing seen that the guarantee forbids.

        Parameters
        ----------
        guarantee : Guarantee
            What is claimed.
        first_call : bool
            Whether the first call counts. A single call always does.
        other_threads : bool
            Whether what other threads did meanwhile counts: right for a parallel function in a
            process where no other thread has work of its own.
        """
        skipped = 0 if first_call or len(self.calls) == 1 else 1
        found = []
        for number, call in enumerate(self.calls[skipped:], start=skipped + 1):
            elsewhere = call.other_threads if other_threads else ()
            for tally in (*call.tallies, *elsewhere):
                if tally.category.effect not in guarantee.forbidden:
                    continue
                event = next((e for e in call.events if e.name == tally.name), None)
                where = " in other threads" if tally in elsewhere else ""
                if event is not None:
                    where += f", first from {event.caller}"
                    if event.site is not None and event.site != event.caller:
                        where += f" under {event.site}"
                found.append(
                    f"call {number}: {tally.category.effect} by {tally.name} x {tally.count}{where}"
                )
        return tuple(found)

    def __str__(self) -> str:
        lines = [f"{self.function} {self.signature}"]
        for number, call in enumerate(self.calls, start=1):
            counted = ", ".join(f"{t.name} {t.count}" for t in call.tallies) or "nothing"
            lines.append(f"  call {number} {call.outcome}: {counted}")
        return "\n".join(lines)

"""The interposer seen from Python, inside the process that it is loaded into.

Knows the C side's structure and addresses; nothing of Numba or of the protocol.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alloccheck.oracle.counts import Category, Coverage, Event, Place, Tally
from alloccheck.oracle.elfnames import function_at
from alloccheck.oracle.errors import OracleError

_CATEGORIES = {
    b"a": Category.ALLOCATE,
    b"f": Category.FREE,
    b"l": Category.LOCK,
    b"w": Category.WAIT,
    b"g": Category.GIL,
}

DRIVER = "<driver>"
"""Name of the code that opens and closes the window; never part of what is measured."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("size", ctypes.c_uint64),
        ("caller", ctypes.c_void_p),
        ("site", ctypes.c_void_p),
    )


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted between the last arming and disarming of this thread."""

    tallies: tuple[Tally, ...]
    other_threads: tuple[Tally, ...]
    bytes: int
    events: tuple[Event, ...]
    system_calls: dict[str, int] | None
    complete: bool


class SymbolTable:
    """Names of jitted code, which the dynamic linker does not know."""

    def __init__(self) -> None:
        self._symbols: dict[int, str] = {}
        self._starts: list[int] = []
        self._regions: tuple[tuple[int, int], ...] = ()

    def add(self, symbols: Iterable[tuple[int, str]]) -> None:
        """Remember functions by their start addresses."""
        self._symbols.update(symbols)
        self._starts = sorted(self._symbols)

    def refresh(self) -> tuple[tuple[int, int], ...]:
        """Read anew where anonymous executable memory lies, and return it."""
        regions = []
        with open("/proc/self/maps", encoding="utf-8") as lines:  # noqa: PTH123
            for line in lines:
                fields = line.split(maxsplit=5)
                if "x" in fields[1] and len(fields) == 5:
                    low, _, high = fields[0].partition("-")
                    regions.append((int(low, 16), int(high, 16)))
        self._regions = tuple(regions)
        return self._regions

    def find(self, address: int) -> Place | None:
        """Return the place of an address in jitted code, or None when it lies elsewhere."""
        for low, high in self._regions:
            if low <= address < high:
                before = bisect_left(self._starts, address)
                start = self._starts[before - 1] if before else 0
                if start < low:
                    return Place(address, None, address - low, "<jit>")
                return Place(address, self._symbols[start], address - start, "<jit>")
        return None


class Interposer:
    """The interposer of this process.

    Raises
    ------
    OracleError
        When this process was started without it.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        try:
            library.alloccheck_shape.argtypes = [ctypes.POINTER(ctypes.c_int64)]
        except AttributeError:
            raise OracleError(
                "This process runs without the interposer: the dynamic linker ignored LD_PRELOAD"
            ) from None
        self._dladdr = library.dladdr
        self._dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
        library.alloccheck_kind.restype = ctypes.c_char_p
        library.alloccheck_system_call.restype = ctypes.c_char_p
        library.alloccheck_ledger.restype = ctypes.c_void_p
        library.alloccheck_set_code.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._library = library
        shape = (ctypes.c_int64 * 4)()
        library.alloccheck_shape(shape)
        kinds, numbers, events, size = shape

        class Ledger(ctypes.Structure):
            _fields_ = (
                ("armed", ctypes.c_int64),
                ("depth", ctypes.c_int64),
                ("sees_system_calls", ctypes.c_int64),
                ("complete", ctypes.c_int64),
                ("stack_top", ctypes.c_void_p),
                ("bytes", ctypes.c_uint64),
                ("event_count", ctypes.c_uint64),
                ("counts", ctypes.c_uint64 * kinds),
                ("others", ctypes.c_uint64 * kinds),
                ("all_calls", ctypes.c_uint32 * numbers),
                ("bare_calls", ctypes.c_uint32 * numbers),
                ("events", _Event * events),
            )

        if ctypes.sizeof(Ledger) != size:
            raise OracleError(
                f"The interposer's ledger has {size} bytes, expected {ctypes.sizeof(Ledger)}"
            )
        self._ledger_type = Ledger
        self.symbols = SymbolTable()

    @property
    def arm_address(self) -> int:
        """Address of the C function ``void alloccheck_arm(void)``."""
        return self._address("alloccheck_arm")

    @property
    def disarm_address(self) -> int:
        """Address of the C function ``void alloccheck_disarm(void)``."""
        return self._address("alloccheck_disarm")

    def _address(self, name: str) -> int:
        value = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert value is not None
        return value

    @cached_property
    def coverage(self) -> Coverage:
        """What can be seen here, tried out with C library calls of known behaviour."""
        bits = self._library.alloccheck_coverage()
        return Coverage(heap=bool(bits & 1), system_calls=bool(bits & 2), gil=bool(bits & 4))

    @cached_property
    def _kinds(self) -> tuple[tuple[str, Category | None], ...]:
        found: list[tuple[str, Category | None]] = []
        category = ctypes.c_char()
        while name := self._library.alloccheck_kind(len(found), ctypes.byref(category)):
            found.append((name.decode(), _CATEGORIES.get(category.value)))
        return tuple(found)

    @cached_property
    def _system_calls(self) -> dict[int, tuple[str, Category | None]]:
        found: dict[int, tuple[str, Category | None]] = {}
        number, category = ctypes.c_long(), ctypes.c_char()
        row = 0
        while name := self._library.alloccheck_system_call(
            row, ctypes.byref(number), ctypes.byref(category)
        ):
            found[number.value] = name.decode(), _CATEGORIES.get(category.value)
            row += 1
        return found

    def watch(self, symbols: Iterable[tuple[int, str]]) -> None:
        """Make the code that was jitted so far known, and name some of its functions."""
        self.symbols.add(symbols)
        regions = self.symbols.refresh()
        flat = [bound for region in regions for bound in region]
        self._library.alloccheck_set_code((ctypes.c_size_t * len(flat))(*flat), len(regions))

    def read(self) -> Window:
        """Return what the last window of this thread counted."""
        ledger = self._ledger_type.from_address(self._library.alloccheck_ledger())
        seen = {}
        if ledger.sees_system_calls:
            seen = {self._call(i)[0]: n for i, n in _nonzero(ledger.all_calls)}
        tallies = [
            *self._tallies(ledger.counts),
            *(
                Tally(f"system call {name}", category or Category.WAIT, n)
                for (name, category), n in (
                    (self._call(i), n) for i, n in _nonzero(ledger.bare_calls)
                )
            ),
        ]
        kept = min(ledger.event_count, len(ledger.events))
        return Window(
            tuple(tallies),
            tuple(self._tallies(ledger.others)),
            ledger.bytes,
            tuple(self._event(e) for e in ledger.events[:kept]),
            seen if ledger.sees_system_calls else None,
            bool(ledger.complete),
        )

    def _tallies(self, counts: Any) -> list[Tally]:
        named = ((self._kinds[i], n) for i, n in _nonzero(counts))
        return [Tally(name, category, n) for (name, category), n in named if category is not None]

    def _call(self, number: int) -> tuple[str, Category | None]:
        return self._system_calls.get(number, (f"number {number}", Category.WAIT))

    def _event(self, event: Any) -> Event:
        name, category = self._kinds[event.kind]
        size = event.size
        if category is None:
            name, category = self._call(size)
            name, size = f"system call {name}", 0
        site = self.symbols.find(event.site) if event.site else None
        if site is not None and site.symbol == DRIVER:
            site = None  # the search went past the measured function: it has left its frame
        return Event(name, category or Category.WAIT, size, self.place(event.caller or 0), site)

    def place(self, address: int) -> Place:
        """Resolve an address: jitted code by our own table, all else by the dynamic linker."""
        jitted = self.symbols.find(address)
        if jitted is not None:
            return jitted
        info = _DlInfo()
        # The call that returns to `address` stands before it, maybe as its function's last word.
        if not self._dladdr(address - 1, ctypes.byref(info)):
            return Place(address, None, 0, "?")
        module = info.file.decode(errors="replace") if info.file else "?"
        if info.name:
            return Place(address, info.name.decode(), address - info.address, module)
        offset = address - (info.base or 0)
        found = function_at(module, offset - 1)
        if found is not None:
            return Place(address, found[0], offset - found[1], module)
        return Place(address, None, offset, module)


def _nonzero(counts: Any) -> list[tuple[int, int]]:
    # Mostly zeros: looking at them one by one in Python would cost more than the call measured.
    array = np.ctypeslib.as_array(counts)
    return [(i, int(array[i])) for i in np.flatnonzero(array).tolist()]

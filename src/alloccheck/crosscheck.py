"""Do the two readers agree? Compares an artifact's machine code with what its IR shows.

Every function that the IR reader reaches is decoded as it lies in memory, and what it calls is
compared with what its IR calls, function by function: code generation inlines nothing, so both
must show the same. A callee, a pointer, or an instruction that enters the kernel that one reader
alone sees becomes a witness. Knows artifacts, the program graph and contracts; nothing of
guarantees or reports.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from alloccheck.analysis.callbacks import NEVER_CALLED_BACK
from alloccheck.analysis.contracts import Contract
from alloccheck.analysis.summary import Witness
from alloccheck.compile.artifact import Built
from alloccheck.compile.objectfile import Symbol
from alloccheck.effects import Effect, Occasion, Path
from alloccheck.findings import only_seen_in
from alloccheck.native_evidence import NativeEvidence
from alloccheck.program.model import Address, Call, Direct, Indirect, Program, Unread
from alloccheck.source import Backtrace, Frame

if TYPE_CHECKING:
    from alloccheck.program.machine.calls import Site

MACHINES = ("x86_64", "AMD64")
"""Where the machine code of artifacts is read."""

_ABSOLUTE_WORD = 1
"""R_X86_64_64: the relocation of a word that holds an address."""


def can_compare() -> bool:
    """Return whether machine code of this machine can be read."""
    return platform.machine() in MACHINES


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Parameters
    ----------
    witnesses : tuple of Witness
        One for each thing that one reader alone shows.
    place : callable
        From an external symbol to the source lines of the first call of it in the machine code.
    functions, sites : int
        How much was compared.
    notes : tuple of str
        What a reader of the report should know.
    """

    witnesses: tuple[Witness, ...]
    place: Callable[[str], Backtrace]
    functions: int
    sites: int
    notes: tuple[str, ...] = ()


def load() -> None:
    """Load the disassembler, which is otherwise loaded when there is something to read."""
    if can_compare():
        importlib.import_module("alloccheck.program.machine.calls")


def compare(
    built: Built,
    programs: list[Program],
    contracts: NativeEvidence,
    judged: frozenset[str] = frozenset(),
    read: Callable[[int, int], bytes] = ctypes.string_at,
) -> Comparison:
    """Compare the machine code of an artifact with its IR.

    Parameters
    ----------
    built : Built
        The artifact, loaded.
    programs : list of Program
        What the IR reader made of it, one for each entry.
    contracts : NativeEvidence
        What externals do.
    judged : frozenset of str
        Externals that only the machine code has and that are judged otherwise.
    read : callable
        Reads memory: ``read(address, size)``.

    Returns
    -------
    Comparison
        Without witnesses where the two readers agree.

    Notes
    -----
    A callee without effects is no disagreement: code generation puts instructions in place of
    such calls (``sqrt``), and calls in place of instructions (``frem``).
    """
    if not can_compare():
        note = f"the machine code of {platform.machine()} is not read: the proof rests on the IR"
        return Comparison((), lambda symbol: (), 0, 0, (note,))
    return _Comparer(built, programs, contracts, judged, read).run()


@dataclass(slots=True)
class _Picture:
    """What the IR of one function calls."""

    called: dict[int, Call] = field(default_factory=dict)
    """By live address: calls of functions of the artifact, externals, constant addresses."""
    candidates: set[int] = field(default_factory=set)
    missing: list[tuple[str, Call]] = field(default_factory=list)
    """Externals that the object does not even need."""
    pointer: Call | None = None
    """A call through a pointer."""
    unread: bool = False


class _Comparer:
    def __init__(
        self,
        built: Built,
        programs: list[Program],
        contracts: NativeEvidence,
        judged: frozenset[str],
        read: Callable[[int, int], bytes],
    ) -> None:
        self.read = read
        self.built = built
        self.programs = programs
        self.contracts = contracts
        self.judged = judged
        sections = built.artifact.image.sections
        self.symbols = {
            one.name: one
            for one in built.object_file.symbols
            if one.function and one.section in sections
        }
        self.starts = {sections[s.section] + s.offset: name for name, s in self.symbols.items()}
        self.names: dict[int, list[str]] = {}
        for name, address in built.artifact.externals.items():
            self.names.setdefault(address, []).append(name)
        self.witnesses: list[Witness] = []
        self.first: dict[str, int] = {}
        self.sites = 0

    def run(self) -> Comparison:
        reached = _reached(self.programs)
        for name, program in reached.items():
            self._function(name, program)
        return Comparison(tuple(self.witnesses), self._place, len(reached), self.sites)

    def _place(self, symbol: str) -> Backtrace:
        address = self.first.get(symbol)
        return () if address is None else self._lines(address)

    # --- the two pictures ---------------------------------------------------------------------

    def _picture(self, program: Program, name: str) -> _Picture:
        picture = _Picture()
        externals = self.built.artifact.externals
        for call in program.functions[name].calls:
            match call.target:
                case Direct(symbol):
                    self._direct(picture, program, symbol, call)
                case Address(address, _):
                    picture.called.setdefault(address, call)
                case Indirect(candidates, _):
                    if candidates is None:
                        picture.pointer = call
                    for symbol in candidates or ():
                        place = self._start(symbol) or externals.get(symbol)
                        picture.candidates.update(() if place is None else (place,))
                case Unread():
                    picture.unread = True
        return picture

    def _direct(self, picture: _Picture, program: Program, symbol: str, call: Call) -> None:
        inside = symbol in program.functions
        address = self._start(symbol) if inside else self.built.artifact.externals.get(symbol)
        if address is None:
            picture.missing.append((symbol, call))
        else:
            picture.called.setdefault(address, call)

    def _start(self, name: str) -> int | None:
        symbol = self.symbols.get(name)
        if symbol is None:
            return None
        return self.built.artifact.image.sections[symbol.section] + symbol.offset

    def _sites(self, symbol: Symbol) -> tuple[Site, ...]:
        # The disassembler is only loaded where there is something to read.
        from alloccheck.program.machine.calls import read_calls

        start = self._start(symbol.name)
        assert start is not None
        code = self.read(start, symbol.size)
        return read_calls(code, start, self._word, self._tables)

    def _word(self, address: int) -> int | None:
        """Read a word of the artifact's own data: nothing outside writes it."""
        for low, high in self._data:
            if low <= address <= high - 8:
                return int.from_bytes(self.read(address, 8), "little")
        return None

    @cached_property
    def _data(self) -> list[tuple[int, int]]:
        sections = self.built.artifact.image.sections
        return [
            (sections[one.name], sections[one.name] + len(one.data))
            for one in self.built.object_file.sections
            if one.name in sections and not one.executable and one.data
        ]

    @cached_property
    def _tables(self) -> Mapping[int, int] | None:
        """Constant words that hold addresses of code; None when some are in another form."""
        sections = self.built.artifact.image.sections
        found = {}
        object_file = self.built.object_file
        executable = {one.name for one in object_file.sections if one.executable}
        constant = {
            one.name
            for one in object_file.sections
            if not one.executable and not one.writable and one.name in sections
        }
        for one in object_file.relocations:
            if one.section not in constant or one.external:
                continue
            if one.target.rpartition("+")[0] in executable:
                if one.kind != _ABSOLUTE_WORD:
                    return None
                place = sections[one.section] + one.offset
                found[place] = int.from_bytes(self.read(place, 8), "little")
        return found

    @cached_property
    def _ends(self) -> frozenset[int]:
        """Externals that never return; code generation puts unrelated code after their calls."""
        found = ((name, self.contracts.lookup(name)) for name in self.built.artifact.externals)
        return frozenset(
            self.built.artifact.externals[name]
            for name, contract in found
            if contract is not None and contract.path is Path.DIVERGE
        )

    # --- one function -------------------------------------------------------------------------

    def _function(self, name: str, program: Program) -> None:
        from alloccheck.program.machine.calls import SiteKind

        symbol = self.symbols.get(name)
        if symbol is None or not symbol.size:
            reason = "its IR has a body and the object has no code of that name"
            self._alone("IR", Effect.UNKNOWN, name, reason, ())
            return
        picture = self._picture(program, name)
        sites = self._sites(symbol)
        pointers = any(site.kind is SiteKind.POINTER for site in sites)
        if pointers and picture.pointer is None:
            sites = tuple(self._followed(symbol, sites, picture))
        self.sites += len(sites)
        called: dict[int, Site] = {}
        for site in sites:
            for target in sorted(site.targets):
                called.setdefault(target, site)
                for external in self.names.get(target, ()):
                    self.first.setdefault(external, site.address)
        if not picture.unread:
            self._machine_alone(name, picture, sites)
        undecided = any(site.kind is SiteKind.POINTER for site in sites)
        if not undecided:
            self._ir_alone(name, program, picture, called)

    def _followed(
        self, symbol: Symbol, sites: tuple[Site, ...], picture: _Picture
    ) -> Iterator[Site]:
        """Replace pointers that are not known by what value analysis finds in the function."""
        from alloccheck.program.machine.calls import Site, SiteKind
        from alloccheck.program.machine.walk import Region

        start = self._start(symbol.name)
        assert start is not None
        region = Region(start, symbol.size, symbol.name, self._tables or {}, self._ends)
        node = self.contracts.walker(region, self.read).node(start)
        links: dict[int, set[int] | None] = {}
        inner: set[int] = set()
        for number, block in enumerate(node.chunk.blocks if node.chunk is not None else ()):
            for position, event in enumerate(block.events):
                found = links.setdefault(event.site, set())
                for link in node.links.get((number, position), ()):
                    if link.target is None or found is None:
                        links[event.site] = found = None
                    else:
                        found.add(link.target)
        if node.chunk is not None and node.chunk.traced:
            inner = {site.address for site in sites if site.address not in links}
        for site in sites:
            targets = links.get(site.address)
            if site.kind is not SiteKind.POINTER:
                yield site
            elif targets:
                yield Site(SiteKind.CALL, site.address, frozenset(targets), site.text, True)
            elif site.address not in inner or not site.text.startswith("jmp"):
                yield site
            # Else a jump through a table inside the function.

    def _machine_alone(self, name: str, picture: _Picture, sites: tuple[Site, ...]) -> None:
        from alloccheck.program.machine.calls import SiteKind

        shown: set[object] = set()
        for site in sites:
            where = f"{name}+{site.address - (self._start(name) or 0):#x} ({site.text})"
            if site.kind is SiteKind.SYSTEM and site.kind not in shown:
                text = f"an instruction that enters the kernel, at {where}"
                self._alone(
                    "machine code", Effect.UNKNOWN, "system call", text, self._lines(site.address)
                )
            elif site.kind is SiteKind.UNREAD:
                text = f"code that is not followed, at {where}"
                self._alone("machine code", Effect.UNKNOWN, name, text, self._lines(site.address))
            elif site.kind is SiteKind.POINTER and picture.pointer is None:
                if picture.candidates:
                    continue
                text = f"calls through a pointer at {where}"
                self._alone("machine code", Effect.DISPATCH, name, text, self._lines(site.address))
            shown.add(site.kind)
            for target in sorted(site.targets):
                if target in picture.called or target in picture.candidates or target in shown:
                    continue
                if site.indirect and picture.pointer is not None and target not in self.names:
                    continue  # what the IR calls through a pointer
                shown.add(target)
                self._callee_alone(target, where, site)

    def _callee_alone(self, target: int, where: str, site: Site) -> None:
        own = self.starts.get(target)
        if own is not None:
            text = f"called at {where}"
            self._alone("machine code", Effect.UNKNOWN, own, text, self._lines(site.address))
            return
        symbol = min(self.names.get(target, ()), default="") or self.contracts.name(target)
        if not self.judged.isdisjoint(self.names.get(target, ())):
            return
        contract = self.contracts.lookup(symbol)
        if contract is None:
            text = f"called at {where}, and nothing is known of it"
            self._alone("machine code", Effect.UNKNOWN, symbol, text, self._lines(site.address))
            return
        for one in contract.effects:
            text = f"{contract.reason}; called at {where}"
            self._alone(
                "machine code",
                one.effect,
                symbol,
                text,
                self._lines(site.address),
                contract,
                one.occasion,
            )

    def _ir_alone(
        self, name: str, program: Program, picture: _Picture, called: Mapping[int, Site]
    ) -> None:
        shown = ", ".join(sorted({self._shown(target) for target in called})) or "nothing"
        missing = [(self._shown(a), c) for a, c in picture.called.items() if a not in called]
        for symbol, call in (*picture.missing, *missing):
            inside = symbol in program.functions
            contract = None if inside else self.contracts.lookup(symbol)
            if contract is not None and _is_arithmetic(contract):
                continue  # code generation puts instructions in place of such calls
            place = program.locate(call.location) if call.location is not None else ()
            text = f"the machine code of {name} calls {shown}"
            effects = contract.effects if contract is not None else ()
            for one in effects:
                self._alone("IR", one.effect, symbol, text, place, contract, one.occasion)
            if not effects:
                self._alone("IR", Effect.UNKNOWN, symbol, text, place, contract)

    def _shown(self, address: int) -> str:
        own = self.starts.get(address)
        return own or min(self.names.get(address, ()), default="") or self.contracts.name(address)

    def _alone(
        self,
        reader: Literal["IR", "machine code"],
        effect: Effect,
        symbol: str,
        reason: str,
        frames: Backtrace,
        contract: Contract | None = None,
        occasion: Occasion = Occasion.EVERY_CALL,
    ) -> None:
        source = contract.source if contract is not None else ""
        condition = contract.condition if contract is not None else ""
        witness = Witness(
            effect, Path.RETURN, occasion, symbol, reason, source, frames, None, condition
        )
        self.witnesses.append(only_seen_in(witness, reader))

    # --- lines --------------------------------------------------------------------------------

    def _lines(self, address: int) -> Backtrace:
        found: Backtrace = self._table(address)
        name = max((start for start in self.starts if start <= address), default=0)
        inside = self.starts.get(name, "")
        return tuple(
            one if one.function else Frame(one.file, one.line, one.column, inside, one.inlined)
            for one in found
        )

    @cached_property
    def _table(self) -> Callable[[int], Backtrace]:
        from alloccheck.program.machine.linetable import line_table

        data = zlib.decompress(self.built.artifact.object_code)
        return line_table(data, self.built.artifact.image.sections)


def _is_arithmetic(contract: Contract) -> bool:
    return not contract.effects and not contract.calls_back and contract.path is Path.RETURN


def _reached(programs: list[Program]) -> dict[str, Program]:
    """Return every function that a program's entry may reach, also by its address."""
    found: dict[str, Program] = {}
    for program in programs:
        taken = [n for n in program.address_taken if not n.startswith(NEVER_CALLED_BACK)]
        work = [program.entry, *sorted(taken)]
        while work:
            name = work.pop()
            if name in found or name not in program.functions:
                continue
            found[name] = program
            for call in program.functions[name].calls:
                target = call.target
                if isinstance(target, Direct):
                    work.append(target.symbol)
                elif isinstance(target, Indirect):
                    work.extend(target.candidates or ())
    return found

"""From a program and contracts to what its entry may do: a fixpoint over the call graph.

Knows the program graph, contracts and status conventions; nothing of Numba, files or users.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from alloccheck.analysis.callbacks import (
    ASSUMED_OF_CONTAINERS,
    called_back,
    elements_without_pointers,
)
from alloccheck.analysis.contracts import Contract
from alloccheck.analysis.graphs import components
from alloccheck.analysis.ownership import Release, decided_decrefs
from alloccheck.analysis.paths import FunctionPaths, StatusConvention, analyse_component
from alloccheck.analysis.refcounts import RefcountNames, is_copy_of
from alloccheck.analysis.summary import (
    BOTTOM,
    Cause,
    Site,
    Summary,
    Trail,
    Witness,
    collect,
)
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import ProgramError
from alloccheck.program.model import (
    Address,
    Call,
    Direct,
    Function,
    Indirect,
    Program,
    SystemCall,
    Unread,
)
from alloccheck.program.ranges import EMPTY, FULL, Ranges
from alloccheck.source import Backtrace, Frame

ContractOf = Callable[[str], Contract | None]
"""From an external symbol to its contract."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Effects that a function is trusted not to have.

    Parameters
    ----------
    effects : frozenset of Effect or Guarantee
        A guarantee stands for what it forbids.
    reason : str
        Why that is trusted.
    """

    effects: frozenset[Effect] | Guarantee
    reason: str

    @property
    def dropped(self) -> frozenset[Effect]:
        """The effects themselves."""
        return self.effects.forbidden if isinstance(self.effects, Guarantee) else self.effects


@dataclass(frozen=True, slots=True)
class Solution:
    """What the entry of a program may do.

    Parameters
    ----------
    witnesses : tuple of Witness
        All effects on all paths, in a fixed order.
    unclassified : tuple of str
        External symbols that have no contract.
    assumptions_used : tuple of str
        Functions whose assumed absence of effects mattered.
    noted : tuple of str
        External symbols met that end the process, or that run only while it ends.
    may_raise : bool
        Whether the entry may end by raising.
    assumed_facts : tuple of str
        Sentences about code outside the program that the solution takes for granted.
    """

    witnesses: tuple[Witness, ...]
    unclassified: tuple[str, ...]
    assumptions_used: tuple[str, ...]
    noted: tuple[str, ...]
    may_raise: bool
    assumed_facts: tuple[str, ...] = ()


def solve(
    program: Program,
    contracts: ContractOf,
    *,
    convention: StatusConvention | None = None,
    refcounts: RefcountNames | None = None,
    assumptions: Mapping[str, Assumed] | None = None,
    address_names: Callable[[int], str | None] | None = None,
    limit: int = 64,
) -> Solution:
    """Return everything that the entry of a program may do, with witnesses.

    Components of the call graph are solved from the leaves up, each to its least fixpoint.
    How a callee's effect shows in its caller depends on how both end: what a callee does while
    it raises is raise-only for the caller too only if the caller, once it was told of the
    error, can do nothing but raise.

    Parameters
    ----------
    program : Program
        What was read, with its entry.
    contracts : callable
        The contract of an external symbol, or None when there is none. A system call is asked
        for as ``"syscall:<number>"``.
    convention : StatusConvention, optional
        What the integers that functions return mean.
    refcounts : RefcountNames, optional
        The functions that count references.
    assumptions : mapping of str to Assumed, optional
        Trust in functions, by symbol.
    address_names : callable, optional
        The symbol that stands at a constant address.
    limit : int
        How many different call paths to show for each cause.

    Returns
    -------
    Solution
        With a witness for each cause, path and visible call path.

    Raises
    ------
    ProgramError
        When the program has no body for its entry.

    Examples
    --------
    >>> from alloccheck.program.llvm import read_module
    >>> program = read_module('''define void @f() {
    ...   call void @g()
    ...   ret void
    ... }
    ... declare void @g()
    ... ''', "f")
    >>> [(w.effect.value, w.symbol) for w in solve(program, lambda symbol: None).witnesses]
    [('unknown', 'g')]
    """
    if program.entry not in program.functions:
        raise ProgramError(f"expected a body of the entry {program.entry!r}, found none")
    return _Solver(
        program,
        contracts,
        convention or StatusConvention(),
        refcounts or RefcountNames(),
        assumptions or {},
        address_names or (lambda address: None),
        limit,
    ).solve()


@dataclass(frozen=True, slots=True)
class _Reach:
    """What one call reaches, pointers and contracts looked up."""

    functions: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    """Functions of the program that an external may call back."""
    causes: tuple[Cause, ...] = ()
    statuses: Ranges | None = None
    """What externals return; None when none is called."""
    unclassified: tuple[str, ...] = ()
    deadly: bool = False
    """Whether it ends the process."""
    noted: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """Assumptions without which there would be more causes here."""
    facts: tuple[str, ...] = ()
    """What is taken for granted about what it calls back."""
    raised: frozenset[Cause] = frozenset()
    """Causes that happen only when what is called unwinds, through this call and its callers."""


@dataclass(frozen=True)
class _Solver:
    program: Program
    contracts: ContractOf
    convention: StatusConvention
    refcounts: RefcountNames
    assumptions: Mapping[str, Assumed]
    address_names: Callable[[int], str | None]
    limit: int

    def solve(self) -> Solution:
        reach = self._reach_of_all()
        order = self._components(reach)
        paths = self._paths(order, reach)
        running = {
            name: tuple(c for c in result.function.calls if result.runs(c))
            for name, result in paths.items()
        }
        decided = decided_decrefs(
            self.program,
            running,
            callees=lambda site: reach[site].functions,
            leaves=lambda site: reach[site].statuses is not None or bool(reach[site].callbacks),
            paths=paths,
            names=self.refcounts,
        )
        silent = {site for site, releases in decided.items() if not releases}
        used: set[str] = set()
        frames: dict[Site, Backtrace] = {}

        def visible(trail: Trail) -> object:
            return tuple(self._frames(site, frames) for site in trail), self._size(trail)

        summaries: dict[str, Summary] = {}
        for component in order:
            for name in component:
                summaries[name] = BOTTOM
            while True:
                grown = False
                for name in component:
                    parts = [
                        self._release(call, paths[name], releases, reach, summaries)
                        if (releases := decided.get(Site(name, call.index)))
                        else self._contribution(
                            call, paths[name], reach[Site(name, call.index)], summaries, used
                        )
                        for call in running[name]
                        if Site(name, call.index) not in silent
                    ]
                    if not any(part.entries for part in parts):
                        continue
                    new = collect(
                        (
                            (key, trail)
                            for part in parts
                            for key, trails in part.entries.items()
                            for trail in trails
                        ),
                        self.limit,
                        visible,
                    )
                    grown = grown or not summaries[name].covers(new)
                    summaries[name] = summaries[name].join(new, self.limit, visible)
                if not grown:
                    break
        met = [
            reach[Site(name, call.index)]
            for name, calls in running.items()
            for call in calls
            if Site(name, call.index) not in silent
        ]
        doomed = {
            cause.symbol
            for name, calls in running.items()
            for call in calls
            if call.block in paths[name].doomed
            for cause in reach[Site(name, call.index)].causes
            if cause.effect not in _NEVER_DROPPED
        }
        used.update(name for r in met for name in r.assumed)
        entry = self.program.entry
        witnesses = self._witnesses(summaries[entry], frames)
        if paths[entry].raises:
            witnesses.extend(self._raising(paths, running, reach, frames))
        return Solution(
            witnesses=tuple(sorted(dict.fromkeys(witnesses), key=_witness_order)),
            unclassified=tuple(sorted({s for r in met for s in r.unclassified})),
            assumptions_used=tuple(sorted(used)),
            noted=tuple(sorted({s for r in met for s in r.noted} | doomed)),
            may_raise=paths[entry].raises,
            assumed_facts=tuple(sorted({fact for r in met for fact in r.facts})),
        )

    # --- what calls reach ---------------------------------------------------------------------

    def _reach_of_all(self) -> dict[Site, _Reach]:
        """Return what each call reaches, of the functions that the entry may reach."""
        found: dict[Site, _Reach] = {}
        seen: set[str] = set()
        todo = [self.program.entry]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for call in self.program.functions[name].calls:
                site = Site(name, call.index)
                reach = found[site] = self._reach(site, call)
                todo.extend(reach.functions)
                todo.extend(reach.callbacks)
        return found

    def _reach(self, site: Site, call: Call) -> _Reach:
        match call.target:
            case Direct(symbol):
                if symbol in self.program.functions:
                    return _Reach(functions=(symbol,))
                return self._external(symbol, symbol, site)
            case Address(address, name):
                return self._external(self.address_names(address), name, site)
            case Indirect(None, description):
                reason = "the target of this call is not known before it runs"
                return _undecided(Effect.DISPATCH, description, reason)
            case Indirect(candidates, _):
                assert candidates is not None
                inside = tuple(c for c in candidates if c in self.program.functions)
                outside = [self._external(c, c, site) for c in candidates if c not in inside]
                return _merge([_Reach(functions=inside), *outside])
            case SystemCall(None):
                return _undecided(Effect.UNKNOWN, "syscall", "which system call is not known")
            case SystemCall(number):
                return self._external(f"syscall:{number}", f"syscall:{number}", site)
            case Unread(description):
                return _undecided(Effect.UNKNOWN, description, "this could not be read")

    def _external(self, symbol: str | None, shown: str, site: Site) -> _Reach:
        """Return what an external does: what its contract says, else it is unknown."""
        if symbol is None:
            reason = "no symbol is known at this constant address"
            return _undecided(Effect.UNKNOWN, shown, reason)
        contract = self.contracts(symbol)
        if contract is None:
            reason = "no contract says what this symbol does"
            cause = Cause(Effect.UNKNOWN, symbol, Occasion.EVERY_CALL, reason, "")
            return self._assume(symbol, _Reach((), (), (cause,), FULL, (symbol,)))
        if contract.path is Path.DIVERGE:
            return _Reach(statuses=EMPTY, deadly=True, noted=(symbol,))
        by_path: dict[Path, list[Cause]] = {}
        for e in contract.effects:
            cause = Cause(
                e.effect,
                symbol,
                e.occasion,
                contract.reason,
                contract.source,
                contract.condition,
            )
            by_path.setdefault(e.path, []).append(cause)
        causes = tuple(dict.fromkeys(cause for found in by_path.values() for cause in found))
        raised = frozenset(by_path.get(Path.RAISE, ())) - frozenset(by_path.get(Path.RETURN, ()))
        statuses = FULL if contract.statuses is None else Ranges.of(*contract.statuses)
        if contract.drops and not elements_without_pointers(
            self.program.functions[site.function],
            self.program.functions[site.function].calls[site.call],
            contract,
            self.contracts,
        ):
            causes += _dropped_elements(symbol, contract)
        back = called_back(self.program, contract)
        facts = (ASSUMED_OF_CONTAINERS,) if contract.callback == "method table" else ()
        return self._assume(symbol, _Reach((), back, causes, statuses, facts=facts, raised=raised))

    def _assume(self, symbol: str, reach: _Reach) -> _Reach:
        trust = self.assumptions.get(symbol)
        if trust is None:
            return reach
        kept = tuple(c for c in reach.causes if c.effect not in trust.dropped)
        return _Reach(
            callbacks=reach.callbacks,
            causes=kept,
            statuses=reach.statuses,
            unclassified=() if Effect.UNKNOWN in trust.dropped else reach.unclassified,
            assumed=(symbol,) if len(kept) < len(reach.causes) else (),
            facts=reach.facts,
            raised=reach.raised,
        )

    def _components(self, reach: Mapping[Site, _Reach]) -> list[list[str]]:
        """Return the components of the call graph, callees first."""
        names = list(dict.fromkeys([self.program.entry, *(site.function for site in reach)]))
        for r in reach.values():
            names.extend((*r.functions, *r.callbacks))
        names = list(dict.fromkeys(names))
        number = {name: i for i, name in enumerate(names)}
        edges: list[dict[int, None]] = [{} for _ in names]
        for site, r in reach.items():
            for callee in (*r.functions, *r.callbacks):
                edges[number[site.function]][number[callee]] = None
        return [[names[i] for i in c] for c in components([list(e) for e in edges])]

    # --- paths --------------------------------------------------------------------------------

    def _paths(
        self, order: list[list[str]], reach: Mapping[Site, _Reach]
    ) -> dict[str, FunctionPaths]:
        functions = self.program.functions
        governed = {n: self.convention.governs(functions[n]) for c in order for n in c}

        def reached(function: Function, call: Call) -> _Reach:
            return reach[Site(function.name, call.index)]

        solved: dict[str, FunctionPaths] = {}
        for component in order:
            solved |= analyse_component(
                [functions[name] for name in component],
                self.convention,
                external=lambda f, c: reached(f, c).statuses,
                callees=lambda f, c: reached(f, c).functions,
                callbacks=lambda f, c: reached(f, c).callbacks,
                solved=solved,
                governed=lambda name: governed[name],
                deadly=lambda f, c: reached(f, c).deadly,
            )
        return solved

    # --- summaries ----------------------------------------------------------------------------

    def _contribution(
        self,
        call: Call,
        caller: FunctionPaths,
        reach: _Reach,
        summaries: Mapping[str, Summary],
        used: set[str],
    ) -> Summary:
        """Return what a caller may do by one call."""
        here = caller.by_block[call.block]
        site = Site(caller.function.name, call.index)
        total = BOTTOM
        if call.block in caller.doomed:
            # What happens while the process dies is no finding, unless nobody knows what it is.
            return self._undecided_only(site, reach, summaries)
        if reach.causes:
            # Jitted code has no landing pads: what unwinds through it never comes back.
            unwinds = Path.RAISE if here is Path.RETURN else here
            total = Summary(
                {
                    (unwinds if cause in reach.raised else here, cause): ((site,),)
                    for cause in reach.causes
                }
            )
        for name in (*reach.functions, *reach.callbacks):
            summary = summaries[name]
            if not summary.entries:
                continue
            trust = self.assumptions.get(name)
            dropped = trust.dropped if trust else frozenset()
            if any(cause.effect in dropped for _, cause in summary.entries):
                used.add(name)
            told = name in reach.functions and self.convention.governs(self.program.functions[name])
            on_error = here
            if told and any(path is Path.RAISE for path, _ in summary.entries):
                on_error = caller.after_error(call)
            paths = {Path.RETURN: here, Path.RAISE: on_error, Path.DIVERGE: Path.DIVERGE}
            total = total.join(summary.through(site, paths, dropped), self.limit * 4)
        return total

    def _release(
        self,
        call: Call,
        caller: FunctionPaths,
        releases: tuple[Release, ...],
        reach: Mapping[Site, _Reach],
        summaries: Mapping[str, Summary],
    ) -> Summary:
        """Return what a decrement does that can only free objects of this call.

        The memory is given back where it was obtained, as far as a reader is concerned: the
        decrement itself has no line.
        """
        name = caller.function.name
        here = caller.by_block[call.block]
        ends = dict.fromkeys(Path, here)
        reached = reach[Site(name, call.index)]
        causes = list(reached.causes)
        for decref in reached.functions:
            for inner in self.program.functions[decref].calls:
                causes.extend(reach[Site(decref, inner.index)].causes)
        # What is said of destructors does not hold for memory that has none of its own.
        frees = {replace(c, condition="") for c in causes if c.effect is Effect.FREE}
        total = BOTTOM
        for release in releases:
            where = Site(name, release.obtained)
            freed = Summary({(here, cause): ((where,),) for cause in sorted(frees)})
            total = total.join(freed, self.limit * 4)
            if release.destructor:
                run = summaries.get(release.destructor, BOTTOM).through(where, ends, ())
                total = total.join(run, self.limit * 4)
        return total

    def _undecided_only(
        self, site: Site, reach: _Reach, summaries: Mapping[str, Summary]
    ) -> Summary:
        causes = {cause for cause in reach.causes if cause.effect in _NEVER_DROPPED}
        total = Summary({(Path.DIVERGE, cause): ((site,),) for cause in sorted(causes)})
        ends = dict.fromkeys(Path, Path.DIVERGE)
        for name in (*reach.functions, *reach.callbacks):
            known = frozenset(Effect) - _NEVER_DROPPED
            total = total.join(summaries[name].through(site, ends, known))
        return total

    # --- witnesses ----------------------------------------------------------------------------

    def _frames(self, site: Site, known: dict[Site, Backtrace]) -> Backtrace:
        frames = known.get(site)
        if frames is None:
            function = self.program.functions[site.function]
            if function.location is None and is_copy_of(function.name, self.refcounts.decref):
                known[site] = ()  # Numba's own helper: it has no source
                return ()
            frames = ()
            call = function.calls[site.call]
            keys = [call.location]
            if call.location is None and call.operand is not None:
                # What made the pointer is closer than the function's first line.
                keys.append(function.read_pointers().locations.get(call.operand))
            for key in (*keys, function.location):
                if key is not None and not frames:
                    frames = self.program.locate(key)
            frames = known[site] = frames or (Frame("", 0, None, function.name),)
        return frames

    def _size(self, trail: Trail) -> int | None:
        inner = trail[0]
        return self.program.functions[inner.function].calls[inner.call].size

    def _witnesses(self, summary: Summary, frames: dict[Site, Backtrace]) -> list[Witness]:
        return [
            Witness(
                effect=cause.effect,
                path=path,
                occasion=cause.occasion,
                symbol=cause.symbol,
                reason=cause.reason,
                source=cause.source,
                backtrace=tuple(f for site in trail for f in self._frames(site, frames))
                or (Frame("", 0, None, trail[0].function),),
                size=self._size(trail),
                condition=cause.condition,
            )
            for (path, cause), trails in summary.entries.items()
            for trail in trails
        ]

    def _raising(
        self,
        paths: Mapping[str, FunctionPaths],
        running: Mapping[str, tuple[Call, ...]],
        reach: Mapping[Site, _Reach],
        frames: dict[Site, Backtrace],
    ) -> list[Witness]:
        """Return a witness for each place where an error of the entry can arise.

        Goes from the entry down through the calls whose errors are not caught, to the stores
        that hand an error to a caller. Each place is shown by the shortest way to it.
        """
        entry = self.program.entry
        found: dict[Backtrace, Witness] = {}
        todo: deque[tuple[str, Trail]] = deque([(entry, ())])
        seen = {entry}
        while todo:
            name, trail = todo.popleft()
            here = paths[name]
            outer = tuple(f for site in trail for f in self._frames(site, frames))
            for output in here.function.outputs:
                if not self.convention.reports(output) or output.block not in here.by_block:
                    continue
                if here.by_block[output.block] is Path.RETURN:
                    continue  # caught: the function may still end normally
                inner: Backtrace = ()
                for key in (output.location, here.function.location):
                    if key is not None and not inner:
                        inner = self.program.locate(key)
                if inner + outer:
                    found.setdefault(inner + outer, _raise(here.function.name, inner + outer))
            for call in running[name]:
                site = Site(name, call.index)
                for callee in reach[site].functions:
                    if callee in seen or not paths[callee].raises:
                        continue
                    if not self.convention.governs(self.program.functions[callee]):
                        continue
                    if here.after_error(call) is not Path.RETURN:
                        seen.add(callee)
                        todo.append((callee, (site, *trail)))
        if found:
            return list(found.values())
        function = paths[entry].function
        own = () if function.location is None else self.program.locate(function.location)
        return [_raise(entry, own or (Frame("", 0, None, entry),))]


def _raise(symbol: str, backtrace: Backtrace) -> Witness:
    return Witness(
        effect=Effect.RAISE,
        path=Path.RAISE,
        occasion=Occasion.EVERY_CALL,
        symbol=symbol,
        reason="it can end with a status that says that an exception is under way",
        source="",
        backtrace=backtrace,
    )


def _undecided(effect: Effect, shown: str, reason: str) -> _Reach:
    return _Reach(causes=(Cause(effect, shown, Occasion.EVERY_CALL, reason, ""),), statuses=FULL)


def _merge(parts: list[_Reach]) -> _Reach:
    statuses: Ranges | None = None
    for part in parts:
        if part.statuses is not None:
            statuses = part.statuses if statuses is None else statuses | part.statuses
    # Candidates that are functions of the program come first and are never deadly.
    return _Reach(
        functions=tuple(dict.fromkeys(x for p in parts for x in p.functions)),
        callbacks=tuple(dict.fromkeys(x for p in parts for x in p.callbacks)),
        causes=tuple(dict.fromkeys(x for p in parts for x in p.causes)),
        statuses=statuses,
        unclassified=tuple(dict.fromkeys(x for p in parts for x in p.unclassified)),
        deadly=bool(parts) and all(p.deadly for p in parts),
        noted=tuple(dict.fromkeys(x for p in parts for x in p.noted)),
        assumed=tuple(dict.fromkeys(x for p in parts for x in p.assumed)),
        facts=tuple(dict.fromkeys(x for p in parts for x in p.facts)),
        raised=frozenset(
            cause
            for p in parts
            for cause in p.raised
            if all(cause in other.raised or cause not in other.causes for other in parts)
        ),
    )


def _dropped_elements(symbol: str, contract: Contract) -> tuple[Cause, ...]:
    return tuple(
        Cause(
            effect,
            symbol,
            Occasion.EVERY_CALL,
            "drops a reference to an element of the container",
            contract.source,
            "the element held the last reference to an object",
        )
        for effect in (Effect.FREE, Effect.BLOCK, Effect.PYTHON)
    )


_NEVER_DROPPED = frozenset({Effect.UNKNOWN, Effect.DISPATCH})
_PATH_ORDER = {Path.RETURN: 0, Path.DIVERGE: 1, Path.RAISE: 2}
_EFFECT_ORDER = {effect: i for i, effect in enumerate(Effect)}


def _witness_order(witness: Witness) -> tuple[object, ...]:
    return (
        _PATH_ORDER[witness.path],
        _EFFECT_ORDER[witness.effect],
        witness.symbol,
        witness.occasion,
        len(witness.backtrace),
        tuple((f.file, f.line, f.column or 0, f.function, f.inlined) for f in witness.backtrace),
        witness.size or 0,
        witness.reason,
        witness.condition,
    )

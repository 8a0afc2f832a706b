"""Recursion solved to a fixpoint: one set of return types, whatever function is entered first.

Numba types a recursive call with whatever it knows of the callee so far and never looks back. Here
every recursive call uses an *assumed* return type; a compile is accepted only when each assumption
that was used equals the type that was inferred in the end. Otherwise the assumption is joined with
the inferred type and the compile starts over, in a world of its own. Starting from bottom, the
chain of joins is Kleene's iteration to the least fixpoint (Cousot & Cousot, POPL 1977); the
lattice is Numba's type unification, which is finite for a given program or else stopped by a limit.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.errors import AllocCheckException, CompileError

# isort: split
from numba.core import types, typing
from numba.core.errors import TypingError
from numba.core.typing.context import CallStack, _ResolveCache

ROUND_LIMIT = 16
"""Rounds after which the return types are taken not to converge."""

NESTING_LIMIT = 24
"""Nested specialisations of one function after which its argument types are taken to grow."""

Key = tuple[Any, tuple[Any, ...]]
"""A Python function and its argument types."""

T = TypeVar("T")


class RecursionFault(CompileError):
    """Recursion for which no return types could be inferred; the message draws the cycle."""


class NothingKnown(TypingError):  # type: ignore[misc]
    """A recursive call of whose return type nothing is known in this round."""


class RoundLost(BaseException):
    """A round that cannot be accepted any more; what was learnt from it is recorded.

    Not an `Exception`: Numba's inference would take that for an error of the user's program.
    """


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round used and found.

    Parameters
    ----------
    used : mapping
        For each recursive callee, the return types that its callers were given.
    inferred : mapping
        For each function, the return type inferred in the end.
    partial : mapping
        Return types known of functions that were waiting when a callee had none.
    bottoms : tuple of Key
        Recursive callees of which nothing was known.
    edges : tuple of (Key, Key)
        Calls that make up the cycles met, caller and callee.
    conflicts : mapping
        Numba's complaint about functions whose types it could not unify.
    """

    used: dict[Key, frozenset[Any]]
    inferred: dict[Key, Any]
    partial: dict[Key, Any]
    bottoms: tuple[Key, ...]
    edges: tuple[tuple[Key, Key], ...]
    conflicts: dict[Key, str]

    @property
    def settled(self) -> bool:
        """Whether every assumption that was used equals what was inferred, and none was missing."""
        return not self.bottoms and all(
            used == {self.inferred.get(key)} for key, used in self.used.items()
        )


class RoundRecursion:
    """The recursion of one round: answers with assumptions, and records what was used.

    Parameters
    ----------
    assumed : mapping
        Assumed return types from earlier rounds.
    expected : bool
        Whether recursion may be met; without, the round is lost when it is.
    """

    def __init__(self, assumed: dict[Key, Any], *, expected: bool = True) -> None:
        self._assumed = dict(assumed)
        self._expected = expected
        self._used: dict[Key, set[Any]] = {}
        self._inferred: dict[Key, Any] = {}
        self._partial: dict[Key, Any] = {}
        self._bottoms: list[Key] = []
        self._edges: list[tuple[Key, Key]] = []
        self._conflicts: dict[Key, str] = {}
        self._stack: WorldCallStack | None = None
        self.looking: list[Key] = []
        """Functions whose partial types are being found, the outermost first."""
        self._harvesting = False
        self.met = False
        """Whether a function that is still being inferred was called."""

    def call_stack(self) -> WorldCallStack:
        """Return the compile-time call stack that consults this round."""
        self._stack = WorldCallStack(self)
        return self._stack

    def outcome(self) -> Outcome:
        """Return what was used and found so far."""
        return Outcome(
            {key: frozenset(found) for key, found in self._used.items()},
            dict(self._inferred),
            dict(self._partial),
            tuple(dict.fromkeys(self._bottoms)),
            tuple(dict.fromkeys(self._edges)),
            dict(self._conflicts),
        )

    def assumed_signature(self, call: Any, args: Any, kws: Any) -> Any:
        """Return the signature assumed of a recursive call, or None."""
        self._meet()
        dispatcher = call.dispatcher_type.dispatcher
        pysig, folded = dispatcher.fold_argument_types(args, kws)
        key = (dispatcher.py_func, tuple(folded))
        found = self._assumed.get(key)
        if found is None:
            return None
        self._use(key, found)
        return typing.signature(found, *folded).replace(pysig=pysig)

    def return_type(self, key: Key, partial: Callable[[], Any]) -> Any:
        """Return the type that a recursive call of `key` has in this round, or None."""
        self._meet()
        found = self._assumed.get(key)
        if found is None and key in self.looking:
            # Asked while this very type is being found: nothing is known but what is assumed. The
            # next round knows what those who wait here can return without it.
            self._harvest()
            return None
        if found is None:
            found = self._partial_of(key, partial)
        if found is None or not found.is_precise():
            self._bottoms.append(key)
            self._draw_cycle(key)
            self._harvest()
            return None
        self._use(key, found)
        return found

    def _partial_of(self, key: Key, partial: Callable[[], Any]) -> Any:
        self.looking.append(key)
        try:
            return partial()
        finally:
            self.looking.pop()

    def inferred(self, key: Key, found: Any) -> None:
        """Record the return type that inference of `key` ended with.

        Raises
        ------
        RoundLost
            When the outermost function is typed, so that nothing more can be learnt, and an
            assumption is refuted: code generation would be in vain.
        """
        self._inferred[key] = types.unliteral(found)
        outermost = self._stack is not None and len(self._stack) == 1
        if outermost and not self.outcome().settled:
            raise RoundLost

    def _meet(self) -> None:
        self.met = True
        if not self._expected:
            raise RoundLost

    def _use(self, key: Key, found: Any) -> None:
        self._used.setdefault(key, set()).add(found)
        self._draw_cycle(key)

    def conflict(self, key: Key, complaint: str) -> None:
        """Record that types in `key` could not be unified."""
        self._conflicts[key] = complaint

    def _draw_cycle(self, key: Key) -> None:
        """Record the calls from `key` to the innermost frame, and from there back to it."""
        if self._stack is None or not len(self._stack):
            return
        chain = [key]
        for frame in self._stack:
            chain.append(frame.key)
            if frame.key == key:
                break
        if chain[-1] == key:
            self._edges.extend((caller, callee) for callee, caller in itertools.pairwise(chain))

    def _harvest(self) -> None:
        assert self._stack is not None
        if self._harvesting:
            return
        self._harvesting = True
        try:
            for frame in self._stack:
                found = self._partial_of(frame.key, frame.typeinfer.numba_partial)
                if found is not None and found.is_precise():
                    self._partial[frame.key] = types.unliteral(found)
        finally:
            self._harvesting = False


class _PartialTypes:
    """Stands for a frame's type inferer where a recursive call asks for its return type."""

    def __init__(self, inferer: Any, key: Key, recursion: RoundRecursion) -> None:
        self._inferer = inferer
        self._key = key
        self._recursion = recursion

    def numba_partial(self) -> Any:
        return self._inferer.return_types_from_partial()

    def return_types_from_partial(self) -> Any:
        return self._recursion.return_type(self._key, self.numba_partial)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inferer, name)


class WorldCallStack(CallStack):  # type: ignore[misc]
    """Numba's compile-time call stack, whose frames answer from a `RoundRecursion`."""

    def __init__(self, recursion: RoundRecursion) -> None:
        super().__init__()
        self._recursion = recursion

    def lookup_resolve_cache(self, func: Any, args: Any, kws: Any) -> Any:
        # What fails while a partial type is being found says nothing about the call itself.
        if self._recursion.looking:
            return _ResolveCache()
        return super().lookup_resolve_cache(func, args, kws)

    @contextlib.contextmanager
    def register(self, target: Any, typeinfer: Any, func_id: Any, args: Any) -> Iterator[None]:
        nested = [frame.key for frame in self.finditer(func_id.func)]
        if len(nested) >= NESTING_LIMIT:
            raise RecursionFault(
                f"recursion with growing types: {name_of(nested[0])} calls itself with ever new "
                f"argument types, so no finite set of specialisations exists. Chain: "
                f"{draw([*reversed(nested[:3])])} -> ... Give the recursive call arguments of the "
                "types that it was called with."
            )
        # Numba names a function after its module's name, but a recursive call after the module
        # found by it, which differs when the module is not in `sys.modules`.
        func_id.modname = func_id.func.__module__ or func_id.modname
        with super().register(target, typeinfer, func_id, args):
            frame = self._stack[-1]
            frame.key = (func_id.func, tuple(args))
            frame.typeinfer = _PartialTypes(typeinfer, frame.key, self._recursion)
            unify = typeinfer.unify

            def recording_unify(raise_errors: bool = True) -> Any:
                result = unify(raise_errors=raise_errors)
                if raise_errors and result[1] is not None:
                    self._recursion.inferred(frame.key, result[1])
                return result

            typeinfer.unify = recording_unify
            try:
                yield
            except TypingError as error:
                complaint = _first_line(error)
                if "unify" in complaint:
                    self._recursion.conflict(frame.key, complaint)
                raise


def _first_line(error: Exception) -> str:
    # Without the colours that Numba puts into its messages.
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()[0]


def name_of(key: Key) -> str:
    """Return a function and its argument types as people write them."""
    return f"{key[0].__qualname__}({', '.join(map(str, key[1]))})"


def draw(cycle: list[Key]) -> str:
    """Return a chain of calls on one line."""
    return " -> ".join(name_of(key) for key in cycle)


def _cycle_through(edges: tuple[tuple[Key, Key], ...], members: set[Key]) -> str:
    """Draw the recursive calls, or the members where no call was recorded."""
    lines = [f"{name_of(a)} -> {name_of(b)}" for a, b in edges]
    if not lines:
        lines = sorted(name_of(key) for key in members)
    return "; ".join(sorted(set(lines)))


def compile_to_fixpoint(
    build: Callable[[RoundRecursion], T],
    unify: Callable[[Any, Any], Any],
    *,
    limit: int = ROUND_LIMIT,
) -> tuple[T, int]:
    """Repeat a hermetic build until every assumed return type equals the inferred one.

    Parameters
    ----------
    build : callable
        Compiles once, in a fresh world, asking the given round for recursive return types.
    unify : callable
        Joins two Numba types; None when they have no join.
    limit : int
        Rounds after which to give up.

    Returns
    -------
    result : object
        What `build` returned in the accepted round.
    rounds : int
        Number of rounds, 1 for a program without recursion that changes a type.

    Raises
    ------
    RecursionFault
        No base case, types without a join, no convergence, or an assumption refuted.
    """
    assumed: dict[Key, Any] = {}
    outcome = Outcome({}, {}, {}, (), (), {})
    for rounds in range(1, limit + 1):
        recursion = RoundRecursion(assumed)
        fault: Exception | None = None
        result: T | None = None
        try:
            result = build(recursion)
        except RecursionFault:
            raise
        except RoundLost:
            pass
        except Exception as error:  # a wrong assumption can fail anywhere in Numba
            fault = error
        outcome = recursion.outcome()
        if result is not None and outcome.settled:
            return result, rounds
        if isinstance(fault, AllocCheckException) and outcome.settled:
            raise fault
        grown = _join(assumed, outcome, unify)
        if not grown:
            raise _explain(outcome, assumed, fault)
    members = set(assumed)
    raise RecursionFault(
        f"the return types of a recursive cycle do not converge after {limit} rounds: "
        + "; ".join(f"{name_of(k)} returned {v}" for k, v in assumed.items())
        + f". Cycle: {_cycle_through(outcome.edges, members)}"
    )


def _join(assumed: dict[Key, Any], outcome: Outcome, unify: Callable[[Any, Any], Any]) -> bool:
    """Join what a round found into the assumptions; tell whether one of them grew."""
    found = dict(outcome.partial)
    found.update({k: outcome.inferred[k] for k in outcome.used if k in outcome.inferred})
    grown = False
    for key, new in found.items():
        old = assumed.get(key)
        joined = new if old is None else unify(old, new)
        if joined is None:
            raise RecursionFault(
                f"the return types of the recursive function {name_of(key)} cannot be unified: "
                f"{old} from one round, {new} from the next. Cycle: "
                f"{_cycle_through(outcome.edges, set(found))}. Return one type on every path."
            )
        joined = types.unliteral(joined)
        if joined != old:
            assumed[key] = joined
            grown = True
    return grown


def _explain(outcome: Outcome, assumed: dict[Key, Any], fault: Exception | None) -> Exception:
    """Say why a round that taught nothing new was not accepted."""
    members = set(outcome.used) | set(outcome.bottoms) | set(outcome.partial)
    cycle = _cycle_through(outcome.edges, members)
    if outcome.bottoms:
        return RecursionFault(
            "recursion without a base case (Numba: cannot type infer runaway recursion): no return "
            f"type can be inferred for "
            f"{name_of(outcome.bottoms[0])}, because every path through it calls a function that "
            f"waits for it. Cycle: {cycle}. Add a path that returns without the recursive call."
        )
    refuted = [
        (key, used, outcome.inferred[key])
        for key, used in outcome.used.items()
        if key in outcome.inferred and used != {outcome.inferred[key]}
    ]
    if refuted:
        key, used, inferred = refuted[0]
        return RecursionFault(
            f"inference is not monotone: with {name_of(key)} assumed to return "
            f"{', '.join(sorted(map(str, used)))}, it returns {inferred}. Cycle: {cycle}. Make "
            "the returned types explicit, for example by a conversion on each return."
        )
    in_cycle = {key for edge in outcome.edges for key in edge}
    for key, complaint in outcome.conflicts.items():
        if key in in_cycle:
            return RecursionFault(
                f"types of the recursive function {name_of(key)} cannot be unified: {complaint}. "
                f"Cycle: {cycle}. Return one type on every path."
            )
    if fault is not None:
        return fault
    return RecursionFault(f"recursion could not be resolved. Cycle: {cycle}")

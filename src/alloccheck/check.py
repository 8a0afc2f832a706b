"""The one road from a question to a verdict: job, artifact, program, summaries, report.

Each step is a call of another floor. Nothing here knows terminals or decorators.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NoReturn, TypeVar

from alloccheck.analysis.contracts import Contract, contract_lookup
from alloccheck.analysis.paths import StatusConvention
from alloccheck.analysis.refcounts import RefcountNames
from alloccheck.analysis.solve import Assumed, Solution, solve
from alloccheck.analysis.summary import Witness
from alloccheck.assumptions import AssumptionMark
from alloccheck.certificate import Captured, Certificate, External, Source
from alloccheck.compile.annotations import heap_types_by_line
from alloccheck.compile.artifact import Built, build, is_of_numba
from alloccheck.compile.collector import slow_collector
from alloccheck.compile.disjoint import condition
from alloccheck.compile.job import CompileJob
from alloccheck.compile.loaded import Artifact
from alloccheck.compile.prepare import prepare
from alloccheck.compile.recursion import RecursionFault
from alloccheck.compile.target import make_job, python_function, types_of_call
from alloccheck.crosscheck import Comparison, compare
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import AllocCheckException, CompileError, UsageError
from alloccheck.findings import Assumption, Report, TypeHint, findings_from
from alloccheck.native_evidence import NativeEvidence
from alloccheck.policy import Policy
from alloccheck.program.llvm import read_module
from alloccheck.program.model import Direct, Indirect, Program
from alloccheck.source import Backtrace, Frame
from alloccheck.storage import Storage, storage_at

# isort: split
from numba.core.errors import ForceLiteralArg, NumbaError, TypingError, UnsupportedBytecodeError

_Ours = TypeVar("_Ours", bound=CompileError)

NUMBA_ERRORS = (
    NumbaError,
    UnsupportedBytecodeError,
    NotImplementedError,
    ImportError,
    RecursionError,
    UnicodeError,
)
"""What Numba raises for code that it does not compile; the last for names with lone surrogates.

It lets through others, see `is_of_numba`.
"""


@dataclass(frozen=True)
class Verdict:
    """A report and the artifact that it speaks of."""

    report: Report
    artifact: Artifact
    built: Built
    """What the store needs besides; not to be kept."""


@slow_collector()
def prove(job: CompileJob, policy: Policy) -> Verdict:
    """Build a job's artifact and check it.

    Parameters
    ----------
    job : CompileJob
        The question.
    policy : Policy
        What is asked of it.

    Returns
    -------
    Verdict
        Whether or not the guarantee holds.
    """
    return judge(job, build(job), policy)


def judge(job: CompileJob, built: Built, policy: Policy) -> Verdict:
    """Check what was built of a job; one build serves any number of policies.

    Parameters
    ----------
    job : CompileJob
        The question.
    built : Built
        What `build` made of it.
    policy : Policy
        What is asked of it.
    """
    started = time.perf_counter()
    entries = (*_entry_symbols(built, policy), *_later_entries(built.artifact))
    programs = [read_module(built.listing, one) for one in entries]
    read = time.perf_counter()
    contracts = NativeEvidence(contract_lookup(policy.contracts), built.artifact.externals)
    solutions = [_solve(one, contracts, built) for one in programs]
    solved = time.perf_counter()
    walked = contracts.seconds
    undeclared = _undeclared(built)
    comparison = compare(built, programs, contracts, frozenset(undeclared))
    compared = time.perf_counter()
    known = contracts.seconds
    report = _report(job, policy, built, programs, contracts, solutions, undeclared, comparison)
    report.timings.update(
        built.timings,
        read=read - started,
        solve=solved - read - walked,
        # The artifact's own machine code, and that of externals wherever it was asked for.
        walk=walked + (compared - solved) + (contracts.seconds - known),
        report=time.perf_counter() - compared - (contracts.seconds - known),
    )
    return Verdict(report, built.artifact, built)


def analyze(
    target: Callable[..., Any],
    signature: Any = None,
    *,
    guarantee: str | Guarantee = Guarantee.NONALLOCATING,
    ignore_throw: bool = True,
    first_call: str = "prepare",
    entry: str = "python",
    contracts: Iterable[Contract] = (),
    disjoint: bool | Iterable[str] = False,
    confirm: Any = None,
    store: str | FilePath | None = None,
    **jit_options: Any,
) -> Report:
    """Check a function for a signature, without running or changing it.

    Parameters
    ----------
    target : Callable
        A Python function, an ``njit`` dispatcher or a ``cfunc``.
    signature : str, tuple of numba types, or numba signature
        For example ``"float64(float64[::1], float64)"``; the return type may be left out.
    guarantee : {"nonallocating", "nonblocking"}
        Which effects are forbidden.
    ignore_throw : bool
        Leave out what happens only when the call as a whole ends by raising.
    first_call : {"prepare", "forbid", "allow"}
        How process-wide lazy set-up is treated.
    entry : {"python", "c"}
        Check the native function, or its C entry.
    contracts : iterable of Contract
        Your own contracts for external symbols.
    disjoint : bool or iterable of str
        Arrays that never overlap, see :func:`alloccheck.check_allocs`.
    confirm : True, tuple, list of tuples, or Hypothesis strategy, optional
        Also run the machine code in a helper process and mark each finding as confirmed or not: on
        arguments generated from the signature, on given ones, or on drawn ones.
    store : "user" or a directory, optional
        Take the report from there when the same was proved before, in any process, and keep it
        there when it is proved now; see ``docs/store.md``.
    **jit_options
        Numba's, such as ``fastmath=True``; on a dispatcher or a ``cfunc`` they override its own.

    Returns
    -------
    Report
        The verdict with its findings.

    Raises
    ------
    UsageError
        For a wrong signature, option or target.
    CompileError
        When the function does not compile; Numba's message is inside.
    Refused
        When it uses something that cannot be proved or bound.
    ProofRefuted
        When running it, by `confirm`, did what was proved impossible: a bug in this package.

    Examples
    --------
    >>> def total(x):
    ...     s = 0.0
    ...     for v in x:
    ...         s += v
    ...     return s
    >>> analyze(total, "float64(float64[::1])").ok
    True

    Notes
    -----
    The question is AllocCheck.jl's ``check_allocs(f, types)``; the answer speaks of machine code
    that can be run afterwards, see :func:`alloccheck.check_allocs`.
    """
    policy = Policy.of(guarantee, ignore_throw, first_call, entry, contracts)
    options = {**jit_options, "disjoint": disjoint}
    job = make_job(target, signature, options)
    storage = storage_at(store)
    if storage is None:
        verdict = explained(job, policy)
        report, artifact = verdict.report, verdict.artifact
    else:
        report, artifact = _from_store(storage, job, policy)
    # It is not run here; a witness runs in another process.
    artifact.lifetime.never_ran()
    if confirm is None or confirm is False:
        return report
    # The one place from which the witness is called: it runs code, which nothing else here does.
    from alloccheck.confirm import confirm as run

    return run(report, artifact, target, policy, how=confirm, options=options)


def _from_store(storage: Storage, job: CompileJob, policy: Policy) -> tuple[Report, Artifact]:
    from alloccheck.store import ArtifactStore

    def proved() -> tuple[Built, Report]:
        verdict = explained(job, policy)
        return verdict.built, verdict.report

    artifact, report, _ = ArtifactStore(storage).answer(job, policy, proved)
    assert report is not None, "a policy asks for a report"
    return report, artifact


def check_call(
    target: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Report:
    """Check a function for the types of the given arguments, without calling it.

    Parameters
    ----------
    target : Callable
        See `analyze`.
    *args, **kwargs
        The arguments of a call.

    Returns
    -------
    Report
        See `analyze`; raises the same errors. A decorated function is asked its own guarantee.

    Examples
    --------
    >>> def scale(out, x, g):
    ...     for i in range(x.size):
    ...         out[i] = g * x[i]
    >>> import numpy as np
    >>> check_call(scale, np.zeros(3), np.ones(3), 2.0).ok
    True
    """
    policy = getattr(target, "policy", None) or Policy()
    function = python_function(target)
    signature = types_of_call(function, args, kwargs)
    job = make_job(target, signature)
    try:
        return _of_code_that_never_ran(prove(job, policy))
    except ForceLiteralArg as request:
        signature = types_of_call(function, args, kwargs, literal=request.requested_args)
    except AllocCheckException:
        raise
    except Exception as error:
        raise_translated(job, error)
    return _of_code_that_never_ran(explained(make_job(target, signature), policy))


def _of_code_that_never_ran(verdict: Verdict) -> Report:
    verdict.artifact.lifetime.never_ran()
    return verdict.report


def explained(job: CompileJob, policy: Policy) -> Verdict:
    """Prove, and turn Numba's errors into ours, with the question in front.

    Parameters
    ----------
    job, policy
        As `prove` takes them.

    Raises
    ------
    CompileError
        When the function does not compile.
    """
    try:
        return prove(job, policy)
    except AllocCheckException:
        raise
    except Exception as error:
        raise_translated(job, error)


def compile_error(job: CompileJob, error: Exception) -> CompileError:
    """Return Numba's error as ours, with the question in front.

    Parameters
    ----------
    job : CompileJob
        What was compiled.
    error : Exception
        What Numba raised.

    Returns
    -------
    CompileError
        It is also an error of Numba's own class, so that code written for ``njit`` still
        catches it and jitted callers go on to the next candidate.
    """
    name = f"{job.function.__module__}:{job.function.__qualname__}"
    arguments = ", ".join(map(str, job.argument_types))
    if isinstance(error, ForceLiteralArg):
        parameters = list(inspect.signature(job.function).parameters)
        wanted = ", ".join(parameters[i] for i in sorted(error.requested_args))
        return CompileError(
            f"{name} needs the value of {wanted} when it is compiled (numba.literally), and a "
            f"signature has only types: ({arguments}). Give a tuple of types with "
            "numba.types.literal(value) in that place, or use check_call"
        )
    said = str(error) if isinstance(error, NUMBA_ERRORS) else f"{type(error).__name__}: {error}"
    text = f"{name} does not compile for ({arguments}). Numba says:\n{said}"
    if isinstance(error, RecursionError):
        text = (
            f"{name} does not compile for ({arguments}): it nests deeper than Python's recursion "
            f"limit of {sys.getrecursionlimit()} bears. Split its longest expression, or raise the "
            "limit by sys.setrecursionlimit()"
        )
    if isinstance(error, UnicodeError):
        return CompileError(text)  # one that is also of its class could say nothing else
    return _of_both_kinds(type(error).__name__, CompileError, error, text)


def translated(job: CompileJob, error: Exception) -> CompileError | None:
    """Return an error of a compile as ours, or None when it is to be raised as it is.

    Parameters
    ----------
    job : CompileJob
        What was compiled.
    error : Exception
        What came out.
    """
    if isinstance(error, RecursionFault):
        return recursion_error(error)
    # An implementation that raises is the user's; one that needs too much memory says nothing.
    foreign = not isinstance(error, AllocCheckException | MemoryError) and is_of_numba(error)
    return compile_error(job, error) if isinstance(error, NUMBA_ERRORS) or foreign else None


def raise_translated(job: CompileJob, error: Exception) -> NoReturn:
    """Raise an error of a compile as ours, with the question in front, or as it is.

    Parameters
    ----------
    job : CompileJob
        What was compiled.
    error : Exception
        What came out; of a kind that Numba does not raise on purpose it stays as the cause.
    """
    ours = translated(job, error)
    if ours is None:
        raise error
    raise ours from (None if isinstance(error, NUMBA_ERRORS) else error)


def recursion_error(fault: RecursionFault) -> RecursionFault:
    """Return a fault of recursion that is also Numba's typing error, as it is with ``njit``."""
    text = str(fault)
    return _of_both_kinds(RecursionFault.__name__, RecursionFault, TypingError(text), text)


def _of_both_kinds(name: str, ours: type[_Ours], error: Exception, text: str) -> _Ours:
    """Return an error of our class that those who catch Numba's `error` catch, too."""
    try:
        both: Any = type(name, (ours, type(error)), {"__module__": __name__})
        explained: Any = both.__new__(both)
        explained.__dict__.update(error.__dict__)
        explained.args = (text,)
    except TypeError:  # made of something else than words
        return ours(text)
    # Some kinds word themselves, and would leave our words out.
    return explained if str(explained) == text else ours(text)


# --- the steps ------------------------------------------------------------------------------------


def _entry_symbols(built: Built, policy: Policy) -> tuple[str, ...]:
    artifact = built.artifact
    if policy.entry != "c":
        entries = artifact.c_entries
        # With the body inlined, the entry is a body of its own.
        own = (entries.value,) if entries is not None and entries.inlined else ()
        return (artifact.symbol, *own)
    if artifact.c_entries is None:
        raise UsageError(
            f"{artifact.signature} has no C entry: its types cannot be passed by value"
        )
    # From the first instruction of each way in from C; the body is reached from there.
    return artifact.c_entries.symbols


def _later_entries(artifact: Artifact) -> tuple[str, ...]:
    """Return what runs after the call: the body of a generator, and its end."""
    generator = artifact.generator
    if generator is None:
        return ()
    finalizer = generator.finalizer_symbol
    return (generator.next_symbol,) if finalizer is None else (generator.next_symbol, finalizer)


def _solve(program: Program, contracts: NativeEvidence, built: Built) -> Solution:
    artifact = built.artifact
    assumed = {
        symbol: Assumed(mark.effects, mark.reason) for symbol, mark in built.assumed_symbols.items()
    }
    entries = artifact.c_entries
    convention = StatusConvention()
    if entries is not None:
        # The one returns the body's status; the other turns raising into returning a value: what
        # it does then is on the raise path.
        convention = StatusConvention(
            functions=frozenset({entries.status}),
            wrappers=frozenset({entries.value, entries.last_status}),
        )
    return solve(
        program,
        contracts.lookup,
        convention=convention,
        # Whoever calls the C entry holds its arguments, as a caller from Python does.
        refcounts=RefcountNames(held=frozenset({artifact.symbol})),
        assumptions=assumed,
        address_names=contracts.name,
    )


def _report(
    job: CompileJob,
    policy: Policy,
    built: Built,
    programs: list[Program],
    contracts: NativeEvidence,
    solutions: list[Solution],
    undeclared: list[str],
    comparison: Comparison,
) -> Report:
    artifact = built.artifact
    ways_in = frozenset(artifact.c_entries.symbols) if artifact.c_entries else frozenset()
    witnesses = _distinct((w for one in solutions for w in one.witnesses), ways_in)
    witnesses += _added_by_code_generation(undeclared, contracts, comparison.place)
    witnesses += comparison.witnesses
    lazy = {one.symbol for one in witnesses if one.occasion is Occasion.FIRST_CALL}
    prepared = prepare(lazy) if policy.first_call == "prepare" else frozenset()
    hints = functools.cache(lambda: heap_types_by_line(built.annotations))

    def type_hint(frame: Frame) -> TypeHint | None:
        # A script's own functions may know its path as it was given: relative.
        found = hints().get((os.path.abspath(frame.file), frame.line))  # noqa: PTH100
        return TypeHint(without_addresses(found)) if found else None

    may_raise = any(one.may_raise for one in solutions)
    trusted = frozenset(symbol for one in solutions for symbol in one.assumptions_used)
    noted = sorted({note for one in solutions for note in one.noted})
    raises_to_c = policy.entry == "c" and not policy.ignore_throw and may_raise
    findings = findings_from(
        witnesses,
        guarantee=policy.guarantee,
        ignore_throw=policy.ignore_throw,
        first_call=policy.first_call,
        types=type_hint,
        prepared=prepared,
        also_forbidden=frozenset({Effect.RAISE}) if raises_to_c else frozenset(),
    )
    effects = {one.effect for one in witnesses if one.path is not Path.RAISE}
    if may_raise:
        effects.add(Effect.RAISE)
    assumptions = tuple(
        _assumption(mark, symbol in trusted)
        for symbol, mark in sorted(built.assumed_symbols.items(), key=lambda one: one[1].function)
    )
    facts = tuple(dict.fromkeys(fact for one in solutions for fact in one.assumed_facts))
    function = f"{job.function.__module__}:{job.function.__qualname__}"
    checked = condition(job.pipeline)
    certificate = Certificate(
        function=function,
        signature=_written(artifact.signature),
        guarantee=policy.guarantee,
        ignore_throw=policy.ignore_throw,
        first_call=policy.first_call,
        proved=not findings,
        digest=artifact.digest,
        entry=policy.entry,
        sources=tuple(
            Source(one.name, one.source_digest, one.code_digest) for one in artifact.sources
        ),
        captures=tuple(
            Captured(one.function, one.name, one.digest, one.note) for one in artifact.captures
        ),
        externals=_externals(programs, undeclared, contracts, prepared),
        assumptions=(
            *((one.function, one.reason) for one in assumptions if one.used),
            *(("Numba's runtime", fact) for fact in facts),
            *contracts.assumptions(),
        ),
        prepared=tuple(sorted(prepared)),
        configuration=artifact.configuration.to_json(),
        conditions=() if checked is None else (checked,),
    )
    code = job.function.__code__
    return Report(
        function=function,
        file=code.co_filename,
        line=code.co_firstlineno,
        signature=_written(artifact.signature),
        guarantee=policy.guarantee,
        ignore_throw=policy.ignore_throw,
        findings=findings,
        effects=frozenset(effects),
        assumptions=assumptions,
        notes=(
            *(() if checked is None else (f"checked at entry: {checked}",)),
            *(f"may end the process: {one}" for one in noted),
            *(f"assumes that {fact}" for fact in facts),
            *(
                f"assumes of {subject}: {reason}"
                for subject, reason in contracts.unusual_assumptions()
            ),
            *comparison.notes,
        ),
        certificate=certificate,
    )


def _distinct(witnesses: Iterable[Witness], ways_in: frozenset[str]) -> list[Witness]:
    """Keep one of the witnesses that differ in the way in alone: all lead to the same body."""
    kept: dict[object, Witness] = {}
    for one in witnesses:
        inner = tuple(frame for frame in one.backtrace if frame.function not in ways_in)
        symbol = None if one.symbol in ways_in else one.symbol
        when = (one.effect, one.path, one.occasion, one.condition)
        kept.setdefault((when, symbol, one.source, one.size, inner), one)
    return list(kept.values())


def _assumption(mark: AssumptionMark, used: bool) -> Assumption:
    return Assumption(mark.function, tuple(sorted(mark.effects)), mark.reason, used)


def _written(signature: Any) -> str:
    """Return a signature in Numba's form, ``ret(args...)``."""
    return without_addresses(f"{signature.return_type}({', '.join(map(str, signature.args))})")


_ADDRESS = re.compile(r"#[0-9a-f]{6,}(?=<)| at 0x[0-9a-f]+")


def without_addresses(text: str) -> str:
    """Return the names of types without where in this process a class or function lies.

    Parameters
    ----------
    text : str
        As Numba writes types.

    Examples
    --------
    >>> without_addresses("instance.jitclass.P#7f1e60625550<x:float64>")
    'instance.jitclass.P<x:float64>'
    """
    return _ADDRESS.sub("", text)


def _externals(
    programs: list[Program],
    undeclared: list[str],
    contracts: NativeEvidence,
    prepared: frozenset[str],
) -> tuple[External, ...]:
    found = []
    symbols = {symbol for one in programs for symbol in _reached(one)}
    symbols.update(undeclared)
    read = contracts.read()
    symbols.update(read)
    for symbol in sorted(symbols):
        contract = contracts.lookup(symbol)
        if contract is None:
            continue
        evidence = "machine code" if symbol in read else "contract"
        if symbol in prepared:
            evidence += ", prepared"
        found.append(External(symbol, evidence, contract.reason, contract.source))
    return tuple(found)


def _reached(program: Program) -> set[str]:
    """Return the external symbols that are called from the program's entry on."""
    symbols: set[str] = set()
    seen = {program.entry}
    waiting = [program.entry]
    for name in waiting:
        for call in program.functions[name].calls:
            target = call.target
            if isinstance(target, Direct):
                called: tuple[str, ...] = (target.symbol,)
            else:
                called = (target.candidates or ()) if isinstance(target, Indirect) else ()
            for symbol in called:
                if symbol not in program.functions:
                    symbols.add(symbol)
                elif symbol not in seen:
                    seen.add(symbol)
                    waiting.append(symbol)
    return symbols


def _undeclared(built: Built) -> list[str]:
    """Return the symbols that the object needs and the IR does not even declare."""
    declared = {first or second for first, second in _DECLARED.findall(built.listing)}
    return [symbol for symbol in built.object_file.undefined if symbol not in declared]


def _added_by_code_generation(
    undeclared: Iterable[str], contracts: NativeEvidence, place: Callable[[str], Backtrace]
) -> list[Witness]:
    """Classify the calls that machine code has and the IR has not.

    Code generation turns some instructions into calls (``frem`` into ``fmod``). Each undefined
    symbol of the object that the IR does not even declare needs a contract as well.
    """
    found = []
    for symbol in undeclared:
        contract = contracts.lookup(symbol)
        if contract is None:
            effect, occasion = Effect.UNKNOWN, Occasion.EVERY_CALL
            found.append(_added(symbol, effect, occasion, _UNKNOWN, "", place(symbol), ""))
            continue
        found.extend(
            _added(
                symbol,
                one.effect,
                one.occasion,
                contract.reason,
                contract.source,
                place(symbol),
                contract.condition,
            )
            for one in contract.effects
        )
    return found


_DECLARED = re.compile(
    r'^(?:declare\b[^@\n]*)?@(?:"((?:[^"\\]|\\.)*)"|([\w.$-]+))(?:\(| = )', re.MULTILINE
)
_UNKNOWN = "code generation calls it and no contract says what it does"


def _added(
    symbol: str,
    effect: Effect,
    occasion: Occasion,
    reason: str,
    source: str,
    backtrace: Backtrace,
    condition: str,
) -> Witness:
    return Witness(
        effect, Path.RETURN, occasion, symbol, reason, source, backtrace, None, condition
    )

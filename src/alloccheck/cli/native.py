"""The command ``alloccheck native``: what functions of a shared library may do.

Knows the terminal; the answers come from :mod:`alloccheck.analysis.native`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import click

from alloccheck.analysis.native import DEFAULT_TRUST, Decider, Trust
from alloccheck.analysis.native_answer import NativeAnswer, NativeWitness
from alloccheck.compile.collector import slow_collector
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import AllocCheckException, UsageError
from alloccheck.native_cache import ChunkCache
from alloccheck.program.machine.lookup import all_functions, symbol_address

PROVED, FOUND, UNDECIDED = 0, 1, 2

_SLOT = re.compile(r"(.+\+)?0x[0-9a-f]+")
"""How a walk names a pointer: its library with the offset, or its address where it lies in none."""

_OPEN = frozenset({Effect.UNKNOWN, Effect.DISPATCH})


def _forbidden(text: str | None) -> frozenset[Effect]:
    if text is None:
        return Guarantee.NONALLOCATING.forbidden
    names = [name.strip() for name in text.split(",") if name.strip()]
    found: set[Effect] = set()
    for name in names:
        if name in tuple(Guarantee):
            found |= Guarantee(name).forbidden
        elif name in tuple(Effect):
            found.add(Effect(name))
        else:
            known = ", ".join([*Guarantee, *Effect])
            raise UsageError(f"{name!r} is neither an effect nor a guarantee; known: {known}")
    # What could not be decided may be any effect.
    return frozenset(found) | _OPEN


@click.command("native")
@click.argument("library")
@click.argument("symbols", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every function that the library offers.")
@click.option(
    "--effects",
    metavar="NAMES",
    help="Forbidden effects or a guarantee, comma-separated; nonallocating by default.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--distrust",
    multiple=True,
    type=click.Choice([str(t) for t in sorted(DEFAULT_TRUST)]),
    help="Do not rest on this assumption.",
)
@click.option(
    "--accept",
    multiple=True,
    metavar="POINTER",
    help="A writable pointer (library+0x123, as reported) that keeps its present value; or 'all'.",
)
@click.option(
    "--after-first-call",
    "warm",
    is_flag=True,
    help="Leave out what happens at the first call only, such as lazy binding.",
)
@click.option("--no-ignore-throw", is_flag=True, help="Count what happens only when raising, too.")
@click.option(
    "--no-names",
    is_flag=True,
    help="Know no function of the C library by its name: witnesses lead down to the system call.",
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@click.option("--verbose", is_flag=True, help="Show evidence: functions, libraries, pointers.")
@slow_collector()
def command(
    library: str,
    symbols: tuple[str, ...],
    every: bool,
    effects: str | None,
    form: str,
    distrust: tuple[str, ...],
    accept: tuple[str, ...],
    warm: bool,
    no_ignore_throw: bool,
    no_names: bool,
    no_cache: bool,
    verbose: bool,
) -> None:
    """Say what functions of a shared LIBRARY (or extension module) may do.

    Reads the machine code that is loaded, down to the system calls. Exit code 0: no forbidden
    effect; 1: a forbidden effect; 2: not decided, or a wrong question.
    """
    try:
        forbidden = _forbidden(effects)
        if every == bool(symbols):
            raise UsageError("give symbols, or --all")
        addresses = (
            all_functions(library)
            if every
            else {symbol: symbol_address(library, symbol) for symbol in symbols}
        )
        if not addresses:
            raise UsageError(f"{library} offers no functions")
        trust = DEFAULT_TRUST - {Trust(name) for name in distrust}
        for slot in accept:
            if slot != "all" and _SLOT.fullmatch(slot) is None:
                raise UsageError(
                    f"--accept: expected library+0x123 as a witness names it, or 'all'; "
                    f"found {slot!r}"
                )
        if "all" in accept:
            trust |= {Trust.POINTERS}
        cache = None if no_cache else ChunkCache()
        decider = Decider(
            assumptions=trust, accept=frozenset(accept), store=cache, names=not no_names
        )
        judged = {
            name: _Judged(decider.decide(address), forbidden, warm, not no_ignore_throw)
            for name, address in addresses.items()
        }
        if cache is not None:
            cache.save()
    except AllocCheckException as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(UNDECIDED) from error
    if form == "json":
        click.echo(json.dumps(_document(library, judged), indent=2))
    else:
        for line in _lines(judged, verbose=verbose):
            click.echo(line)
    raise SystemExit(_exit_code(judged.values()))


@dataclass(frozen=True, slots=True)
class _Judged:
    """An answer, and what it was judged by."""

    answer: NativeAnswer
    forbidden: frozenset[Effect]
    warm: bool
    ignore_throw: bool

    @property
    def effects(self) -> frozenset[Effect]:
        return self.answer.effects_after(first_call=self.warm, ignore_throw=self.ignore_throw)

    @property
    def raised(self) -> frozenset[Effect]:
        """Effects that were left out, because they happen only when the call ends by raising."""
        return self.answer.effects_after(first_call=self.warm) - self.effects

    @property
    def verdict(self) -> str:
        hit = self.effects & self.forbidden
        if not hit:
            return "proved"
        return "found" if hit - _OPEN else "undecided"

    def witnesses(self) -> list[NativeWitness]:
        """Return the first witness of each forbidden effect and occasion."""
        first: dict[tuple[Effect, Occasion], NativeWitness] = {}
        for witness in self.answer.witnesses:
            late = self.warm and witness.occasion is Occasion.FIRST_CALL
            thrown = witness.path is Path.RAISE and witness.effect is not Effect.RAISE
            excused = late or witness.path is Path.DIVERGE or (thrown and self.ignore_throw)
            if witness.effect in self.forbidden and not excused:
                first.setdefault((witness.effect, witness.occasion), witness)
        return list(first.values())


def _exit_code(judged: Iterable[_Judged]) -> int:
    verdicts = {item.verdict for item in judged}
    if "found" in verdicts:
        return FOUND
    return UNDECIDED if "undecided" in verdicts else PROVED


def _document(library: str, judged: dict[str, _Judged]) -> dict[str, object]:
    return {
        "library": library,
        "functions": {
            name: {
                "verdict": item.verdict,
                "forbidden": sorted(item.forbidden),
                **item.answer.to_json(),
            }
            for name, item in judged.items()
        },
    }


def _lines(judged: dict[str, _Judged], *, verbose: bool) -> Iterable[str]:
    width = max((len(name) for name in judged), default=0)
    for name, item in judged.items():
        summary = ", ".join(sorted(item.effects)) or "clean"
        if item.raised:
            summary += f" (and only when raising: {', '.join(sorted(item.raised))})"
        yield f"{name:<{width}}  {item.verdict:<9}  {summary}"
        for witness in item.witnesses():
            yield from _witness_lines(witness)
        if verbose:
            yield from _evidence_lines(item.answer)
    assumptions = {a for item in judged.values() for a in item.answer.evidence.assumptions}
    if assumptions:
        yield ""
        yield "assumptions:"
        subjects: dict[tuple[str, str], list[str]] = {}
        for assumption in sorted(assumptions):
            subjects.setdefault((assumption.name, assumption.reason), []).append(assumption.subject)
        for (label, reason), named in subjects.items():
            more = f" and {len(named) - 3} more" if len(named) > 3 else ""
            yield f"  {label}: {reason} ({', '.join(named[:3])}{more})"


def _witness_lines(witness: NativeWitness) -> Iterable[str]:
    yield f"    {witness.effect} ({witness.occasion}): {witness.symbol}: {witness.reason}"
    place = f" at {witness.site}" if witness.site else ""
    yield f"      {' -> '.join(witness.trail)}{place}"


def _evidence_lines(answer: NativeAnswer) -> Iterable[str]:
    for death in answer.deaths:
        yield f"    may end the process: {death}"
    for item in answer.evidence.libraries:
        identity = item.build_id or "no build-id"
        yield f"    read from {item.path} ({identity}, code {item.code_digest[:16]})"
    for slot, target in answer.evidence.slots:
        yield f"    followed {slot} -> {target}"
    yield f"    functions read: {len(answer.evidence.functions)}"

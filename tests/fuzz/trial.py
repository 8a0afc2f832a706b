"""One trial: a random program, a random history, both questions, and what it really does."""

from __future__ import annotations

import importlib.util
import random
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import alloccheck
from alloccheck import oracle
from alloccheck.effects import Guarantee
from fuzz.programs import program

OPTIONS = ({}, {}, {"fastmath": True}, {"boundscheck": True}, {"error_model": "numpy"})
INPUTS = 3


@dataclass(frozen=True)
class Outcome:
    """What came of a program under one guarantee.

    Parameters
    ----------
    seed : int
        The program.
    guarantee : Guarantee
        What was asked.
    proved : bool
        The answer.
    causes : tuple of str
        Codes and symbols of the findings.
    returned : int
        How many of the calls returned; the others raised.
    refutations : tuple of str
        What calls that returned did against the guarantee.
    """

    seed: int
    guarantee: Guarantee
    proved: bool
    causes: tuple[str, ...]
    returned: int
    refutations: tuple[str, ...]

    @property
    def false_proof(self) -> bool:
        """Proved, and refuted."""
        return self.proved and bool(self.refutations)

    @property
    def alarm(self) -> bool:
        """Not proved, although no call that returned did anything forbidden."""
        return not self.proved and self.returned > 0 and not self.refutations


@cache
def loaded(path: str) -> ModuleType:
    """The module of a program, the same for all its parts."""
    name = f"fuzz_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def _checked(path: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """The function of a program, bound to the code that was judged."""
    module = loaded(path)
    function = alloccheck.check_allocs(on_failure="report", **dict(options))(module.f.py_func)
    function.compile(module.SIGNATURE)
    return function


def checked(path: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """The same function at every call, under a name that travels."""
    return _checked(path, options)


@cache
def arguments(path: str, k: int) -> tuple[Any, ...]:
    """The arguments of one call, made together because they overlap."""
    return tuple(loaded(path).arguments(k))


def argument(path: str, k: int, index: int) -> Any:
    """One of the arguments of a call."""
    return arguments(path, k)[index]


def history(module: ModuleType, rng: random.Random) -> None:
    """Let stock Numba, or the checker, compile some of a program first."""
    kind = rng.randrange(4)
    if kind == 1:
        module.f.compile(module.SIGNATURE)
    elif kind == 2:
        module.scale(1.0)
        module.factorial(3)
        module.odd(3)
    elif kind == 3:
        alloccheck.analyze(module.even, "(int64,)", fastmath=True)
        alloccheck.analyze(module.scale, "(float64,)")


def trial(seed: int, folder: Path, witness: oracle.Oracle, *, all_programs: bool) -> list[Outcome]:
    """Judge a program and measure it.

    Parameters
    ----------
    seed : int
        Of program, history and options.
    folder : Path
        Where its module is written.
    witness : Oracle
        What measures.
    all_programs : bool
        Measure what is not proved as well, to find false alarms.

    Raises
    ------
    AllocCheckException
        When the program does not compile.
    """
    path = folder / f"program_{seed}.py"
    path.write_text(program(seed))
    module, rng = loaded(str(path)), random.Random(seed)
    options = rng.choice(OPTIONS)
    history(module, rng)
    reports = {
        guarantee: alloccheck.analyze(
            module.f.py_func, module.SIGNATURE, guarantee=guarantee, **options
        )
        for guarantee in Guarantee
    }
    refuted: dict[Guarantee, list[str]] = {guarantee: [] for guarantee in Guarantee}
    returned = 0
    if all_programs or any(report.ok for report in reports.values()):
        function = oracle.made_by(checked, str(path), tuple(options.items()))
        number = len(arguments(str(path), 0))
        for k in range(INPUTS):
            made = [oracle.made_by(argument, str(path), k, i) for i in range(number)]
            counts = witness.count(function, *made, calls=2)
            assert counts.artifact, "what was counted is not the code that was judged"
            for call, counted in enumerate(counts.calls):
                if counted.outcome != "returned":
                    continue
                returned += 1
                for guarantee, report in reports.items():
                    prefix = f"input {k} call {call}: "
                    forbidden = [
                        f"{prefix}{tally.category.effect} by {tally.name} x {tally.count}"
                        for tally in counted.tallies
                        if tally.category.effect in guarantee.forbidden
                    ]
                    refuted[guarantee] += forbidden
    return [
        Outcome(
            seed,
            guarantee,
            report.ok,
            tuple(sorted({f"{one.code} {one.symbol}" for one in report.findings})),
            returned,
            tuple(refuted[guarantee]),
        )
        for guarantee, report in reports.items()
    ]

"""The measuring process's part of a trial: compiles and judges a program, once, and hands it over.

What is measured is the artifact that was judged, in the same process. The verdicts come back in a
file beside the program, because only counts travel through the oracle.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba

from alloccheck.check import judge
from alloccheck.compile.artifact import build
from alloccheck.compile.loaded import Artifact
from alloccheck.compile.target import make_job
from alloccheck.effects import Guarantee
from alloccheck.errors import AllocCheckException
from alloccheck.policy import Policy
from fuzz import values

QUESTIONS = {
    "nonallocating": Policy(),
    "nonblocking": Policy(Guarantee.NONBLOCKING),
    "nonallocating when it raises as well": Policy(ignore_throw=False),
}
DISJOINT = ("x", "y")
OPTIONS: tuple[dict[str, Any], ...] = (
    *({}, {}, {"fastmath": True}, {"boundscheck": True}, {"error_model": "numpy"}),
    {"disjoint": DISJOINT},
)
OVERLAPS = ("same", "shifted", "apart", "apart")
HISTORIES = (0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 3)
"""Kinds of `happen`; the dear one is rare."""


class Unmeasured(AllocCheckException):
    """Nothing was proved of this program, so nothing can be refuted."""


class Subject:
    """What the oracle calls: the artifact of one program, as a dispatcher's face."""

    def __init__(self, function: Any, artifact: Artifact) -> None:
        key = tuple(artifact.signature.args)
        self.py_func = function
        self.artifacts = {key: artifact}
        self.overloads = {key: artifact.result}

    _can_compile = True

    def compile(self, types: tuple[Any, ...]) -> None:
        """Let arguments of other types run the one artifact, if the call may convert them.

        An array of one element is contiguous, whatever its type was meant to be.
        """
        ((judged, artifact),) = tuple(self.artifacts.items())[:1]
        context = numba.core.registry.cpu_target.typing_context
        for given, wanted in zip(types, judged, strict=True):
            if context.can_convert(given, wanted) is None:
                raise AllocCheckException(f"the trial was to pass {wanted}, and passes {given}")
        self.artifacts[types] = artifact
        self.overloads[types] = artifact.result

    def typeof_pyval(self, value: Any) -> Any:
        """The type of an argument, as a dispatcher finds it."""
        return numba.typeof(value)


def loaded(path: str) -> ModuleType:
    """The module of a program; it is not kept."""
    name = f"fuzz_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def happen(module: ModuleType, kind: int) -> None:
    """Let stock Numba, or the checker, compile some of a program before it is judged."""
    helpers = [one for one in vars(module).values() if hasattr(one, "overloads")]
    if kind == 1:
        # Stock Numba does not compile all that a hermetic compile does.
        with contextlib.suppress(numba.core.errors.NumbaError):
            numba.njit(fastmath=True)(module.f).compile(values.SIGNATURE)
    elif kind == 2:
        for one in helpers[:3]:
            for types in ((values.N,), (values.F,)):
                try:
                    one.compile(types)
                # Other types or numbers of parameters; a helper with declared signatures.
                except (numba.core.errors.NumbaError, TypeError, RuntimeError):
                    continue
    elif kind == 3:
        for one in helpers[:2]:
            try:
                build(make_job(one, (values.N,), {"fastmath": True}))
            except (AllocCheckException, numba.core.errors.NumbaError):  # or types
                continue


def judged(path: str, seed: int, all_programs: bool) -> Subject:
    """The same as `_judged`, under a name that travels; the program of the last call is kept."""
    return _judged(path, seed, all_programs)


@lru_cache(maxsize=1)
def _judged(path: str, seed: int, all_programs: bool) -> Subject:
    """Judge a program in the setting of a seed, write down the verdicts, and hand it over.

    Raises
    ------
    Unmeasured
        When nothing was proved and not all programs are wanted.
    """
    module = loaded(path)
    options, _, history = setting(seed)
    happen(module, history)
    job = make_job(module.f, values.SIGNATURE, dict(options))
    built = build(job)
    reports = {name: judge(job, built, policy).report for name, policy in QUESTIONS.items()}
    verdicts = {
        name: {
            "proved": report.ok,
            "causes": sorted({f"{one.code} {one.symbol}" for one in report.findings}),
        }
        for name, report in reports.items()
    }
    verdicts_of(path).write_text(json.dumps(verdicts))
    if not all_programs and not any(report.ok for report in reports.values()):
        raise Unmeasured("nothing was proved")
    return Subject(module.f, built.artifact)


def setting(seed: int) -> tuple[dict[str, Any], str, int]:
    """Return the options, the overlap of the arguments, and the history that go with a seed."""
    rng = random.Random(seed)
    return rng.choice(OPTIONS), rng.choice(OVERLAPS), rng.choice(HISTORIES)


def verdicts_of(path: str) -> Path:
    """The file in which the verdicts on a program are."""
    return Path(path).with_suffix(".json")


@lru_cache(maxsize=1)
def _arguments(path: str, k: int, overlap: str) -> tuple[Any, ...]:
    return values.arguments(k, overlap)


def argument(path: str, seed: int, k: int, index: int) -> Any:
    """One of the arguments of a call; they are made together because they overlap."""
    return _arguments(path, k, setting(seed)[1])[index]

"""One trial: a program under a random history and options, judged, and what it really does."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from alloccheck import oracle
from alloccheck.effects import Guarantee
from fuzz import values
from fuzz.subject import QUESTIONS, argument, judged, verdicts_of

SECONDS = 60.0
"""For one input of one program; the compile is part of the first."""


@dataclass(frozen=True)
class Outcome:
    """What came of a program under one question.

    Parameters
    ----------
    seed : int
        The program.
    question : str
        What was asked.
    proved : bool
        The answer.
    causes : tuple of str
        Codes and symbols of the findings.
    returned : int
        How many of the calls returned; the others raised.
    refutations : tuple of str
        What the calls that the question speaks of did against it.
    """

    seed: int
    question: str
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


def witness() -> AbstractContextManager[oracle.Oracle]:
    """A measuring process that finds the modules of these tests."""
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join((tests, *(one for one in sys.path if one)))
    return oracle.Oracle(environment={"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"})


def trial(
    seed: int, text: str, folder: Path, measuring: oracle.Oracle, *, all_programs: bool
) -> list[Outcome]:
    """Judge a program and measure it.

    Parameters
    ----------
    seed : int
        Of history, options and arguments.
    text : str
        The program's module.
    folder : Path
        Where it is written.
    measuring : Oracle
        From `witness`.
    all_programs : bool
        Measure what is not proved as well, to find false alarms.

    Raises
    ------
    RemoteError
        When the program does not compile.
    WorkerCrashed, WorkerTimeout
        When it ended the measuring process, or did not end.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / f"program_{seed}_{digest}.py"
    path.write_text(text)
    subject = oracle.made_by(judged, str(path), seed, all_programs)
    calls = []
    for k in range(len(values.SIZES)):
        made = [
            oracle.made_by(argument, str(path), seed, k, i) for i in range(len(values.SIGNATURE))
        ]
        try:
            counts = measuring.count(subject, *made, calls=2, timeout=SECONDS)
        except oracle.RemoteError as error:
            if error.kind != "Unmeasured":
                raise
            break
        assert counts.artifact, "what was counted is not the code that was judged"
        calls += [(f"input {k} call {i}", one) for i, one in enumerate(counts.calls)]
    verdicts = json.loads(verdicts_of(str(path)).read_text())
    returned = sum(one.outcome == "returned" for _, one in calls)
    return [
        Outcome(
            seed,
            name,
            verdicts[name]["proved"],
            tuple(verdicts[name]["causes"]),
            returned,
            tuple(
                f"{label}, which {call.outcome}: {did}"
                for label, call in calls
                if call.outcome == "returned" or not policy.ignore_throw
                for did in _forbidden(call, policy.guarantee)
            ),
        )
        for name, policy in QUESTIONS.items()
    ]


def _forbidden(call: oracle.CallCounts, guarantee: Guarantee) -> list[str]:
    return [
        f"{one.category.effect} by {one.name} x {one.count}"
        for one in call.tallies
        if one.category.effect in guarantee.forbidden
    ]

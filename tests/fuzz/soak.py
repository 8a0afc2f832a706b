"""Tries to refute the proofs of many random programs: ``python -m tests.fuzz.soak 200``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from alloccheck import oracle
from alloccheck.oracle import OracleError
from fuzz.minimise import minimised
from fuzz.programs import program
from fuzz.subject import QUESTIONS, setting
from fuzz.trial import Outcome, trial, witness

PROGRAMS_A_PROCESS = 100
"""So many are compiled in one measuring process: long enough for a history, short of its memory."""


@dataclass(frozen=True)
class Rejected:
    """A program of which nothing was learnt.

    Parameters
    ----------
    seed : int
        The program.
    kind : str
        Name of the error.
    message : str
        Its end.
    """

    seed: int
    kind: str
    message: str

    @property
    def fatal(self) -> bool:
        """Whether it is no ordinary error of a program that does not compile."""
        return self.kind in ("WorkerCrashed", "WorkerTimeout")


def soak(seeds: Sequence[int], seconds: float, folder: Path) -> Iterator[Rejected | list[Outcome]]:
    """Try one program after the other; none is begun after so many seconds.

    Parameters
    ----------
    seeds : sequence of int
        Of the programs.
    seconds : float
        When to stop.
    folder : Path
        Where the programs are written.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        for number, seed in enumerate(seeds):
            if time.monotonic() - started > seconds:
                return
            if number % PROGRAMS_A_PROCESS == 0:
                stack.close()
                measuring = stack.enter_context(witness())
            try:
                yield trial(seed, program(seed), folder, measuring, all_programs=True)
            except OracleError as error:
                kind = getattr(error, "kind", type(error).__name__)
                yield Rejected(seed, kind, str(error)[-300:])


def still_refuted(outcome: Outcome, text: str, folder: Path, measuring: oracle.Oracle) -> bool:
    """Whether a smaller program is proved and refuted under the same question.

    Parameters
    ----------
    outcome : Outcome
        The false proof.
    text : str
        The smaller program; the setting is the same.
    folder, measuring
        As `trial` takes them.
    """
    try:
        found = trial(outcome.seed, text, folder, measuring, all_programs=False)
    except OracleError:
        return False
    return any(one.false_proof and one.question == outcome.question for one in found)


def explained(outcome: Outcome, folder: Path) -> str:
    """Return the text for a false proof: what was seen, the setting, and the smallest program.

    Parameters
    ----------
    outcome : Outcome
        The false proof.
    folder : Path
        Where programs are written.
    """
    options, overlap, history = setting(outcome.seed)
    text = program(outcome.seed)
    with witness() as measuring:
        if still_refuted(outcome, text, folder, measuring):
            text = minimised(text, lambda one: still_refuted(outcome, one, folder, measuring))
            size = "the smallest program that shows it"
        else:
            size = "the whole program; alone, in a new process, it is not refuted"
    return (
        f"FALSE PROOF, {outcome.question}: {'; '.join(outcome.refutations)}\n"
        f"seed {outcome.seed}, options {options}, arrays x and y {overlap}, history {history}; "
        f"{size}:\n\n{text}"
    )


class Record:
    """What came of programs, a line for each in a file: a soak may be broken off and taken up.

    Parameters
    ----------
    path : Path or None
        Lines of JSON; made when it is not there. None: remembered here alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.outcomes: list[Outcome] = []
        self.rejected: list[Rejected] = []
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._take(_read(line))

    @property
    def seeds(self) -> set[int]:
        """The programs that are done."""
        return {one.seed for one in (*self.outcomes, *self.rejected)}

    def add(self, one: Rejected | list[Outcome]) -> None:
        """Take in what came of one program.

        Parameters
        ----------
        one : Rejected or list of Outcome
            As `soak` gives it.
        """
        self._take(one)
        if self._path is not None:
            said = [one] if isinstance(one, Rejected) else one
            with self._path.open("a") as file:
                file.write(json.dumps([dataclasses.asdict(each) for each in said]) + "\n")

    def _take(self, one: Rejected | list[Outcome]) -> None:
        if isinstance(one, Rejected):
            self.rejected.append(one)
        else:
            self.outcomes += one


def _read(line: str) -> Rejected | list[Outcome]:
    said = json.loads(line)
    if said and "kind" in said[0]:
        return Rejected(**said[0])
    return [
        Outcome(**{name: tuple(v) if isinstance(v, list) else v for name, v in each.items()})
        for each in said
    ]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    parser.add_argument(
        "--record", type=Path, help="file that keeps the results; programs in it are not run again"
    )
    asked = parser.parse_args()
    record = Record(asked.record)
    with tempfile.TemporaryDirectory() as folder:
        done = record.seeds
        seeds = [n for n in range(asked.first, asked.first + asked.number) if n not in done]
        for one in soak(seeds, asked.seconds, Path(folder)):
            record.add(one)
            if isinstance(one, Rejected):
                print(f"program {one.seed}: {one.kind}: {one.message!r}", flush=True)
                continue
            for false in (found for found in one if found.false_proof):
                print(explained(false, Path(folder)), flush=True)
    print(table(record.outcomes, record.rejected))
    false = any(one.false_proof for one in record.outcomes)
    return 1 if false or any(one.fatal for one in record.rejected) else 0


def table(outcomes: list[Outcome], rejected: list[Rejected]) -> str:
    """Return the rates, and the causes of the alarms, as text.

    Parameters
    ----------
    outcomes : list of Outcome
        Of all programs that were judged.
    rejected : list of Rejected
        The others.
    """
    judged = len({one.seed for one in outcomes})
    lines = [f"programs judged {judged}, not compiled or not measured {len(rejected)}"]
    for question in QUESTIONS:
        mine = [one for one in outcomes if one.question == question and one.returned]
        proved = [one for one in mine if one.proved]
        quiet = [one for one in mine if not one.refutations]
        alarms = [one for one in mine if one.alarm]
        lines.append(
            f"{question}: measured {len(mine)}, proved {len(proved)}, "
            f"false proofs {sum(one.false_proof for one in mine)}, "
            f"never did it {len(quiet)}, of these not proved {len(alarms)}"
        )
        causes = Counter(cause for one in alarms for cause in one.causes)
        lines += [f"    {number:4} {cause}" for cause, number in causes.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

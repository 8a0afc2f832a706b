"""Tries to refute the proofs of many random programs: ``python -m tests.fuzz.soak 200``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from alloccheck import oracle
from alloccheck.errors import AllocCheckException
from fuzz.trial import Outcome, trial


def soak(seeds: range, seconds: float) -> tuple[list[Outcome], int]:
    """Return what came of each program, and how many did not compile.

    No program is begun after so many seconds.
    """
    started = time.monotonic()
    found: list[Outcome] = []
    rejected = 0
    tests = str(Path(__file__).parents[1])
    paths = ":".join((tests, *(one for one in sys.path if one)))
    environment = {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    with (
        tempfile.TemporaryDirectory() as folder,
        oracle.Oracle(environment=environment) as witness,
    ):
        for seed in seeds:
            if time.monotonic() - started > seconds:
                break
            try:
                outcomes = trial(seed, Path(folder), witness, all_programs=True)
            except (AllocCheckException, oracle.RemoteError) as error:
                rejected += 1
                print(f"program {seed}: {type(error).__name__}: {str(error)[-300:]!r}")
                continue
            found += outcomes
            for one in outcomes:
                if one.false_proof:
                    print(f"FALSE PROOF, {one.guarantee}: {one.refutations}")
                    print((Path(folder) / f"program_{seed}.py").read_text(), flush=True)
    return found, rejected


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(asked.first, asked.first + asked.number)
    found, rejected = soak(seeds, asked.seconds)
    print(f"programs {len({one.seed for one in found})}, not compiled {rejected} more")
    for guarantee in dict.fromkeys(one.guarantee for one in found):
        mine = [one for one in found if one.guarantee is guarantee and one.returned]
        proved = [one for one in mine if one.proved]
        quiet = [one for one in mine if not one.refutations]
        alarms = [one for one in mine if one.alarm]
        print(
            f"{guarantee}: judged and measured {len(mine)}, proved {len(proved)}, "
            f"false proofs {sum(one.false_proof for one in mine)}, "
            f"never did it {len(quiet)}, of these not proved {len(alarms)}"
        )
        causes = Counter(cause for one in alarms for cause in one.causes)
        for cause, number in causes.most_common():
            print(f"    {number:4} {cause}")
    return 1 if any(one.false_proof for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs a share of Numba's own tests, with Numba's dispatchers or with hermetic ones.

Usage, from the repository's root:

    python tests/numba_suite/run.py hermetic --seconds 60 [MODULE ...]
    python tests/numba_suite/run.py stock

Results are lines of JSON in ``build/numba-suite/<mode>/<module>.jsonl``; what is there is not run
again. ``stock`` runs exactly the tests that have a hermetic result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STILL = 240
"""Seconds without a line after which a process is taken to hang."""

CRASHES = 6
"""Crashes of one module after which the rest of it is left alone."""


def read(path: Path) -> tuple[dict[str, dict[str, Any]], str | None, str]:
    """Return results by test, the test that did not end, and how the last process ended.

    That is ``"finished"``, ``"again"`` (after a failure, when the rest needs a fresh process), or
    empty.
    """
    results: dict[str, dict[str, Any]] = {}
    pending, ended = None, ""
    if not path.exists():
        return results, None, ""
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if "start" in entry:
            pending, ended = entry["start"], ""
        elif "id" in entry:
            results[entry["id"]] = entry
            pending = None
        else:
            ended = next((one for one in ("finished", "again") if one in entry), ended)
    return results, pending, ended


def spent(path: Path) -> float:
    """Return the seconds of CPU that all tests of a module took so far."""
    return sum(float(one.get("seconds", 0.0)) for one in read(path)[0].values())


def run_module(
    module: str,
    mode: str,
    output: Path,
    seconds: float,
    test_seconds: float,
    only: Path | None = None,
) -> None:
    """Run one module's tests until they are done, its time is up, or nothing is left."""
    path = output / f"{module}.jsonl"
    crashes = 0
    deadline = spent(path) + seconds
    while crashes < CRASHES and (left := deadline - spent(path)) > 0.0:
        results, _, _ = read(path)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as done:
            done.write("\n".join(results))
            done.flush()
            command = [
                sys.executable,
                str(HERE / "worker.py"),
                module,
                mode,
                str(path),
                "--seconds",
                str(left),
                "--stop",
                "--test-seconds",
                str(test_seconds),
                "--done",
                done.name,
            ]
            if only is not None:
                command += ["--only", str(only)]
            code = _watch(command, path)
        results, pending, ended = read(path)
        if ended == "finished":
            return
        if ended == "again":
            continue
        if pending is None:
            raise RuntimeError(f"{module}: the process ended with {code} before any test started")
        crashes += 1
        outcome = "timeout" if code == "still" else "crash"
        with path.open("a") as file:
            entry = {"id": pending, "outcome": outcome, "detail": f"process ended: {code}"}
            file.write(json.dumps(entry) + "\n")


def environment() -> dict[str, str]:
    """Return the environment of a process that runs tests."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{HERE}",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "2",
        # Tests that Numba would run in a process of their own are run in this one.
        "SUBPROC_TEST": "1",
    }


def _watch(command: list[str], path: Path) -> str:
    log = path.with_suffix(".log").open("w")
    process = subprocess.Popen(
        command, env=environment(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    size, since = -1, time.monotonic()
    while True:
        try:
            return str(process.wait(timeout=1.0))
        except subprocess.TimeoutExpired:
            pass
        now = path.stat().st_size if path.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > STILL:
            process.kill()
            process.wait()
            return "still"


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["stock", "hermetic"])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for each module")
    parser.add_argument("--test-seconds", type=float, default=20.0, help="of CPU, for each test")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "numba-suite")
    chosen = parser.parse_intermixed_args()
    output = chosen.output / chosen.mode
    output.mkdir(parents=True, exist_ok=True)
    listed = (HERE / "modules.txt").read_text().splitlines()
    modules = chosen.modules or [one for one in listed if one and not one.startswith("#")]
    for module in modules:
        only = None
        if chosen.mode == "stock":
            results, _, _ = read(chosen.output / "hermetic" / f"{module}.jsonl")
            only = output / f"{module}.wanted"
            only.write_text("\n".join(results))
        run_module(module, chosen.mode, output, chosen.seconds, chosen.test_seconds, only)
        results, _, _ = read(output / f"{module}.jsonl")
        counts: dict[str, int] = {}
        for one in results.values():
            counts[one["outcome"]] = counts.get(one["outcome"], 0) + 1
        print(module, counts, flush=True)


if __name__ == "__main__":
    main()

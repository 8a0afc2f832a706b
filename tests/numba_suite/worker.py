"""Runs tests of ``numba.tests`` in this process, and writes what became of each.

Run by `run.py`, one process per module. Each test writes a line before it starts, so that a
crash can be blamed, and a line when it ends.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import re
import resource
import signal
import time
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY = 8 << 30


class TestTimeout(BaseException):
    """A test took longer than it may; not an `Exception`, so that no test swallows it."""


def _tests(suite: Any) -> Iterator[Any]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _tests(one)
        else:
            yield one


def sample_order(identifier: str) -> str:
    """Return a sort key that makes every prefix of the sorted tests a fair sample."""
    return hashlib.sha1(identifier.encode()).hexdigest()


class _Result(unittest.TestResult):
    """Keeps the first thing that went wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = "pass"
        self.detail = ""

    def _note(self, outcome: str, error: Any) -> None:
        if self.outcome in ("fail", "error", "timeout"):
            return
        kind, value, trace = error
        self.outcome = "timeout" if issubclass(kind, TestTimeout) else outcome
        text = "".join(traceback.format_exception_only(kind, value)).strip()
        last = traceback.extract_tb(trace)[-1] if trace is not None else None
        place = f"{Path(last.filename).name}:{last.lineno} {last.name}" if last else ""
        self.detail = f"{place}: {_plain(text)[:600]}"

    def addError(self, test: Any, err: Any) -> None:
        self._note("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._note("fail", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._note("fail" if issubclass(err[0], test.failureException) else "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        if self.outcome == "pass":
            self.outcome, self.detail = "skip", reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.outcome = "xfail"

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.outcome = "xpass"


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _expired(signum: int, frame: Any) -> None:
    raise TestTimeout("the test took too long")


def main() -> None:
    """Run the tests of a module that are not done yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("mode", choices=["stock", "hermetic"])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for the module")
    parser.add_argument("--test-seconds", type=float, default=40.0, help="of CPU")
    parser.add_argument(
        "--stop", action="store_true", help="after a failure, which may leave things behind"
    )
    parser.add_argument("--done", type=Path, help="file with identifiers not to run again")
    parser.add_argument("--only", type=Path, help="file with identifiers to run")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    substitute = None
    if chosen.mode == "hermetic":
        import substitute  # type: ignore[no-redef]

        substitute.install()
    names = [f"numba.tests.{chosen.module}"]
    if chosen.only:
        names = chosen.only.read_text().split()
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    found = {one.id(): one for one in _tests(suite)}
    done = set(chosen.done.read_text().split()) if chosen.done else set()
    wanted = sorted(found, key=sample_order)
    signal.signal(signal.SIGPROF, _expired)
    deadline = time.process_time() + chosen.seconds
    with chosen.output.open("a", buffering=1) as output:

        def write(**entry: Any) -> None:
            output.write(json.dumps(entry) + "\n")

        write(module=chosen.module, total=len(found))
        for identifier in wanted:
            if identifier in done:
                continue
            if time.process_time() > deadline:
                break
            write(start=identifier)
            result = _Result()
            compiled = substitute.hermetic_compiles if substitute else 0
            stock = dict(substitute.stock_compiles) if substitute else {}
            refused = len(substitute.refusals) if substitute else 0
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, chosen.test_seconds)
            try:
                unittest.TestSuite([found[identifier]]).run(result)
            except TestTimeout:
                result.outcome = "timeout"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            entry: dict[str, Any] = {
                "id": identifier,
                "outcome": result.outcome,
                "detail": result.detail,
                "seconds": round(time.process_time() - began, 2),
            }
            if substitute:
                entry["hermetic"] = substitute.hermetic_compiles - compiled
                entry["stock"] = {
                    k: v - stock.get(k, 0)
                    for k, v in substitute.stock_compiles.items()
                    if v != stock.get(k, 0)
                }
                entry["refused"] = substitute.refusals[refused:]
            write(**entry)
            found[identifier] = None
            if result.outcome in ("fail", "error", "timeout"):
                if chosen.stop:
                    write(again=True)
                    return
                gc.collect()
        write(finished=True, cpu=round(time.process_time(), 1))


if __name__ == "__main__":
    main()

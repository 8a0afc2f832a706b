"""Runs workers: one process for each question, with a time limit, and what became of it.

Knows processes and the events of `worker`; nothing of Numba.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from alloccheck.errors import UsageError

Mode = Literal["stock", "hermetic", "python"]
Ending = Literal["finished", "crash", "timeout", "unusable", "broken"]


@dataclass(frozen=True)
class Question:
    """What every worker of one command is asked about.

    Parameters
    ----------
    place, function, signature : str
        The target: a module or file, a dotted name in it, and Numba's signature.
    arguments : tuple of str
        Expressions for sample arguments; empty to have them generated.
    path : tuple of str
        Directories that modules are imported from.
    timeout : float
        Seconds for one process.
    """

    place: str
    function: str
    signature: str
    arguments: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    timeout: float = 60.0


@dataclass(frozen=True)
class Observation:
    """What one process told, and how it ended.

    Parameters
    ----------
    ending : {"finished", "crash", "timeout", "unusable", "broken"}
        ``"unusable"``: module, signature or sample arguments are wrong; ``"broken"``: the worker
        itself failed, so nothing is known.
    detail : str
        The signal's name, or a message.
    events : tuple of mapping
        As they were told.
    """

    ending: Ending
    detail: str = ""
    events: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    def first(self, event: str) -> Mapping[str, Any] | None:
        """Return the first event of a name, or None."""
        return next((one for one in self.events if one["event"] == event), None)

    def all(self, event: str) -> list[Mapping[str, Any]]:
        """Return all events of a name."""
        return [one for one in self.events if one["event"] == event]


def observe(
    question: Question,
    mode: Mode,
    *,
    steps: Sequence[Mapping[str, Any]] = (),
    skip: Sequence[int] = (),
    disk_cache: Path | None = None,
) -> Observation:
    """Ask one worker.

    Parameters
    ----------
    question : Question
    mode : {"stock", "hermetic", "python"}
        Which compiler, or the interpreter.
    steps : sequence of mapping
        The history that comes first.
    skip : sequence of int
        Samples that are not to be run.
    disk_cache : Path, optional
        A directory to keep between processes; otherwise each has an empty one of its own.
    """
    with tempfile.TemporaryDirectory(prefix="alloccheck-order-") as name:
        directory = Path(name)
        events = directory / "events"
        request = {
            "mode": mode,
            "place": question.place,
            "function": question.function,
            "signature": question.signature,
            "arguments": list(question.arguments),
            "path": list(question.path),
            "steps": list(steps),
            "skip": list(skip),
            "disk_cache": disk_cache is not None,
            "events": str(events),
        }
        environment = {
            **os.environ,
            # The user's own cache is neither read nor written.
            "NUMBA_CACHE_DIR": str(disk_cache or directory / "cache"),
            "NUMBA_NRT_STATS": "1",
            "NUMBA_DISABLE_JIT": "1" if mode == "python" else "0",
            "PYTHONHASHSEED": "0",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "alloccheck.order.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
        )
        try:
            _, said = process.communicate(json.dumps(request), timeout=question.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Observation("timeout", f"{question.timeout:g} s", _read(events))
        told = _read(events)
    return _ended(process.returncode, said, told)


def _ended(code: int, said: str, told: tuple[Mapping[str, Any], ...]) -> Observation:
    unusable = next((one for one in told if one["event"] == "unusable"), None)
    if unusable is not None:
        kind, message = unusable["type"], unusable["message"]
        # Our own errors are whole sentences; others need their type to be understood.
        ours = kind == UsageError.__name__
        return Observation("unusable", message if ours else f"{kind}: {message}", told)
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return Observation("crash", name, told)
    if told and told[-1]["event"] in ("done", "error"):
        return Observation("finished", "", told)
    if any(one["event"] == "error" for one in told):
        return Observation("finished", "", told)
    lines = [line for line in said.splitlines() if line.strip()]
    return Observation("broken", lines[-1] if lines else f"exit code {code}", told)


def _read(path: Path) -> tuple[Mapping[str, Any], ...]:
    if not path.exists():
        return ()
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break  # the process died while it wrote
    return tuple(found)

"""Follows the program's other Python processes: each records for itself and is judged at its end.

The program's environment names a folder. A process that imports Numba records (`follow/`), and
when it ends leaves a copy of itself behind, which analyses what it compiled and writes the rows
into the folder; so neither it nor its parent waits. Knows files and processes; nothing of tables.

Files of process N: ``N.compiled`` (Numba compiled something), ``N.copy`` (the copy's process id),
``N.rows`` (the rows, when they are all there), ``N.unseen`` (why it could not be followed).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alloccheck.audit import program, workers
from alloccheck.audit.judge import Callees, Row, as_compiled, as_found, judge, unjudged
from alloccheck.audit.letters import Letters

if TYPE_CHECKING:
    from alloccheck.analysis.contracts import Contract
    from alloccheck.compile.overloads import Choices
    from alloccheck.compile.recording import Compiled
    from alloccheck.effects import Guarantee

VARIABLE = "ALLOCCHECK_AUDIT"
"""Environment variable that names the folder."""

_FOLLOW = str(Path(__file__).with_name("follow"))
_AFTER_PROGRAM = 10.0
"""Seconds for a process to say that its copy has begun, once the program has ended."""


@dataclass(frozen=True)
class Question:
    """How functions are judged.

    Parameters
    ----------
    guarantee, contracts, first_call
        As `judge` takes them.
    only : tuple of str
        Modules and packages whose functions are analysed; empty: all.
    timeout : float
        Seconds for one analysis.
    """

    guarantee: Guarantee
    contracts: tuple[Contract, ...]
    first_call: str
    only: tuple[str, ...]
    timeout: float

    def pool(
        self, processes: int, choices: Callable[[], Choices | None]
    ) -> workers.Pool[Compiled, Row]:
        """Return what answers it for many functions.

        Parameters
        ----------
        processes : int
            How many at once.
        choices : callable
            Gives what looks at choosers of overloads.
        """

        def answer(one: Compiled) -> Row:
            return as_found(
                one, judge(one, self.guarantee, self.contracts, self.first_call, choices())
            )

        return workers.Pool(
            answer,
            unjudged,
            processes=processes,
            timeout=self.timeout,
            letters=Letters(),
        )

    def wants(self, one: Compiled) -> bool:
        """Tell whether a function is to be judged.

        Parameters
        ----------
        one : Compiled
            The record.
        """
        module = f"{one.function.__module__}."
        return not self.only or any(module.startswith(f"{name}.") for name in self.only)


# --- in the audit's own process -------------------------------------------------------------------


class Children:
    """Collects what other processes of the program tell.

    Parameters
    ----------
    question : Question
        Passed on to them.

    Attributes
    ----------
    rows : list of Row
        Of all of them, once collected.
    processes : int
        How many compiled something.
    problems : list of str
        Which ended without telling what they compiled.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._folder = Path()
        self.rows: list[Row] = []
        self.processes = 0
        self.problems: list[str] = []

    @contextlib.contextmanager
    def followed(self, recorder: program.Late) -> Iterator[Teller]:
        """Follow the processes that are started in the block; `collect` is to be called later.

        Parameters
        ----------
        recorder : Late
            Of this process; what forked ones record begins with what it has.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="alloccheck-audit-"))
        before = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
        path = os.environ.get("PYTHONPATH")
        try:
            with (self._folder / "question").open("wb") as file:
                pickle.dump(self._question, file)
            os.environ[VARIABLE] = str(self._folder)
            os.environ["PYTHONPATH"] = os.pathsep.join([_FOLLOW, *([path] if path else [])])
            teller = Teller(self._folder, self._question, recorder, forks_only=True)
            try:
                yield teller
            finally:
                teller.over = True
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def collect(self) -> None:
        """Wait for the other processes' rows, and take them in."""
        try:
            self._collect()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _collect(self) -> None:
        self.problems += [
            f"another process could not be followed: {file.read_text()}"
            for file in sorted(self._folder.glob("*.unseen"))
        ]
        deadline = time.monotonic() + _AFTER_PROGRAM
        waiting = {file.stem for file in self._folder.glob("*.compiled")}
        while waiting:
            for pid in sorted(waiting):
                rows = self._folder / f"{pid}.rows"
                if rows.exists():
                    found = pickle.loads(rows.read_bytes())
                    self.rows += found
                    self.processes += bool(found)
                    waiting.remove(pid)
                elif not self._may_still_come(pid, deadline):
                    waiting.remove(pid)
                    self.problems.append(
                        f"process {pid} of the program compiled functions with Numba and ended "
                        "without telling which: they were not judged"
                    )
            time.sleep(0.02)

    def _may_still_come(self, pid: str, deadline: float) -> bool:
        copy = self._folder / f"{pid}.copy"
        if not copy.exists():
            return time.monotonic() < deadline or workers.runs(int(pid))
        return workers.runs(int(copy.read_text())) or (self._folder / f"{pid}.rows").exists()


# --- in the other processes -----------------------------------------------------------------------


def begin(folder: str) -> None:
    """Record in this process from now on, and tell at its end; Numba is not imported yet.

    Parameters
    ----------
    folder : str
        Where to tell.
    """
    with (Path(folder) / "question").open("rb") as file:
        question: Question = pickle.load(file)
    recorder = program.record_from_now()
    teller = Teller(Path(folder), question, recorder)
    recorder.compiled_one = lambda compiled, outermost: teller.compiled(compiled)


class Teller:
    """Leaves a copy of its process behind that tells what was compiled.

    Parameters
    ----------
    folder : Path
        Where to tell.
    question : Question
        What is asked.
    recorder : Late
        Has all that was recorded in this process and those that it was forked from.
    forks_only : bool
        This process itself has another way to tell.
    """

    def __init__(
        self,
        folder: Path,
        question: Question,
        recorder: program.Late,
        *,
        forks_only: bool = False,
    ) -> None:
        self._folder, self._question, self._recorder = folder, question, recorder
        self._pid = os.getpid()
        self._of_parent = 0
        self._silent = forks_only
        self._marked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        self.over = False
        """Set when nobody listens any more."""

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that the teller was made in."""
        return not self._silent

    def _forked(self) -> None:
        """Leave to the parent what it compiled: this is a new process, or a copy that tells."""
        if self.over:
            return
        self._pid = os.getpid()
        self._of_parent = len(self._recorder.compiled)
        self._silent = self._marked = False

    def compiled(self, compiled: Sequence[Compiled]) -> None:
        """Leave a mark that there is something to tell.

        Parameters
        ----------
        compiled : sequence of Compiled
            All that was recorded so far.
        """
        if self._silent or self._marked or len(compiled) <= self._of_parent:
            return
        self._marked = True
        self._file("compiled").touch()
        # Now, so that it comes before the exit handlers of Numba, which end its run time.
        atexit.register(self.tell)
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            # Its processes end without the interpreter's exit handlers.
            multiprocessing.Finalize(None, self.tell, exitpriority=0)

    def tell(self) -> None:
        """Analyse in a copy of this process; returns at once."""
        if self.over or not self._marked:
            return
        self.over = True
        items = [
            one for one in self._recorder.compiled[self._of_parent :] if self._question.wants(one)
        ]
        workers.leave_behind(
            lambda: self._write(items), lambda pid: self._put("copy", str(pid).encode())
        )

    def _write(self, items: Sequence[Compiled]) -> None:
        pool = self._question.pool(1, lambda: self._recorder.choices)
        pool.add(items)
        rows = pool.finish()
        callees = Callees(self._recorder.compiled, self._recorder.choices)
        told = [as_compiled(one, row, callees) for one, row in zip(pool.items, rows, strict=True)]
        self._put("rows", pickle.dumps(told))

    def _file(self, what: str) -> Path:
        return self._folder / f"{self._pid}.{what}"

    def _put(self, what: str, content: bytes) -> None:
        part = self._folder / f"{self._pid}.{what}-part"
        part.write_bytes(content)
        part.replace(self._file(what))

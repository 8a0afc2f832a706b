"""Analyses records in copies of this process, also while the program that made them still runs.

A copy takes the items that nobody has taken, of those that were there when it was made, and
writes its answers to a file. So the program never waits for one, and one that crashes or hangs
costs a single answer. Copies are nobody's children: a program that waits for its own children
never meets them. Where processes cannot be copied, the work is done here. Knows pipes and signals;
the analysis is a parameter.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

ENOUGH = 4
"""Items that must wait before a copy is made while the program runs: making one costs time."""

_MOST = 1 << 24
_FRAME = struct.Struct("!qq")
_COLLECT_EVERY = 32


def each(
    items: Sequence[_Item],
    answer: Callable[[_Item], _Answer],
    lost: Callable[[_Item, str], _Answer],
    *,
    processes: int,
    timeout: float,
) -> list[_Answer]:
    """Return an answer for each item, in their order.

    Parameters
    ----------
    items, answer, lost, processes, timeout
        See `Pool`.

    Examples
    --------
    >>> each([1, 2], lambda n: n * n, lambda n, why: 0, processes=2, timeout=60.0)
    [1, 4]
    """
    pool = Pool(answer, lost, processes=processes, timeout=timeout)
    pool.items.extend(items)
    return pool.finish()


class Pool(Generic[_Item, _Answer]):
    """Answers items in copies of this process.

    Parameters
    ----------
    answer : callable
        From an item to an answer that can be pickled, and is not None; runs in a copy.
    lost : callable
        From an item and a sentence to the answer when the copy gave none; runs here.
    processes : int
        How many copies at once, all told; while the program runs, one fewer. 0: do all here.
    timeout : float
        Seconds for one item.

    Attributes
    ----------
    items : list
        Only ever added to.
    """

    def __init__(
        self,
        answer: Callable[[_Item], _Answer],
        lost: Callable[[_Item, str], _Answer],
        *,
        processes: int,
        timeout: float,
    ) -> None:
        self.items: list[_Item] = []
        self._answer, self._lost = answer, lost
        self._processes = processes if hasattr(os, "fork") else 0
        self._timeout = timeout
        self._taken = mmap.mmap(-1, _MOST)
        self._answers: dict[int, _Answer] = {}
        self._copies: list[_Copy] = []

    def offer(self) -> None:
        """Begin to answer, if enough items wait and there is room; returns at once.

        To be called while nobody else holds Numba's compiler lock.
        """
        self._sweep()
        room = self._processes - 1 - len(self._copies)
        if room > 0 and len(self._waiting()) >= ENOUGH:
            self._copies.append(_Copy(self._work, early=True))

    def finish(self) -> list[_Answer]:
        """Answer everything that is left, and return all answers in the order of the items."""
        if self._processes < 1:
            return [self._answer(one) for one in self.items]
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()
        try:
            while len(self._answers) < len(self.items):
                # A copy made while the program ran does not know what came after; it goes on
                # with what it knows, beside the others.
                waiting = len(self._waiting())
                while len(self._copies) < self._processes and waiting > 0:
                    begin = len(self.items) * len(self._copies) // self._processes
                    work = functools.partial(self._work, begin=begin)
                    self._copies.append(_Copy(work, early=False))
                    waiting -= 1
                self._rest()
                self._sweep()
                if not self._copies:
                    # One that was killed between taking an item and saying so answers it no more.
                    for number in range(len(self.items)):
                        self._taken[number] = number in self._answers
        finally:
            gc.unfreeze()
            for copy in self._copies:
                copy.kill()
        return [self._answers[number] for number in range(len(self.items))]

    def _waiting(self) -> list[int]:
        return [n for n in range(len(self.items)) if not self._taken[n]]

    def _rest(self) -> None:
        ends = [copy.pipe for copy in self._copies]
        if ends:
            select.select(ends, [], [], 0.1)

    def _sweep(self) -> None:
        """Take in what the copies have written, and see to those that ended or hang."""
        for copy in list(self._copies):
            self._answers.update(copy.read())
            if copy.has_ended():
                self._answers.update(copy.read())
                self._copies.remove(copy)
                if copy.current is not None and copy.current not in self._answers:
                    self._lose(copy, f"the analysis {copy.ending()}; please report it")
            elif copy.late(self._timeout):
                copy.kill()
                self._copies.remove(copy)
                self._lose(copy, f"the analysis took longer than {self._timeout:g} s")

    def _lose(self, copy: _Copy, reason: str) -> None:
        number = copy.current
        assert number is not None
        if copy.early:
            # It may have been copied at a bad moment of the program's: once more, afterwards.
            self._taken[number] = 0
            return
        self._answers[number] = self._lost(self.items[number], reason)

    def _work(self, copy: _Copy, begin: int = 0) -> None:
        """Run in a copy: take and answer, until nothing is left that this copy knows.

        Each begins elsewhere: what neighbours have in common, a copy need do only once.
        """
        gc.disable()
        done = 0
        numbered = list(enumerate(self.items))
        for number, item in [*numbered[begin:], *numbered[:begin]]:
            # Two may take the same one: then it is answered twice, the same.
            if self._taken[number]:
                continue
            self._taken[number] = 1
            copy.write(number, None)
            copy.write(number, self._answer(item))
            done += 1
            if done % _COLLECT_EVERY == 0:
                gc.collect()


def leave_behind(work: Callable[[], None], begun: Callable[[int], None]) -> None:
    """Leave a copy of this process behind that works and ends; return at once.

    It is nobody's child, holds none of this process's files open, and prints nothing.

    Parameters
    ----------
    work : callable
        Runs in the copy.
    begun : callable
        Called with the copy's process id before this returns, in another process.
    """
    lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
    with lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        copy = os.fork()
        if copy:
            begun(copy)
            return
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        work()
    finally:
        os._exit(0)


class _Copy:
    """A copy of this process that works and ends.

    Its parent is a copy, too, which tells how it ended; and that one's has ended already.
    """

    def __init__(self, work: Callable[[_Copy], None], *, early: bool) -> None:
        self.early = early
        self.current: int | None = None
        self._since = time.monotonic()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._position = 0
        self._said = b""
        self.pipe, theirs = os.pipe()
        lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
        with lock, warnings.catch_warnings():
            # Python warns of other threads, which the copy does not have; none can hold the one
            # lock that it needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            first = os.fork()
        if not first:
            try:
                os.close(self.pipe)
                if os.fork() == 0:
                    self._watch(work, theirs)
            finally:
                os._exit(0)
        os.close(theirs)
        os.waitpid(first, 0)
        self._pid = int(self._line())

    # --- in the copies ----------------------------------------------------------------------------

    def _watch(self, work: Callable[[_Copy], None], pipe: int) -> None:
        """Start the worker, say who it is, wait for it, and say how it ended."""
        worker = os.fork()
        if not worker:
            os.close(pipe)
            self._run(work)
        os.write(pipe, f"{worker}\n".encode())
        _, status = os.waitpid(worker, 0)
        os.write(pipe, f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _run(self, work: Callable[[_Copy], None]) -> None:
        code = 1
        try:
            # What the program was about to print must not be printed twice.
            os.dup2(2, 1)
            sys.stdout = sys.stderr
            for one in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                signal.signal(one, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            work(self)
            code = 0
        except BaseException as error:
            with contextlib.suppress(Exception):
                print(f"audit worker: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            # Not the program's own exit handlers: they belong to the program.
            os._exit(code)

    def write(self, number: int, answer: object) -> None:
        """Write one answer; None: begun."""
        content = b"" if answer is None else pickle.dumps(answer)
        os.write(self._file.fileno(), _FRAME.pack(number, len(content)))
        view = memoryview(content)
        while view:
            view = view[os.write(self._file.fileno(), view) :]

    # --- here -------------------------------------------------------------------------------------

    def read(self) -> dict[int, Any]:
        """Return the answers that came since the last time."""
        found = {}
        descriptor = self._file.fileno()
        while len(head := os.pread(descriptor, _FRAME.size, self._position)) == _FRAME.size:
            number, length = _FRAME.unpack(head)
            content = os.pread(descriptor, length, self._position + _FRAME.size)
            if len(content) < length:
                break
            self._position += _FRAME.size + length
            self.current = number
            self._since = time.monotonic()
            if length:
                found[number] = pickle.loads(content)
                self.current = None
        return found

    def late(self, timeout: float) -> bool:
        """Tell whether the present item takes too long."""
        return self.current is not None and time.monotonic() - self._since > timeout

    def has_ended(self) -> bool:
        """Tell whether it has ended, without waiting."""
        while select.select([self.pipe], [], [], 0)[0]:
            said = os.read(self.pipe, 64)
            if not said:
                return True
            self._said += said
        return False

    def ending(self) -> str:
        """Say how it ended."""
        try:
            code = int(self._said)
        except ValueError:
            return "ended without a word"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"crashed by {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed by signal {-code}"

    def kill(self) -> None:
        """End it without waiting for what it does."""
        if not self.has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            one = os.read(self.pipe, 1)
            if not one:
                raise RuntimeError("a copy of this process ended before it began")
            line += one
        return line

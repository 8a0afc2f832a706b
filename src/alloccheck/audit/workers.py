"""Analyses records in copies of this process, also while the program that made them still runs.

A copy takes the items that nobody has taken, and writes its answers to a file. So the program never
waits for one, and one that crashes or hangs costs a single answer. One made while the program runs
is told of later items by letters, as far as they can be told. Copies are nobody's children: a
program that waits for its own children never meets them. Where processes cannot be copied, the work
is done here. Knows pipes and signals; the analysis and the letters are parameters.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

ENOUGH = 4
"""Items that must wait before one more copy is made beside others: making one costs time."""

_MOST = 1 << 24
_FRAME = struct.Struct("!qq")
_WORD = struct.Struct("q")
_FREE, _TAKEN, _ELSEWHERE = 0, 1, 2
"""What is known of an item; the last: the copy that a letter told of it does not have it."""
_MANY = 12
"""Items that must wait for a copy that knows them before one that begins anew helps it out."""
_POLL = 0.02
"""Seconds between two looks for letters."""
_ROUNDS = 25
"""Looks for letters between two that ask whether the maker still runs, which costs more."""
_COLLECT_EVERY = 32


class Letters(Protocol[_Item]):
    """How a copy is told of items that came after it was made."""

    def open(self) -> None:
        """Get ready to read, in a copy."""

    def write(self, one: _Item) -> bytes | None:
        """Return a letter about an item; None when it cannot be told."""

    def read(self, letter: bytes) -> _Item | None:
        """Return the item that a letter is about, in a copy; None when it is not there."""

    def question(self, one: _Item) -> str | None:
        """Return what, in the copy as here, tells what is asked; None when nothing can."""


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
    pool.add(items)
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
    letters : Letters, optional
        How copies are told of later items; without, they know what was there when they were made.
    """

    def __init__(
        self,
        answer: Callable[[_Item], _Answer],
        lost: Callable[[_Item, str], _Answer],
        *,
        processes: int,
        timeout: float,
        letters: Letters[_Item] | None = None,
    ) -> None:
        self._items: list[_Item] = []
        self._answer, self._lost, self._letters = answer, lost, letters
        self._processes = processes if hasattr(os, "fork") else 0
        self._timeout = timeout
        self._taken = mmap.mmap(-1, _MOST)
        self._answers: dict[int, _Answer] = {}
        self._to_compare: dict[int, tuple[str, _Answer]] = {}
        self._copies: list[_Copy] = []
        self._began = False

    @property
    def items(self) -> Sequence[_Item]:
        """All items so far, in their order."""
        return self._items

    def add(self, items: Iterable[_Item]) -> None:
        """Take in more items, and tell the copies of them; returns at once.

        Parameters
        ----------
        items : iterable
            Behind those that there are.
        """
        for one in items:
            number = len(self._items)
            self._items.append(one)
            listening = [copy for copy in self._copies if copy.early and copy.is_whole]
            letter = self._letters.write(one) if self._letters and listening else None
            if letter is not None:
                for copy in listening:
                    copy.send(number, letter)
                    copy.knows.add(number)

    def begin(self) -> None:
        """Make the first copy, if there is room, before there is anything to answer.

        For one that can be told by letters. To be called as `offer` is.
        """
        if self._letters is not None and not self._began and self._processes > 1:
            self._copy_early()
        self._began = True

    def offer(self) -> None:
        """Begin to answer, if enough items wait and there is room; returns at once.

        To be called while nobody else holds Numba's compiler lock.
        """
        self._sweep()
        early = [copy for copy in self._copies if copy.early]
        if len(self._unknown_to(early)) < ENOUGH:
            return
        for copy in early:
            if copy.idle:
                # Another, made now, will know what waits.
                copy.end()
        if sum(not copy.ends for copy in self._copies) < self._processes - 1:
            self._copy_early()

    def finish(self) -> list[_Answer]:
        """Answer everything that is left, and return all answers in the order of the items."""
        if self._processes < 1:
            return [self._answer(one) for one in self._items]
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        # The program may have frozen what it has, for copies of its own.
        thaw = gc.get_freeze_count() == 0
        gc.freeze()
        try:
            while len(self._answers) < len(self._items):
                for copy in self._copies:
                    # Each time: a thread of the program may have made one just now.
                    if copy.early and not copy.ends:
                        copy.end()
                self._sweep()
                self._compare()
                room = self._processes - len(self._copies)
                numbers = self._for_new_copies()
                parts = min(room, len(numbers))
                for part in range(parts):
                    # Each begins elsewhere: what neighbours have in common, one need do only once.
                    first = len(numbers) * part // parts
                    turned = [*numbers[first:], *numbers[:first]]
                    work = functools.partial(self._work, numbers=turned)
                    try:
                        self._copies.append(_Copy(work, early=False))
                    except (OSError, RuntimeError) as error:
                        if not self._copies:
                            self._give_up(f"no copy of the process could be made: {error}")
                        break
                self._rest()
                if not self._copies:
                    self._compare()
                    # One that was killed between taking an item and saying so answers it no more.
                    for number in range(len(self._items)):
                        self._taken[number] = _TAKEN if number in self._answers else _FREE
        finally:
            if thaw:
                gc.unfreeze()
            for copy in self._copies:
                copy.kill()
                copy.close()
        return [self._answers[number] for number in range(len(self._items))]

    def _give_up(self, reason: str) -> None:
        for number, one in enumerate(self._items):
            if number not in self._answers:
                self._answers[number] = self._lost(one, reason)

    def _copy_early(self) -> None:
        numbers = self._waiting()
        copy = _Copy(functools.partial(self._work, numbers=numbers), early=True)
        copy.knows.update(numbers)
        self._copies.append(copy)

    def _waiting(self) -> list[int]:
        return [n for n in range(len(self._items)) if self._taken[n] != _TAKEN]

    def _for_new_copies(self) -> list[int]:
        """Return what waits for a copy that is made now.

        One that was made while the program ran goes on with what it knows: it has compiled what
        these functions share.
        """
        early = [copy for copy in self._copies if copy.early]
        others = self._unknown_to(early)
        late = sorted(set(self._waiting()).difference(others))
        if len(late) < _MANY:
            return others
        half = len(late) // 2
        return [*others, *late[half:], *late[:half]]

    def _unknown_to(self, copies: Iterable[_Copy]) -> list[int]:
        """Return what waits and that none of these copies knows."""
        known = {n for copy in copies for n in copy.knows}
        return [n for n in self._waiting() if n not in known or self._taken[n] == _ELSEWHERE]

    def _rest(self) -> None:
        ends = [copy.pipe for copy in self._copies]
        if ends:
            select.select(ends, [], [], _POLL if self._to_compare else 5 * _POLL)

    def _sweep(self) -> None:
        """Take in what the copies have written, and see to those that ended or hang."""
        for copy in list(self._copies):
            if not copy.is_whole:
                # It ends by itself; what it took is free again when the others have ended.
                self._copies.remove(copy)
                continue
            self._take(copy)
            if copy.has_ended():
                self._take(copy)
                self._copies.remove(copy)
                copy.close()
                if copy.current is None and not copy.early and not copy.answered:
                    # Others would fare no better: one item must be done with, for an end.
                    copy.current = next((n for n in self._waiting()), None)
                if copy.current is not None and copy.current not in self._answers:
                    self._lose(copy, f"the analysis {copy.ending()}; please report it")
            elif copy.late(self._timeout):
                copy.kill()
                copy.close()
                self._copies.remove(copy)
                self._lose(copy, f"the analysis took longer than {self._timeout:g} s")

    def _take(self, copy: _Copy) -> None:
        for number, (question, answer) in copy.read().items():
            if question is None:
                self._answers[number] = answer
            else:
                self._to_compare[number] = question, answer

    def _compare(self) -> None:
        """Keep the answers to letters that were understood; the others are asked once more."""
        assert self._letters is not None or not self._to_compare
        for number, (question, answer) in self._to_compare.items():
            if number in self._answers:
                continue
            if self._letters is not None and question == self._letters.question(
                self._items[number]
            ):
                self._answers[number] = answer
            else:
                self._taken[number] = _FREE
        self._to_compare.clear()

    def _lose(self, copy: _Copy, reason: str) -> None:
        number = copy.current
        if number is None:
            return
        if copy.early:
            # It may have been copied at a bad moment of the program's: once more, afterwards.
            self._taken[number] = _FREE
            return
        self._taken[number] = _TAKEN
        self._answers[number] = self._lost(self._items[number], reason)

    # --- in a copy --------------------------------------------------------------------------------

    def _work(self, copy: _Copy, numbers: Sequence[int]) -> None:
        """Take and answer these items, and those that letters tell of, until there are no more."""
        gc.disable()
        letters = self._letters if copy.early else None
        if letters is not None:
            letters.open()
        done = itertools.count(1)
        for number in numbers:
            self._do(copy, number, self._items[number], None, done)
        if letters is None:
            return
        for number, letter in copy.letters():
            one = letters.read(letter)
            question = None if one is None else letters.question(one)
            if one is not None and question is not None:
                self._do(copy, number, one, question, done)
            elif self._taken[number] == _FREE:
                self._taken[number] = _ELSEWHERE

    def _do(
        self, copy: _Copy, number: int, one: _Item, question: str | None, done: Iterator[int]
    ) -> None:
        # Two may take the same one: then it is answered twice, the same.
        if self._taken[number] == _TAKEN or copy.is_alone:
            return
        self._taken[number] = _TAKEN
        copy.write(number, None)
        answer = self._answer(one)
        if question is not None and self._letters is not None:
            # What was asked may not change while it is being answered.
            question = f"{question}{'' if self._letters.question(one) == question else ' changed'}"
        copy.write(number, (question, answer))
        if next(done) % _COLLECT_EVERY == 0:
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
        _wait(first)
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
        self.knows: set[int] = set()
        self.current: int | None = None
        self._maker = os.getpid()
        # Two words: its maker says that it is to end; it says that it waits for letters.
        self._shared = mmap.mmap(-1, 2 * _WORD.size)
        # Numbers, not file objects: see `is_whole`.
        self._letters = _temporary()
        self._sent = 0
        self._since = time.monotonic()
        self._file = _temporary()
        self._position = 0
        self.answered = False
        self._said = b""
        self.pipe, theirs = os.pipe()
        self._end_of_maker, self._life = os.pipe()
        lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
        with lock, warnings.catch_warnings():
            # Python warns of other threads, which the copy does not have; none can hold the one
            # lock that it needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            first = os.fork()
        if not first:
            try:
                self._let_go(theirs)
                if os.fork() == 0:
                    self._watch(work, theirs)
            finally:
                os._exit(0)
        os.close(theirs)
        os.close(self._end_of_maker)
        _wait(first)
        mine = (self.pipe, self._life, self._letters, self._file)
        self._mine = {one: _file_of(one) for one in mine}
        self._pid = int(self._line())

    # --- in the copies ----------------------------------------------------------------------------

    def _let_go(self, theirs: int) -> None:
        """Hold none of the program's files open, and hear none of its signals.

        Otherwise whoever waits for the end of a pipe of the program's would wait for the copy, too,
        and file objects that end here would write their buffers once more.
        """
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kept = {1, 2, theirs, self._end_of_maker, self._letters, self._file}
        nothing = os.open(os.devnull, os.O_RDWR)
        found: list[str] = []
        with contextlib.suppress(OSError):
            found = [one.name for one in Path("/dev/fd").iterdir()]
        for descriptor in map(int, found):
            if descriptor not in kept and _file_of(descriptor) is not None:
                # Its number stays in use: an object may still close it.
                try:
                    os.dup2(nothing, descriptor)
                except OSError:
                    # Above the limit that the program has set since: it is not given out again.
                    os.close(descriptor)

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
            with contextlib.suppress(OSError):
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

    def letters(self) -> Iterator[tuple[int, bytes]]:
        """Yield the letters that are sent to this copy, until it is to end.

        It ends with the process that made it, whichever way that one ends.
        """
        position = 0
        for round_ in itertools.count(1):
            over = self._word(0)
            for number, content, following in _frames(self._letters, position):
                position = following
                yield number, content
            if over:
                return
            _WORD.pack_into(self._shared, _WORD.size, 1)
            # Nothing is ever written there: it becomes readable when nobody can write any more.
            gone = select.select([self._end_of_maker], [], [], _POLL)[0]
            _WORD.pack_into(self._shared, _WORD.size, 0)
            if gone or (round_ % _ROUNDS == 0 and not runs(self._maker)):
                return

    @property
    def is_alone(self) -> bool:
        """Whether the process that made it, and that it works for, has ended."""
        return not runs(self._maker)

    def write(self, number: int, answer: object) -> None:
        """Write one answer; None: begun."""
        content = b"" if answer is None else pickle.dumps(answer)
        os.write(self._file, _FRAME.pack(number, len(content)))
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]

    # --- here -------------------------------------------------------------------------------------

    def send(self, number: int, letter: bytes) -> None:
        """Send a letter about an item."""
        frame = _FRAME.pack(number, len(letter)) + letter
        os.pwrite(self._letters, frame, self._sent)
        self._sent += len(frame)

    @property
    def is_whole(self) -> bool:
        """Whether its files are still there: a program may close all, and open others."""
        return all(_file_of(one) == was for one, was in self._mine.items())

    @property
    def idle(self) -> bool:
        """Whether it waits for letters."""
        return bool(self._word(1))

    @property
    def ends(self) -> bool:
        """Whether it was told to end."""
        return bool(self._word(0))

    def end(self) -> None:
        """Let it end when it has read all letters that were sent."""
        _WORD.pack_into(self._shared, 0, 1)
        if self.current is None:
            self._since = time.monotonic()

    def _word(self, number: int) -> int:
        found: int = _WORD.unpack_from(self._shared, number * _WORD.size)[0]
        return found

    def read(self) -> dict[int, Any]:
        """Return the answers that came since the last time."""
        found = {}
        for number, content, position in _frames(self._file, self._position):
            self._position = position
            self.current = number
            self._since = time.monotonic()
            if content:
                self.answered = True
                found[number] = pickle.loads(content)
                self.current = None
        return found

    def late(self, timeout: float) -> bool:
        """Tell whether the present item, or the end, takes too long."""
        return (self.current is not None or self.ends) and time.monotonic() - self._since > timeout

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
        if self.is_whole and not self.has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of what was shared with it."""
        for one, was in self._mine.items():
            if _file_of(one) == was:
                os.close(one)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            one = os.read(self.pipe, 1)
            if not one:
                raise RuntimeError("a copy of this process ended before it began")
            line += one
        return line


def _wait(child: int) -> None:
    """Wait for a child that ends at once; the program may have waited for all of its own."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _temporary() -> int:
    """Return the descriptor of a new file that has no name."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _file_of(descriptor: int) -> tuple[int, int] | None:
    """Tell which file a descriptor stands for; None when it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _frames(descriptor: int, position: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield what a file has behind a position: number, content, and the position behind it."""
    while len(head := os.pread(descriptor, _FRAME.size, position)) == _FRAME.size:
        number, length = _FRAME.unpack(head)
        content = os.pread(descriptor, length, position + _FRAME.size)
        if len(content) < length:
            return
        position += _FRAME.size + length
        yield number, content, position


def runs(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits to be asked about does not.

    Parameters
    ----------
    pid : int
        Of any process.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True

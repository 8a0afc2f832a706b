"""Analyses records in child processes that are copies of this one, so that none can end the audit.

A child that crashes or takes too long costs one row, which says so. Where processes cannot be
copied, the work is done here. Knows pipes and signals; the analysis is a parameter.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing.connection
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


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
    items : sequence
        What is asked about; they stay where they are.
    answer : callable
        From an item to an answer that can be pickled; runs in a child.
    lost : callable
        From an item and a sentence to the answer when the child gave none; runs here.
    processes : int
        How many children at once; 0: do all here.
    timeout : float
        Seconds for one item.

    Examples
    --------
    >>> each([1, 2], lambda n: n * n, lambda n, why: 0, processes=2, timeout=60.0)
    [1, 4]
    """
    if processes < 1 or not hasattr(os, "fork") or not items:
        return [answer(one) for one in items]
    answers: dict[int, _Answer] = {}
    waiting = iter(range(len(items)))
    children: list[_Child] = []
    with _still():
        try:
            while True:
                while len(children) < min(processes, len(items)):
                    number = next(waiting, None)
                    if number is None:
                        break
                    child = _Child(lambda n: answer(items[n]))
                    child.ask(number, timeout)
                    children.append(child)
                if not children:
                    break
                for child in _ready(children):
                    number = child.number
                    try:
                        answers[number] = child.receive()
                    except EOFError:
                        answers[number] = lost(items[number], child.ending())
                        children.remove(child)
                        continue
                    following = next(waiting, None)
                    if following is None:
                        child.end()
                        children.remove(child)
                    else:
                        child.ask(following, timeout)
                for child in [one for one in children if time.monotonic() > one.deadline]:
                    answers[child.number] = lost(
                        items[child.number], f"the analysis took longer than {timeout:g} s"
                    )
                    child.end()
                    children.remove(child)
        finally:
            for child in children:
                child.end()
    return [answers[number] for number in range(len(items))]


def _ready(children: Sequence[_Child]) -> list[_Child]:
    patience = max(0.0, min(one.deadline for one in children) - time.monotonic())
    found = multiprocessing.connection.wait([one.link for one in children], patience)
    return [one for one in children if one.link in found]


@contextlib.contextmanager
def _still() -> Iterator[None]:
    """Keep what children would inherit in a usable state: locks free, memory shared."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Child:
    """A copy of this process that answers numbers."""

    def __init__(self, answer: Callable[[int], object]) -> None:
        self.link, theirs = multiprocessing.connection.Pipe()
        self.number = -1
        self.deadline = 0.0
        lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
        with lock, warnings.catch_warnings():
            # Python warns of other threads, which the copy does not have; none can hold the one
            # lock that it needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            theirs.close()
            return
        code = 1
        try:
            self.link.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.dup2(2, 1)
            _serve(theirs, answer)
            code = 0
        except BaseException as error:
            with contextlib.suppress(Exception):
                print(f"audit worker: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            # Not the program's own exit handlers: they belong to the parent.
            sys.stderr.flush()
            os._exit(code)

    def ask(self, number: int, timeout: float) -> None:
        self.number = number
        self.deadline = time.monotonic() + timeout
        with contextlib.suppress(OSError):  # it is gone: `receive` will tell
            self.link.send(number)

    def receive(self) -> Any:
        try:
            return pickle.loads(self.link.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def ending(self) -> str:
        """Wait for the end and say how it came."""
        self.link.close()
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            try:
                return f"the analysis crashed by {signal.Signals(-code).name}; please report it"
            except ValueError:
                return f"the analysis crashed by signal {-code}; please report it"
        return f"the analysis ended with exit code {code}; please report it"

    def end(self) -> None:
        """End it without waiting for what it does."""
        self.link.close()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _serve(link: multiprocessing.connection.Connection, answer: Callable[[int], object]) -> None:
    while True:
        try:
            number = link.recv()
        except EOFError:
            return
        link.send_bytes(pickle.dumps(answer(number)))

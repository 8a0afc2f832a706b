"""The measuring process: reads requests from its socket, measures, answers.

Started by the client with the interposer preloaded: ``python -m alloccheck.oracle.worker FD``.
It knows everything of the oracle but the client.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from alloccheck.errors import UsageError
from alloccheck.oracle import encoding, transport
from alloccheck.oracle.counts import CallCounts, Remote
from alloccheck.oracle.driver import Entry, Window, align, call, drive, entry_of, fold
from alloccheck.oracle.interface import DRIVER, Interposer
from alloccheck.oracle.native import Form, flatten
from alloccheck.oracle.references import ONLY, FunctionReference, Spread, fingerprint, resolve
from alloccheck.oracle.wire import counts_to_json

_REHEARSAL = 4
"""Seconds for a call that is only tried."""

_GRACE = 10
"""Seconds after the client's own patience."""


class Worker:
    """Measures functions of this process.

    Drivers are kept: a second measurement of an overload, or one of another with the same types,
    costs the calls alone.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._interposer = Interposer()
        self.coverage = self._interposer.coverage
        self._window = Window(self._interposer.arm_address, self._interposer.disarm_address)
        self._drivers: dict[tuple[Any, ...], Any] = {}
        self._measured: dict[int, Entry] = {}
        """By address. Code that was measured stays, as do values that it may have made."""

    def measure(self, request: dict[str, Any], blobs: tuple[bytes, ...]) -> transport.Message:
        """Answer a request to count."""
        for folder in request["path"]:
            if folder not in sys.path:
                sys.path.append(folder)
        described = encoding.Encoded(request["values"], blobs)
        function, *arguments = _decoded(described)
        _check_same(function, request["fingerprint"], request["function"])
        only = request["signature"] == ONLY
        values = arguments if only else fold(function, arguments)
        entry = entry_of(function, values, request["signature"], request["entry"])
        calls = []
        for number in range(request["calls"]):
            if number and request["fresh"]:
                _, *arguments = _decoded(described)
            if not number or request["fresh"]:
                values = align(entry.argtypes, arguments) if only else fold(function, arguments)
                forms, leaves = flatten(entry.argtypes, values)
                driver = self._driver(entry, forms)
            if not number and request["rehearse"]:
                _rehearse(entry, driver, leaves, request["timeout"])
            calls.append(self._call(entry, driver, leaves))
        head, parts = counts_to_json(
            calls,
            function=request["function"],
            signature=entry.signature,
            artifact=entry.artifact,
            digest=entry.digest,
            coverage=self.coverage,
            address=entry.address,
        )
        return transport.Message(head, parts)

    def _driver(self, entry: Entry, forms: tuple[Form, ...]) -> Any:
        kind = (entry.convention, entry.restype, entry.argtypes, forms)
        driver = self._drivers.get(kind)
        if driver is None:
            driver = self._drivers[kind] = drive(entry, self._window, forms)
            (compiled,) = driver.overloads.values()
            own = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
            self._interposer.watch([(own, DRIVER)])
        known = self._measured.get(entry.address)
        if known is None or known.owner is not entry.owner:
            self._measured[entry.address] = entry
            self._interposer.watch(entry.symbols)
        return driver

    def _call(self, entry: Entry, driver: Any, leaves: Sequence[Any]) -> CallCounts:
        outcome, exception, result = "returned", None, None
        try:
            with _told_of_callbacks(entry) as told:
                result = call(driver, entry.address, leaves)
            if told:
                raise told[0]
        except Exception as error:  # whatever the measured function raises
            outcome, exception = "raised", f"{type(error).__name__}: {error}"
        _end_unless(self._process)
        window = self._interposer.read()
        return CallCounts(
            tallies=window.tallies,
            bytes=window.bytes,
            events=window.events,
            outcome=outcome,
            exception=exception,
            result=_portable(result),
            other_threads=window.other_threads,
            system_calls=window.system_calls,
            complete=window.complete,
        )


def _end_unless(process: int) -> None:
    """End a copy of the measuring process that measured code made and returned from.

    It would answer over the same socket, and its answer be taken for that of a later question.
    """
    if os.getpid() != process:
        os._exit(0)


@contextmanager
def _told_of_callbacks(entry: Entry) -> Iterator[list[BaseException]]:
    """Collect what a callback raises: its C entry can return it to nobody, so Numba prints it."""
    told: list[BaseException] = []
    if not entry.callback:
        yield told
        return

    def note(unraisable: Any) -> None:
        # Numba names its context, by a string; a finalizer's error comes with a function.
        if isinstance(unraisable.object, str) and unraisable.exc_value is not None:
            told.append(unraisable.exc_value)
        else:
            before(unraisable)

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        yield told
    finally:
        sys.unraisablehook = before


def _rehearse(entry: Entry, driver: Any, leaves: Sequence[Any], timeout: float) -> None:
    """Make the call in a copy of this process first, which may crash or not end.

    Raises
    ------
    RehearsalFailed
        When it does.
    """
    copy = os.fork()
    if not copy:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # Before the client loses patience with this process.
        signal.alarm(max(1, min(_REHEARSAL, int(timeout) - 1)))
        try:
            call(driver, entry.address, leaves)
        finally:
            os._exit(0)
    _, status = os.waitpid(copy, 0)
    if os.WIFSIGNALED(status):
        raise RehearsalFailed(signal.Signals(os.WTERMSIG(status)).name)


class RehearsalFailed(Exception):
    """A call would have crashed the process, or not ended; the message is the signal's name."""


def _decoded(described: encoding.Encoded) -> list[Any]:
    """Return the function and its arguments, made anew."""
    function, *arguments = encoding.decode(described, _make)
    if len(arguments) == 1 and isinstance(arguments[0], Spread):
        arguments = list(arguments[0].values)
    return [function, *arguments]


def _make(reference: FunctionReference, arguments: tuple[Any, ...] | None) -> Any:
    found = resolve(reference)
    return found if arguments is None else found(*arguments)


def _check_same(function: Any, expected: str | None, name: str) -> None:
    if expected is not None and fingerprint(function) != expected:
        raise UsageError(
            f"{name} is another function in the measuring process: its file has changed since it "
            "was imported, or the name was bound anew. Import it afresh, or start a new oracle."
        )


def _portable(result: Any) -> Any:
    try:
        encoding.encode([result])
    except UsageError:
        return Remote(repr(result))
    return result


def serve(link: socket.socket) -> None:
    """Answer requests until the client is gone."""
    worker = Worker()
    process = os.getpid()
    hello = dataclasses.asdict(worker.coverage)
    transport.send(link, transport.Message({"hello": hello, "pid": os.getpid()}))
    while True:
        try:
            message = transport.receive(link)
        except transport.ConnectionLost:
            return
        # The client ends a process that takes too long. Should the client be gone by then, the
        # kernel does: code that loops forever would outlive it, as no Python runs meanwhile.
        signal.alarm(int(message.head["timeout"]) + _GRACE)
        try:
            answer = worker.measure(message.head, message.blobs)
        except Exception as error:  # the client raises it again; this process goes on
            answer = transport.Message(
                {
                    "error": type(error).__name__,
                    "message": str(error),
                    "trace": traceback.format_exc(),
                }
            )
        finally:
            signal.alarm(0)
        _end_unless(process)
        transport.send(link, answer)


def main(arguments: Sequence[str]) -> None:
    """Serve the socket whose descriptor is the first argument."""
    faulthandler.enable()
    # Children of measured code need neither of these.
    os.environ.pop("LD_PRELOAD", None)
    os.environ.pop("PYTHONMALLOC", None)
    with socket.socket(fileno=int(arguments[0])) as link:
        serve(link)


if __name__ == "__main__":
    main(sys.argv[1:])

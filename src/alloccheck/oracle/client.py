"""The user's side: starts the measuring process, asks it, and starts it anew when it dies.

Knows processes and the protocol; nothing of Numba or of how counting works.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from alloccheck.errors import UsageError
from alloccheck.oracle import encoding, transport
from alloccheck.oracle.build import interposer
from alloccheck.oracle.counts import Counts, Coverage
from alloccheck.oracle.errors import (
    OracleError,
    OracleUnavailable,
    RemoteError,
    WorkerCrashed,
    WorkerTimeout,
)
from alloccheck.oracle.references import (
    FunctionReference,
    Made,
    fingerprint,
    is_loading,
    refuse_ufunc,
    wrapped_of,
)
from alloccheck.oracle.wire import counts_from_json

_OUTPUT_KEPT = 4000


class Oracle:
    """A measuring process that is started at the first question and reused for all others.

    Safe to share between threads, which then take turns; a forked process starts one of its own. A
    context manager; `close` ends it.

    Parameters
    ----------
    timeout : float
        Seconds for one measurement, compilation included.
    environment : mapping of str to str, optional
        Environment variables for the process, added to this one's.

    Examples
    --------
    Two questions, one process (``gain`` is a compiled function of a module)::

        with Oracle() as oracle:
            assert oracle.count(gain, out, x, 2.0).allocations == 0
            assert oracle.count(mix, out, x, y).allocations == 0
    """

    def __init__(
        self, *, timeout: float = 120.0, environment: Mapping[str, str] | None = None
    ) -> None:
        self._timeout = timeout
        self._environment = dict(environment or {})
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        if hasattr(os, "register_at_fork"):
            forget = weakref.WeakMethod(self._forget)
            os.register_at_fork(after_in_child=lambda: (found := forget()) and found())

    def _forget(self) -> None:
        """Leave the measuring process to the process that this one was forked from.

        Two that ask over one socket get each other's answers.
        """
        self._lock = threading.Lock()  # a thread that is not here may have held the old one
        if self._worker is not None:
            self._worker.leave()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the measuring process, if there is one."""
        with self._lock:
            if self._worker is not None:
                self._worker.end()
                self._worker = None

    def start(self) -> None:
        """Start the measuring process now rather than at the first question.

        Raises
        ------
        OracleUnavailable
            When this machine cannot measure.
        """
        with self._lock:
            self._running()

    @property
    def coverage(self) -> Coverage:
        """What can be seen on this machine; starts the process."""
        with self._lock:
            return self._running().coverage

    @property
    def pid(self) -> int:
        """The measuring process's id; starts the process."""
        with self._lock:
            return self._running().process.pid

    def count(
        self,
        function: Any,
        *arguments: Any,
        calls: int = 3,
        signature: str | None = None,
        fresh: bool = False,
        entry: Literal["numba", "c"] = "numba",
        timeout: float | None = None,
        rehearse: bool = False,
    ) -> Counts:
        """Call a function's native code some times and return what each call did.

        Parameters
        ----------
        function : dispatcher, callback, FunctionReference or Made
            A Numba or alloccheck dispatcher, or a callback (``cfunc``), that a module-level name
            leads to, the name of one, or a factory of one (`made_by`). A ufunc is refused.
        *arguments : object
            What to call it with; see `alloccheck.oracle.encoding.encode`.
        calls : int
            How often. The same argument objects serve all calls, as in a running loop.
        signature : str, optional
            Take the overload for these types instead of the arguments' own; `ONLY`: the only one
            that there is.
        fresh : bool
            Make the arguments anew for each call.
        entry : {"numba", "c"}
            Which native entry: the one that jitted callers and Python use, or the C entry of a
            checked function, which cannot tell that it raised. A callback has one for C alone,
            which both mean.
        timeout : float, optional
            Seconds, instead of the oracle's.
        rehearse : bool
            Make the first call in a copy of the measuring process before it is measured. If that
            crashes or does not end in a few seconds, a `RemoteError` of kind ``RehearsalFailed``
            names the signal, and the process stays.

        Raises
        ------
        UsageError
            When the function or an argument cannot be named or sent, or the function is a ufunc.
        OracleUnavailable
            When this machine cannot measure.
        RemoteError
            When the function does not resolve, compile or fit in the measuring process.
        WorkerCrashed
            When the call killed the process. The next question starts a new one.
        WorkerTimeout
            When it took too long.
        """
        if calls < 1:
            raise UsageError(f"calls must be at least 1, found {calls}")
        refuse_ufunc(function)
        named = isinstance(function, FunctionReference | Made)
        values = encoding.encode([function, *arguments])
        request = {
            "function": str(function) if named else _title(function),
            "fingerprint": None if named else fingerprint(function),
            "values": values.description,
            "calls": calls,
            "signature": signature,
            "fresh": fresh,
            "entry": entry,
            "path": _search_path(),
            "timeout": timeout or self._timeout,
            "rehearse": rehearse,
        }
        with self._lock:
            answer = self._ask(transport.Message(request, values.blobs), request["timeout"])
        if "error" in answer.head:
            raise RemoteError(answer.head["message"], answer.head["error"], answer.head["trace"])
        return counts_from_json(answer.head, answer.blobs)

    def _running(self) -> _Worker:
        if self._worker is None:
            if is_loading():
                # The measuring process runs the module to find a function in it; it must not end
                # up here again, and so on without end.
                raise OracleUnavailable(
                    "the measuring process imports the module that defines what it measures, and "
                    "that module measures when it is imported: put what a script does under "
                    '`if __name__ == "__main__":`'
                )
            self._worker = _Worker(self._environment, self._timeout)
        return self._worker

    def _ask(self, request: transport.Message, timeout: float) -> transport.Message:
        worker = self._running()
        try:
            return worker.ask(request, timeout)
        except BaseException as error:
            # The protocol is out of step: this process can answer nothing more.
            self._worker = None
            title = request.head["function"]
            if isinstance(error, TimeoutError):
                worker.end()
                raise WorkerTimeout(f"{title} was not measured within {timeout} s") from None
            if isinstance(error, transport.ConnectionLost):
                raise worker.crash(f"while measuring {title}") from None
            worker.end()
            raise


class _Worker:
    """One measuring process and the socket to it."""

    def __init__(self, environment: Mapping[str, str], timeout: float) -> None:
        library = interposer()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        inherited = os.environ.get("LD_PRELOAD")
        self._link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "alloccheck.oracle.worker", str(theirs.fileno())],
                env={
                    **os.environ,
                    **environment,
                    "LD_PRELOAD": f"{library}:{inherited}" if inherited else str(library),
                    "PYTHONMALLOC": "malloc",
                    "PYTHONPATH": os.pathsep.join(_search_path()),
                },
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
            )
        try:
            self._link.settimeout(timeout)
            hello = transport.receive(self._link).head
        except transport.ConnectionLost:
            raise self.crash("while starting") from None
        except TimeoutError:
            self.end()
            raise WorkerTimeout(f"The measuring process did not start within {timeout} s") from None
        self.coverage = Coverage(**hello["hello"])
        if not self.coverage.heap:
            self.end()
            raise OracleError(
                "The measuring process does not see the C library's own allocations; "
                "counts would be too low. Another allocator may be linked statically."
            )

    def ask(self, request: transport.Message, timeout: float) -> transport.Message:
        deadline = time.monotonic() + timeout
        self._link.settimeout(timeout)
        transport.send(self._link, request)
        self._link.settimeout(max(deadline - time.monotonic(), 0.001))
        return transport.receive(self._link)

    def end(self) -> None:
        """End the process without waiting for what it does."""
        self._link.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self._output.close()

    def leave(self) -> None:
        """Let go of a process that is not ours to end, nor to wait for."""
        self._link.close()
        self._output.close()
        self.process.returncode = 0

    def crash(self, when: str) -> WorkerCrashed:
        """Return the exception that tells how the process died."""
        self._link.close()
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _OUTPUT_KEPT))
        text = self._output.read().decode(errors="replace").strip()
        self._output.close()
        return WorkerCrashed(f"The measuring process {_ending(code)} {when}.", code, text)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _search_path() -> list[str]:
    return [str(Path(folder).absolute()) if folder else str(Path.cwd()) for folder in sys.path]


def _title(function: Any) -> str:
    plain = getattr(function, "py_func", None) or wrapped_of(function) or function
    return f"{getattr(plain, '__module__', '?')}:{getattr(plain, '__qualname__', function)}"

"""Runs a program in this process as Python would, while what Numba compiles is recorded.

Knows scripts, modules and console scripts; recording begins when the program imports Numba, so
that one that does not is run as it is. Knows nothing of proofs.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import io
import os
import runpy
import shlex
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import alloccheck
from alloccheck.errors import UsageError

if TYPE_CHECKING:
    from alloccheck.compile.overloads import Choices
    from alloccheck.compile.recording import Compiled


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments.

    Parameters
    ----------
    kind : {"script", "module", "entry point"}
        A file; a module as with ``python -m``; a console script of an installed package.
    name : str
        The file, the module, or the console script.
    arguments : tuple of str
        What the program finds in ``sys.argv[1:]``.
    """

    kind: str
    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = shlex.join((self.name, *self.arguments))  # so that it can be typed again
        return f"-m {words}" if self.kind == "module" else words


@dataclass(frozen=True)
class Outcome:
    """How a program ended, and what was recorded.

    Parameters
    ----------
    failure : str or None
        One sentence when it did not end well.
    compiled : tuple of Compiled
        What Numba compiled.
    faults : tuple of str
        What could not be recorded.
    """

    failure: str | None
    compiled: tuple[Compiled, ...]
    faults: tuple[str, ...] = ()


def command_of(words: Sequence[str], *, module: bool = False) -> Command:
    """Understand the words of a command line.

    Parameters
    ----------
    words : sequence of str
        A script, a console script, or ``python`` with one of its own forms; with arguments.
    module : bool
        The first word is a module's name.

    Raises
    ------
    UsageError
        When there is no such program.

    Examples
    --------
    >>> command_of(["json.tool", "x.json"], module=True)
    Command(kind='module', name='json.tool', arguments=('x.json',))
    >>> command_of(["python", "-m", "json.tool"])
    Command(kind='module', name='json.tool', arguments=())
    >>> command_of(["no-such-program"])
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: no program 'no-such-program': expected a Python file, \
-m MODULE, or the name of an installed console script
    """
    if not words:
        raise UsageError("no program given; expected a Python file, -m MODULE, or -- COMMAND")
    name, arguments = words[0], tuple(words[1:])
    if module:
        return Command("module", name, arguments)
    if Path(name).name in ("python", "python3") and arguments:
        if arguments[0] == "-m":
            return command_of(arguments[1:], module=True)
        return command_of(arguments)
    if Path(name).is_file():
        return Command("script", name, arguments)
    if _entry_point(name) is not None:
        return Command("entry point", name, arguments)
    raise UsageError(
        f"no program {name!r}: expected a Python file, -m MODULE, or the name of an installed "
        "console script"
    )


def _entry_point(name: str) -> importlib.metadata.EntryPoint | None:
    found = importlib.metadata.entry_points(group="console_scripts", name=name)
    return next(iter(found), None)


def run(command: Command, recorder: Late) -> Outcome:
    """Run a program to its end and return what was recorded.

    Parameters
    ----------
    command : Command
        The program.
    recorder : Late
        Opened when the program imports Numba, and closed when it has ended.

    Returns
    -------
    Outcome
        Whatever the program raises is written to standard error, as Python does, and becomes a
        failure; an exit code other than 0 does, too.
    """
    failure, code = None, 0
    process = os.getpid()
    before = sys.argv[:], sys.path[:]
    document = alloccheck.__doc__
    # pytest warns of plugins that were imported before it; this one has no asserts to rewrite.
    alloccheck.__doc__ = f"{document}\n\nPYTEST_DONT_REWRITE\n"
    with _recording(recorder), _exit_is_told():
        try:
            _execute(command)
        except SystemExit as end:
            failure = _exit_failure(end.code)
            code = end.code if isinstance(end.code, int) else int(failure is not None)
        except KeyboardInterrupt:
            failure, code = _INTERRUPTED, 128 + signal.SIGINT
        except BaseException as error:
            traceback.print_exc()
            code = 1
            failure = f"the program ended by {type(error).__name__}: {error}"
        try:
            _wait_for_threads()
        except KeyboardInterrupt:
            failure = failure or _INTERRUPTED
        if os.getpid() != process:
            _end_fork(code)
    alloccheck.__doc__ = document
    sys.argv[:], sys.path[:] = before
    # The program's own __main__ stays until the analysis is over: its functions live there.
    return Outcome(failure, recorder.compiled, tuple(recorder.faults))


_INTERRUPTED = "the program was interrupted"


@contextlib.contextmanager
def _exit_is_told() -> Iterator[None]:
    """Let a program that ends by ``os._exit`` not look like one in which all is proved."""
    plain, process = os._exit, os.getpid()

    def told(status: int) -> NoReturn:
        if os.getpid() == process:
            text = b"error: the program ended by os._exit: nothing that it compiled was judged\n"
            with contextlib.suppress(OSError):
                os.write(2, text)
            status = 2
        plain(status)

    os._exit = told
    try:
        yield
    finally:
        os._exit = plain


def _end_fork(code: int) -> NoReturn:
    """End a process that the program forked, as Python would: the audit is its parent's."""
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code & 0xFF)


_NO_MORE_WORK = (
    ("concurrent.futures.thread", "_shutdown"),
    ("concurrent.futures.process", "_global_shutdown"),
)
"""What executors look at before they take work."""


def _wait_for_threads() -> None:
    """Wait for the program's threads, as Python does before it ends: they are part of it.

    Threads of executors wait for work until they are told that there will be no more. Python never
    takes that back; but here the process goes on after its program, and may have executors of
    its own.
    """
    for tell in reversed(getattr(threading, "_threading_atexits", ())):
        tell()
    this = threading.current_thread()
    try:
        while others := [
            one for one in threading.enumerate() if one is not this and not one.daemon
        ]:
            for one in others:
                one.join()
    finally:
        for name, flag in _NO_MORE_WORK:
            if hasattr(module := sys.modules.get(name), flag):
                setattr(module, flag, False)


def _exit_failure(code: Any) -> str | None:
    if code is None or code == 0:
        return None
    if isinstance(code, int):
        return f"the program exited with {int(code)}"
    print(code, file=sys.stderr)
    return f"the program exited with: {code}"


def _execute(command: Command) -> None:
    sys.argv[:] = [command.name, *command.arguments]
    if command.kind == "module":
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(command.name, run_name="__main__", alter_sys=True)
        return
    if command.kind == "entry point":
        point = _entry_point(command.name)
        assert point is not None
        raise SystemExit(point.load()())
    path = Path(command.name)
    sys.path.insert(0, str(path.resolve().parent))
    with io.open_code(str(path.resolve())) as file:
        code = compile(file.read(), command.name, "exec")
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=str(path.absolute()), __builtins__=__builtins__, __cached__=None
    )
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


# --- recording begins when Numba is imported ------------------------------------------------------


class Late:
    """A recorder that opens when Numba is there.

    Parameters
    ----------
    begins : callable, optional
        Called before each outermost compile.
    compiled_one : callable, optional
        Called with all that was recorded after each compile, and whether it was outermost.
    first_call : callable, optional
        As `Recorder` takes it.
    """

    def __init__(
        self,
        begins: Callable[[], None] | None = None,
        compiled_one: Callable[[Sequence[Compiled], bool], None] | None = None,
        first_call: Callable[[Any, tuple[Any, ...]], None] | None = None,
    ) -> None:
        self._recorder: Any = None
        self.compiled_one = compiled_one
        self._begins = begins
        self._first_call = first_call

    def open(self) -> None:
        """Begin to record."""
        if self._recorder is None:
            recording: Any = importlib.import_module("alloccheck.compile.recording")
            self._recorder = recording.Recorder(
                begins=self._begins, compiled_one=self._tell, first_call=self._first_call
            )
            self._recorder.__enter__()

    def _tell(self, outermost: bool) -> None:
        if self.compiled_one is not None:
            self.compiled_one(self.compiled, outermost)

    def close(self) -> None:
        """Put Numba's methods back."""
        if self._recorder is not None:
            self._recorder.__exit__(None, None, None)

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """What was recorded, in the order in which compiling ended."""
        return () if self._recorder is None else tuple(self._recorder.compiled)

    @property
    def choices(self) -> Choices | None:
        """What choosers of overloads answered; None while Numba is not there."""
        return None if self._recorder is None else self._recorder.choices

    @property
    def faults(self) -> list[str]:
        """What went wrong in looking."""
        return [] if self._recorder is None else list(self._recorder.faults)


def record_from_now() -> Late:
    """Record until this process ends, as soon as it imports Numba."""
    late = Late()
    sys.meta_path.insert(0, _NumbaFinder(late))
    return late


def importing() -> bool:
    """Tell whether this thread is in the middle of importing a module."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _recording(late: Late) -> Iterator[None]:
    if "numba" in sys.modules:
        late.open()
        finder = None
    else:
        finder = _NumbaFinder(late)
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        late.close()
        if finder is not None and finder in sys.meta_path:
            sys.meta_path.remove(finder)


_GATE = "alloccheck.compile"
"""The floor of this package that imports Numba. The recorder needs all of it: it cannot be opened
while a module of it waits for its own ``import numba``."""


class _NumbaFinder(importlib.abc.MetaPathFinder):
    """Finds Numba, or what of ours imports it, and opens the recorder once Numba is there."""

    def __init__(self, late: Late) -> None:
        self._late = late

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec with a loader that also opens the recorder.

        To be found is not to be imported: a program may look whether Numba is there.
        """
        if fullname not in ("numba", _GATE):
            return None
        others = (getattr(one, "find_spec", None) for one in sys.meta_path if one is not self)
        specs = (find(fullname, path, target) for find in others if find is not None)
        spec: importlib.machinery.ModuleSpec | None
        spec = next((one for one in specs if one is not None), None)
        if spec is not None and spec.loader is not None:
            self._open_after(spec.loader)
        return spec

    def _open_after(self, loader: Any) -> None:
        plain = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
            plain(module)
            importlib.import_module("numba")
            self._late.open()

        loader.exec_module = exec_module

"""Runs a program once more in the measuring process, and hands out what Numba compiles there.

Imported by that process through `alloccheck.oracle.made_by`. A function is found again by name,
signature and order; its digest then tells whether it is the one that was proved. The arguments
of the program's own calls are real objects of that process: nothing needs to be sent.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from alloccheck.audit.judge import proved_again
from alloccheck.audit.program import Command, Late, run
from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError
from alloccheck.oracle import encoding
from alloccheck.oracle.references import Spread

if TYPE_CHECKING:
    from alloccheck.compile.recording import Compiled

MOST_BYTES = 1 << 26
"""Arrays of a call that hold more than this are not kept."""


@dataclass(frozen=True)
class Program:
    """What is needed to run a program again.

    Parameters
    ----------
    command : Command
        The program.
    folder : str
        The working directory.
    """

    command: Command
    folder: str

    def words(self) -> tuple[Any, ...]:
        """Return it as values that travel; `program_of` reads them."""
        one = self.command
        return self.folder, one.kind, one.name, *one.arguments


def program_of(words: Sequence[Any]) -> Program:
    """Return the program that `Program.words` described.

    Parameters
    ----------
    words : sequence of str
        From there.

    Examples
    --------
    >>> one = Program(Command("module", "json.tool", ("x.json",)), "/tmp")
    >>> program_of(one.words()) == one
    True
    """
    folder, kind, name, *arguments = words
    return Program(Command(kind, name, tuple(arguments)), folder)


def names_of(compiled: Sequence[Compiled]) -> list[str]:
    """Return a name for each function, by which another run of the program finds it again.

    Parameters
    ----------
    compiled : sequence of Compiled
        All of a run, in order: of functions that look the same, the order tells them apart.
    """
    from alloccheck.check import without_addresses

    seen: Counter[str] = Counter()
    found = []
    for one in compiled:
        kinds = ", ".join(map(str, one.argument_types))
        line = one.function.__code__.co_firstlineno
        name = without_addresses(f"{one.name}:{line} {one.kind} ({kinds})")
        seen[name] += 1
        found.append(f"{name} #{seen[name]}")
    return found


def types_of(dispatcher: Any, given: Sequence[Any]) -> list[Any]:
    """Return the types of the arguments that Numba compiles a call for.

    Parameters
    ----------
    dispatcher : Numba dispatcher
        What is called.
    given : sequence
        Arguments as a recorder's `first_call` gets them.
    """
    from numba.core import types
    from numba.core.dispatcher import OmittedArg

    return [
        types.Omitted(one.value) if isinstance(one, OmittedArg) else dispatcher.typeof_pyval(one)
        for one in given
    ]


def call_key(dispatcher: Any, kinds: Sequence[Any]) -> tuple[int, str]:
    """Return a key of a call: what is called, and types without literals or stars.

    Parameters
    ----------
    dispatcher : Numba dispatcher
        What is called.
    kinds : sequence of numba types
        Of the arguments.
    """
    from numba.core import types

    return id(dispatcher), ", ".join(
        str(types.unliteral(one)).replace("StarArg", "") for one in kinds
    )


# --- in the measuring process ---------------------------------------------------------------------


@dataclass
class Kept:
    """The arguments of one call as they were before it; made anew for each measurement.

    Arrays keep strides and overlaps. What cannot be copied is the program's own object.
    """

    encoded: encoding.Encoded
    own: dict[int, Any] = field(default_factory=dict)

    def made(self) -> list[Any]:
        """Return the arguments."""
        found = encoding.decode(self.encoded)
        for position, value in self.own.items():
            found[position] = _copied(value)
        return found


def keep(arguments: Sequence[Any]) -> Kept | None:
    """Keep a call's arguments; None when they are too large.

    Parameters
    ----------
    arguments : sequence
        Of the call.

    Examples
    --------
    >>> import numpy as np
    >>> memory = np.arange(6.0)
    >>> kept = keep([memory[::2], memory, len])
    >>> memory[:] = 0.0
    >>> part, whole, function = kept.made()
    >>> part.tolist(), part.strides, bool(np.shares_memory(part, whole)), function is len
    ([0.0, 2.0, 4.0], (16,), True, True)
    """
    plain, own = list(arguments), {}
    for position, value in enumerate(plain):
        if not _is_data(value):
            own[position], plain[position] = _copied(value), None
        elif sum(map(len, encoding.encode([value]).blobs)) > MOST_BYTES:
            return None
    return Kept(encoding.encode(plain), own)


def _is_data(value: Any) -> bool:
    """Tell whether a value is nothing but data: functions and classes are not to be looked up."""
    kind = type(value)
    if kind in (tuple, list):
        return all(map(_is_data, value))
    if isinstance(value, np.generic) or kind in (np.ndarray, np.recarray):
        return not value.dtype.hasobject
    return value is None or kind in (bool, int, float, complex, str, bytes)


def _copied(value: Any) -> Any:
    """Return a copy of what can be copied safely; anything else as it is."""
    if type(value).__module__.startswith("numba.typed") or type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, tuple):
        parts = map(_copied, value)
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


class Subject:
    """The machine code of one recorded function, in the form of a dispatcher of one overload.

    Parameters
    ----------
    function : Callable
        The Python function.
    artifact : Artifact
        What was judged.
    """

    def __init__(self, function: Any, artifact: Any) -> None:
        self.py_func = function
        self.overloads = self.artifacts = {tuple(artifact.fndesc.argtypes): artifact}

    def compile(self, signature: Any) -> Any:
        """Refuse: there is what there is."""
        raise UsageError(f"{self.py_func.__qualname__} is measured as it was compiled")


_calls: dict[tuple[int, str], Kept | None] = {}


@cache
def _replayed(program: Program) -> dict[str, Compiled]:
    """Run the program, once in this process."""
    from numba.core import config

    # What is loaded from the disk cache is not compiled, and its callees are not seen.
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(dir=os.environ.get("NUMBA_CACHE_DIR"))
    config.reload_config()
    os.chdir(program.folder)
    sys.stdout = sys.stderr
    outcome = run(program.command, Late(first_call=_first_call))
    return dict(zip(names_of(outcome.compiled), outcome.compiled, strict=True))


def _first_call(dispatcher: Any, given: tuple[Any, ...]) -> None:
    """Keep the arguments of a call from Python that Numba compiles for."""
    from numba.core.dispatcher import OmittedArg

    passed = [one for one in given if not isinstance(one, OmittedArg)]
    _calls.setdefault(call_key(dispatcher, types_of(dispatcher, given)), keep(passed))


def _named(words: tuple[Any, ...], name: str) -> Compiled:
    try:
        return _replayed(program_of(words))[name]
    except KeyError:
        raise UsageError("run once more, the program did not compile it") from None


@cache
def subject(
    words: tuple[Any, ...], name: str, guarantee: str, first_call: str, digest: str
) -> Subject:
    """Return the machine code of a recorded function.

    Parameters
    ----------
    words : tuple of str
        The program.
    name : str
        From `names_of`.
    guarantee, first_call : str
        What was proved, and how process-wide lazy set-up is treated.
    digest : str
        Of the machine code that was proved.
    """
    one = _named(words, name)
    artifact, proved = proved_again(one, Guarantee(guarantee), first_call)
    if artifact.digest != digest and not proved:
        raise UsageError("run once more, the program made it other machine code, without a proof")
    return Subject(one.function, artifact)


def own_arguments(words: tuple[Any, ...], name: str) -> Spread:
    """Return the arguments of the program's own first call, made anew.

    Parameters
    ----------
    words, name
        See `subject`.
    """
    one = _named(words, name)
    kept = _calls.get(call_key(one.target, one.argument_types))
    if kept is None:
        raise UsageError("run once more, the program did not call it from Python")
    return Spread(tuple(_spread(one, kept.made())))


def _spread(one: Compiled, values: list[Any]) -> list[Any]:
    """Return arguments as they are written in a call: starred ones one by one."""
    kinds = one.argument_types
    if kinds and type(kinds[-1]).__name__.startswith("StarArg") and values:
        return [*values[:-1], *values[-1]]
    return values

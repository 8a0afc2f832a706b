"""What choosers of overloads chose: for the program, and for the compiles that check it.

A chooser is Python code that runs while Numba types a call, and may look at anything: at objects
that change, at files, at its own earlier answers. What it looked at need not be known to tell
whether a check speaks of what runs. What it answered is known, both times.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import types as python_types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from alloccheck.compile import isolation, numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.captures import MISSING, compiled_in
from alloccheck.compile.origin import (
    attribute,
    is_a,
    is_foreign,
    is_of_libraries,
    is_trusted_module,
)
from alloccheck.compile.provenance import code_digest, value_digest

# isort: split
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np.ufunc.dufunc import DUFunc

Asked = tuple[str, str]
"""A chooser and the types that it was asked about, as text."""

NOTHING, FAILED = "nothing", "failed"
"""Answers that are no implementation."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What choosers had answered in one process when a function had been checked there.

    Parameters
    ----------
    answers : mapping of (str, str) to frozenset of (str or None)
        All answers so far, as digests; None for one that has none.
    changed : str or None
        What choosers may look at and was another thing than when Numba compiled, in words.
    """

    answers: Mapping[Asked, frozenset[str | None]]
    changed: str | None = None


class Choices:
    """Notes the answers of choosers that others than Numba wrote, while it looks.

    Examples
    --------
    >>> from numba import njit
    >>> from numba.extending import overload
    >>> example = {"__name__": "example", "overload": overload}
    >>> exec('''def bent(x):
    ...     raise NotImplementedError
    ... @overload(bent)
    ... def choose(x):
    ...     return lambda x: x + 1''', example)
    >>> bent, choices = example["bent"], Choices()
    >>> with choices.seen():
    ...     njit(lambda x: bent(x))(1)
    2
    >>> [types for chooser, types in choices.program]
    ['int64']
    """

    def __init__(self) -> None:
        self.program: dict[Asked, set[str | None]] = {}
        """Answers to Numba's questions on behalf of the program."""
        self.checks: dict[Asked, set[str | None]] = {}
        """Answers to the questions of compiles that check something."""
        self._depth = 0

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        """Look at all answers in the block, on all threads."""
        self.open()
        try:
            yield
        finally:
            self.close()

    def open(self) -> None:
        """Begin to look; may be called again before it is closed."""
        self._depth += 1
        if self._depth > 1:
            return
        plain = _OverloadFunctionTemplate.__dict__["_get_impl"]
        note = self._note

        @functools.wraps(plain)
        def seen(self_: Any, args: Any, kws: Any) -> Any:
            try:
                answer = plain(self_, args, kws)
            except Exception:
                note(self_, args, kws, FAILED)
                raise
            note(self_, args, kws, answer[0])
            return answer

        self._plain, self._seen = plain, seen
        _OverloadFunctionTemplate._get_impl = seen

    def close(self) -> None:
        """Look no more."""
        self._depth -= 1
        # Not over what somebody else has put there since.
        if not self._depth and _OverloadFunctionTemplate.__dict__["_get_impl"] is self._seen:
            _OverloadFunctionTemplate._get_impl = self._plain

    def _note(self, template: Any, args: Any, kws: Any, answer: Any) -> None:
        chooser = template._overload_func
        if not is_a(chooser, python_types.FunctionType) or not is_foreign(chooser):
            return
        of_check = isolation.current_world() is not None
        told: str | None = None
        try:
            asked = _asked(chooser, args, kws)
            told = self._told(answer)
        except Exception:
            # Of a type's own code: the program must not meet it, and nothing is known.
            asked = name_of(chooser), "?"
        (self.checks if of_check else self.program).setdefault(asked, set()).add(told)

    def _told(self, answer: Any) -> str | None:
        if answer is None:
            return NOTHING
        if is_a(answer, str):
            return FAILED
        # Each time: what it refers to may be another thing by now.
        return implementation_digest(answer.py_func)

    def so_far(self) -> Chosen:
        """Return what choosers have answered to checks; what a kept world holds is among it."""
        return Chosen({asked: frozenset(told) for asked, told in self.checks.items()})

    def another(self, chosen: Chosen) -> str | None:
        """Return a chooser that gave the program another answer, in words; None if none did.

        Any of them: what is chosen may call what only it refers to, and a choice that is inlined,
        or that is none, leaves no trace.

        Parameters
        ----------
        chosen : Chosen
            What was told where a function was checked.
        """
        for asked, ours in sorted(chosen.answers.items(), key=itemgetter(0)):
            theirs = self.program.get(asked)
            if theirs is None or None in theirs or None in ours:
                continue
            # Closures of one chooser cannot be told apart, and not all were asked here.
            if not ours <= theirs:
                return f"what {asked[0].partition(' ')[0]} chooses for ({asked[1]})"
        return None

    def same(self, chosen: Chosen) -> bool:
        """Tell whether the program was given each of the answers, and no others.

        Then both compiles went the same way: the first difference would be an answer.

        Parameters
        ----------
        chosen : Chosen
            What was told where the function was checked.
        """
        return all(
            len(told) == 1 and None not in told and self.program.get(asked) == set(told)
            for asked, told in chosen.answers.items()
        )


def _asked(chooser: Any, args: Any, kws: Any) -> Asked:
    named = [f"{name}={one}" for name, one in sorted(dict(kws).items())]
    return name_of(chooser), ", ".join([*map(str, args), *named])


def name_of(chooser: Any) -> str:
    """Return what the answers of a chooser are known by.

    Parameters
    ----------
    chooser : function
        Closures of one function have one name.
    """
    code = chooser.__code__
    return f"{chooser.__module__}:{chooser.__qualname__} {code.co_filename}:{code.co_firstlineno}"


def implementation_digest(function: Any) -> str | None:
    """Return a digest of a function and of all that it refers to; None where it has none.

    Parameters
    ----------
    function : function
        A Python function.

    Examples
    --------
    >>> def scaled_by(factor):
    ...     return lambda x: factor * x
    >>> implementation_digest(scaled_by(2)) == implementation_digest(scaled_by(2))
    True
    >>> implementation_digest(scaled_by(2)) == implementation_digest(scaled_by(3))
    False
    >>> implementation_digest(scaled_by(object())) is None
    True
    """
    state = hashlib.sha256()
    return state.hexdigest() if _add_function(state, function, set()) else None


def _add_function(state: Any, function: Any, met: set[int]) -> bool:
    state.update(f"function {function.__module__}:{function.__qualname__}\0".encode())
    if id(function) in met or is_of_libraries(function):
        return True
    met.add(id(function))
    state.update(code_digest(function).encode())
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for path, one in compiled_in(function):
        state.update(f"{path}\0".encode())
        values.append(one)
    return all(_add_value(state, one, met) for one in values)


def _add_value(state: Any, value: Any, met: set[int]) -> bool:
    if value is MISSING:
        state.update(b"missing\0")
        return True
    if is_a(value, Dispatcher):
        declared = () if value._can_compile else value.nopython_signatures
        state.update(f"{_settings(value)} {sorted(map(str, declared))}\0".encode())
        return _add_function(state, value.py_func, met)
    if is_a(value, DUFunc):
        state.update(f"ufunc {_settings(value._dispatcher)}\0".encode())
        return _add_function(state, value._dispatcher.py_func, met)
    if is_a(value, _Intrinsic):
        return _add_function(state, value._defn, met)
    if is_a(value, python_types.FunctionType):
        return _add_function(state, value, met)
    if is_a(value, types.Type):
        state.update(f"type {type(value).__qualname__} {value}\0".encode())
        return True
    if is_a(value, type) and not is_trusted_module(str(value.__module__)):
        fields = attribute(value, "_fields")
        state.update(f"class {value.__module__}:{value.__qualname__} {fields}\0".encode())
        # Of a named tuple its name and fields are all; methods of a jitclass may be others.
        return issubclass(value, tuple) and fields is not None
    if is_a(value, python_types.ModuleType):
        state.update(f"module {value.__name__}\0".encode())
        return True
    module, name = attribute(value, "__module__"), attribute(value, "__name__")
    if is_a(name, str) and is_trusted_module(str(module)) and _is_named(value, module, name):
        state.update(f"{module}:{name}\0".encode())
        return True
    digest = value_digest(value)
    state.update(f"value {digest}\0".encode())
    return digest is not None


def _settings(dispatcher: Any) -> str:
    return f"{sorted(dispatcher.targetoptions.items())!r} {sorted(dispatcher.locals.items())!r}"


def _is_named(value: Any, module: str, name: str) -> bool:
    """Tell whether a module has something by this name: a function behind a pointer may be any."""
    return vars(sys.modules[module]).get(name) is value

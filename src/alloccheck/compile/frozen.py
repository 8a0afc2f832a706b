"""What a function took from outside itself when Numba compiled it, to be compared with it later.

Numba freezes captured values. A judgement that comes later speaks of the code that ran only if they
are still the same.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from alloccheck.compile.captures import (
    MISSING,
    Same,
    class_fingerprint,
    compiled_in,
    fingerprint,
    names_of,
)
from alloccheck.compile.content import Content, functions_in, parts_of
from alloccheck.compile.extensions import Extensions, Registration
from alloccheck.compile.identity import imported_by
from alloccheck.compile.job import Configuration
from alloccheck.compile.origin import attribute, is_a, is_foreign, is_of_libraries
from alloccheck.compile.provenance import functions_of_type

# isort: split
from numba import objmode
from numba.core import types
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc

_MOST = 20_000
"""Containers and objects whose content is searched for functions."""

_CLASSES = types.ClassInstanceType | types.ClassType


@dataclass(frozen=True, eq=False)
class Frozen:
    """Values that functions had captured at some time.

    Parameters
    ----------
    functions : tuple of (function, tuple of (str, object))
        Functions, and for each the way to a value with a key of the value.
    inlined : frozenset of int
        Addresses of those that leave no trace in what they are compiled into: they are inlined, or
        run while Numba compiles, as what chooses an overload does.
    choosing : frozenset of int
        Addresses of those among them that only choose overloads: what they answer may be known.
    once : frozenset of int
        Addresses of those that Numba asks once and never again: what intrinsics are made by.
    classes : tuple of (type, object)
        Types of jitclasses, with keys of their methods.
    configuration : Configuration or None
        Numba's settings.

    Examples
    --------
    >>> size = 3
    >>> def area(x):
    ...     return x * size
    >>> area.__globals__["size"] = size
    >>> before = frozen_by(area)
    >>> before.changed([f"{area.__module__}:area"])
    >>> area.__globals__["size"] = 4
    >>> before.changed([f"{area.__module__}:area"]).partition(" of ")[0]
    'global size'
    """

    functions: tuple[tuple[FunctionType, tuple[tuple[str, Any], ...]], ...]
    inlined: frozenset[int] = frozenset()
    choosing: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()
    classes: tuple[tuple[Any, Any], ...] = ()
    configuration: Configuration | None = None

    def unnamed(self) -> set[str]:
        """Return names of functions that a certificate may not name, such as ufuncs' kernels."""
        return {_name(one) for one, _ in self.functions if id(one) in self.inlined}

    def changed(self, names: Container[str]) -> str | None:
        """Return what has another value by now, in words; None when nothing has.

        What only choosers of overloads looked at is left out.

        Parameters
        ----------
        names : container of str
            ``module:qualname`` of the functions that matter.
        """
        if self.configuration is not None:
            settings = self.configuration.changed_to(Configuration.current())
            if settings:
                return f"Numba's configuration ({settings[0]})"
        for kind, methods in self.classes:
            if class_fingerprint(kind) != methods:
                return (
                    f"a method of {attribute(kind, 'classname') or attribute(kind, 'class_name')}"
                )
        for function, before in self.functions:
            runs = id(function) in self.inlined
            if id(function) not in self.choosing and (runs or _name(function) in names):
                changed = _changed(function, before, runs=runs)
                if changed is not None:
                    return changed
        return None

    def changed_for(self, running: Container[int]) -> str | None:
        """Return what functions may look at and has another value by now, in words.

        Parameters
        ----------
        running : container of int
            Addresses of the functions that matter; those that do not run are left out.
        """
        for function, before in self.functions:
            if id(function) in running and id(function) in self.inlined:
                changed = _changed(function, before, runs=True)
                if changed is not None:
                    return changed
        return None


def _changed(
    function: FunctionType, before: tuple[tuple[str, Any], ...], *, runs: bool
) -> str | None:
    was, now = dict(before), dict(_values(function, runs=runs))
    for path, key in was.items():
        # What was not there cannot have been needed.
        if key is not MISSING and now.get(path, MISSING) != key:
            return f"{path} of {_name(function)}"
    for path in now.keys() - was.keys():
        # A name that meant a builtin; modules get attributes when they are first used.
        if "." not in path:
            return f"{path} of {_name(function)}"
    return None


_OF_DISPATCHERS = frozenset({"py_func", "__wrapped__"})
"""Names by which code gets at the Python function of a dispatcher."""


def _may_run_python(function: FunctionType) -> bool:
    """Whether compiled code of a function may run Python code: blocks in object mode do."""
    waiting, met = [function], set()
    while waiting:
        one = waiting.pop()
        if id(one) in met:
            continue
        met.add(id(one))
        captured = [value for _, value in _captured(one, runs=False)]
        if "objmode" in names_of(one.__code__) or any(one is objmode for one in captured):
            return True
        waiting += (value.py_func for value in captured if is_a(value, Dispatcher))
    return False


def _name(function: FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def frozen_by(function: Callable[..., Any], argument_types: Iterable[Any] = ()) -> Frozen:
    """Return what a Python function, and all that it can reach, have captured now.

    Parameters
    ----------
    function : Callable
        A Python function.
    argument_types : iterable of numba types
        What it is compiled for: some types carry functions.
    """
    reach = Reach()
    reach.add([(function, Runs.NEVER)], argument_types, list(_extensions.readable()))
    inlined = reach.inlined
    return Frozen(
        tuple(
            (one, tuple(_values(one, runs=number in inlined)))
            for number, one in reach.functions.items()
        ),
        frozenset(inlined),
        frozenset(reach.that_run(Runs.TO_CHOOSE)),
        frozenset(reach.that_run(Runs.ONCE)),
        tuple((one, class_fingerprint(one)) for one in reach.classes.values()),
        Configuration.current(),
    )


class Runs(enum.IntEnum):
    """Whether a function runs while Numba compiles; the larger, the more depends on it."""

    NEVER = 0
    TO_CHOOSE = 1
    """To choose an implementation of an overload, which can be seen."""
    TO_COMPILE = 2
    """Or leaves no trace because it is inlined."""
    ONCE = 3
    """To compile, and Numba keeps what it told, for all later compiles."""


class Reach:
    """All that a compile may lead to, by what functions capture and types carry."""

    def __init__(self) -> None:
        self.functions: dict[int, FunctionType] = {}
        self._runs: dict[int, Runs] = {}
        self.classes: dict[int, Any] = {}
        self._met: dict[int, Any] = {}
        self._types: dict[int, Any] = {}
        self._parts: dict[tuple[int, Runs], Any] = {}
        # With each whether it runs while Numba compiles, as all does that is reached from there.
        self._waiting: list[tuple[Any, Runs]] = []

    @property
    def inlined(self) -> set[int]:
        """Addresses of functions that run while Numba compiles, or are inlined."""
        return {number for number, runs in self._runs.items() if runs}

    def that_run(self, when: Runs) -> set[int]:
        """Return addresses of functions that run for one purpose.

        Parameters
        ----------
        when : Runs
        """
        return {number for number, runs in self._runs.items() if runs == when}

    def add(
        self,
        roots: Iterable[tuple[Any, Runs]],
        argument_types: Iterable[Any],
        registered: Iterable[Registration],
    ) -> None:
        """Follow what functions and types lead to.

        Parameters
        ----------
        roots : iterable of (object, Runs)
            Functions, and for each whether it runs while Numba compiles.
        argument_types : iterable of numba types
            Some carry functions.
        registered : iterable of Registration
            What others registered with Numba.
        """
        self._waiting += roots
        self._meet_types(list(argument_types))
        self._follow()
        self._registered(list(registered))

    def _follow(self) -> None:
        while self._waiting:
            self._meet(*self._waiting.pop())

    def _meet_types(self, waiting: list[Any]) -> None:
        """Meet types, what they are made of, and the functions that they carry."""
        while waiting:
            one = waiting.pop()
            if is_a(one, tuple | list):
                waiting += one
            elif is_a(one, dict):
                waiting += one.values()
            if not is_a(one, types.Type) or id(one) in self._types:
                continue
            self._types[id(one)] = one
            self._meet_class(type(one))
            self._waiting += ((part, Runs.NEVER) for part in functions_of_type(one))
            if isinstance(one, _CLASSES):
                self.classes[id(one)] = one
            if isinstance(one, types.Dispatcher):
                self._waiting.append((one.dispatcher, Runs.NEVER))
            waiting += vars(one).values()

    def _registered(self, waiting: list[Registration]) -> None:
        """Meet what others registered with Numba about what was met: it runs in every compile."""
        while True:
            later = []
            for one in waiting:
                if all(id(key) in self._met for key in one.foreign_keys):
                    choosers = set(map(id, one.choosers))
                    self._waiting += (
                        (part, Runs.TO_CHOOSE if id(part) in choosers else Runs.TO_COMPILE)
                        for part in one.functions
                    )
                    self._follow()
                else:
                    later.append(one)
            if len(later) == len(waiting):
                return
            waiting = later

    def _meet(self, value: Any, runs: Runs) -> None:
        self._meet_class(value if is_a(value, type) else type(value))
        if is_a(value, Dispatcher):
            inline = value.targetoptions.get("inline", "never")
            # What calls it while Numba compiles calls what was compiled, which looks at nothing.
            if inline != "never":
                runs = Runs.TO_COMPILE
            elif runs and not _may_run_python(value.py_func):
                runs = Runs.NEVER
            if is_a(inline, FunctionType):
                self._waiting.append((inline, Runs.TO_COMPILE))
            value = value.py_func
        elif is_a(value, _Intrinsic):
            value, runs = value._defn, Runs.ONCE
        elif is_a(value, DUFunc):
            # No certificate names kernels.
            value, runs = value._dispatcher.py_func, Runs.TO_COMPILE
        elif is_a(value, GUFunc):
            value, runs = value.gufunc_builder.py_func, Runs.TO_COMPILE
        elif is_a(value, CFunc):
            value = value._pyfunc
        elif is_a(value, tuple):
            if self._is_new(value, runs):
                self._waiting += ((one, runs) for one in value)
        elif is_a(value, types.Type):
            self._meet_types([value])
        elif isinstance(class_type := attribute(value, "class_type"), types.ClassType):
            self._meet_types([class_type, class_type.instance_type])
        elif runs:
            self._waiting += ((one, runs) for one in functions_in(value))
            if not is_a(value, FunctionType) and self._is_new(value, runs):
                self._waiting += ((one, runs) for _, one in parts_of(value))
        if is_a(value, FunctionType) and not is_of_libraries(value):
            self._function(value, runs)

    def _is_new(self, value: Any, runs: Runs) -> bool:
        """Tell whether the parts of a value are still to be met; of so many and no more."""
        if (id(value), runs) in self._parts or len(self._parts) >= _MOST:
            return False
        self._parts[id(value), runs] = value
        return True

    def _function(self, function: FunctionType, runs: Runs) -> None:
        known = self._runs.get(id(function))
        if known is not None and runs <= known:
            return
        self.functions[id(function)] = function
        self._met[id(function)] = function
        self._runs[id(function)] = runs
        captured = [value for _, value in _captured(function, runs=bool(runs))]
        self._waiting += ((value, runs) for value in captured)
        if runs:
            if not _OF_DISPATCHERS.isdisjoint(names_of(function.__code__)):
                self._waiting += ((one.py_func, runs) for one in captured if is_a(one, Dispatcher))
            self._waiting += ((value, runs) for _, value in _imported(function))

    def _meet_class(self, kind: Any) -> None:
        self._met.update((id(one), one) for one in type.mro(kind))


_extensions = Extensions()
"""Remembers what was looked at; it does not change what is found."""


def _values(function: FunctionType, *, runs: bool) -> Iterator[tuple[str, Any]]:
    """Yield what counts: what is read by its name, or through a module.

    Of a function that `runs` while Numba compiles also what is in containers and objects, its own
    attributes, and what it imports: it may look at that, and decide by what it sees.
    """
    yield "the code", Same(function.__code__)
    key = Content().key if runs else _key
    for number, one in enumerate(function.__defaults__ or ()):
        yield f"default {number}", key(one)
    for name, one in sorted((function.__kwdefaults__ or {}).items()):
        yield f"default of {name}", key(one)
    yield from ((path, key(value)) for path, value in _captured(function, runs=runs))
    if runs:
        yield from ((f"attribute .{name}", key(one)) for name, one in vars(function).items())
        yield from ((path, key(one)) for path, one in _imported(function))


def _captured(function: FunctionType, *, runs: bool) -> Iterator[tuple[str, Any]]:
    """Yield what a function captures.

    Of a function of Python's own that `runs` while Numba compiles, such as a wrapper, only what
    others gave it: its globals are the state of the process, such as the cache of ``re``.
    """
    all_globals = not runs or is_foreign(function)
    for path, value in compiled_in(function):
        if all_globals or not path.startswith("global "):
            yield path, value


def running_key(function: FunctionType) -> tuple[Any, ...]:
    """Return a key of all that a function may look at that runs while Numba compiles.

    Parameters
    ----------
    function : function
        Such as one that chooses an overload.

    Examples
    --------
    >>> def choose(x, settings={"fast": False}):
    ...     return settings["fast"]
    >>> before = running_key(choose)
    >>> choose.__defaults__[0]["fast"] = True
    >>> running_key(choose) == before
    False
    """
    return tuple(_values(function, runs=True))


def _imported(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function may read of the modules that it imports when it runs."""
    names = sorted(names_of(function.__code__)) if is_foreign(function) else ()
    for wanted in sorted(imported_by(function)):
        parts = wanted.split(".")
        for n in range(1, len(parts) + 1):
            path = ".".join(parts[:n])
            module = sys.modules.get(path)
            own = vars(module) if is_a(module, ModuleType) else {}
            yield from ((f"imported {path}.{name}", own[name]) for name in names if name in own)


def _key(value: Any) -> Any:
    if value is MISSING:
        return MISSING
    if is_a(value, tuple):
        return (type(value), *map(_key, value))
    if is_a(value, Dispatcher | list | set | dict):
        # A dispatcher gets its signatures, and is closed, after its first compile; of containers
        # nothing is frozen but which they are.
        return Same(value)
    return fingerprint(value)

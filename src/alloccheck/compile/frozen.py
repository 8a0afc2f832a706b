"""What a function took from outside itself when Numba compiled it, to be compared with it later.

Numba freezes captured values. A judgement that comes later speaks of the code that ran only if they
are still the same.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from alloccheck.compile.captures import MISSING, Same, captured_values, fingerprint
from alloccheck.compile.origin import is_a, is_of_libraries

# isort: split
from numba.core.dispatcher import Dispatcher


@dataclass(frozen=True, eq=False)
class Frozen:
    """Values that functions had captured at some time.

    Parameters
    ----------
    functions : tuple of (function, tuple of (str, object))
        Functions, and for each the way to a value with a key of the value.
    inlined : frozenset of int
        Addresses of those that leave no trace in what they are compiled into.

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

    def changed(self, names: Container[str]) -> str | None:
        """Return what has another value by now, in words; None when nothing has.

        Parameters
        ----------
        names : container of str
            ``module:qualname`` of the functions that matter.
        """
        for function, before in self.functions:
            name = f"{function.__module__}:{function.__qualname__}"
            if name not in names and id(function) not in self.inlined:
                continue
            was, now = dict(before), dict(_values(function))
            for path, key in was.items():
                # What was not there cannot have been needed.
                if key is not MISSING and now.get(path, MISSING) != key:
                    return f"{path} of {name}"
            for path in now.keys() - was.keys():
                # A name that meant a builtin; modules get attributes when they are first used.
                if "." not in path:
                    return f"{path} of {name}"
        return None


def frozen_by(function: Callable[..., Any]) -> Frozen:
    """Return what a Python function, and all that it can reach, have captured now.

    Parameters
    ----------
    function : Callable
        A Python function.
    """
    found: dict[int, tuple[FunctionType, tuple[tuple[str, Any], ...]]] = {}
    inlined: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop()
        if is_a(one, Dispatcher):
            if one.targetoptions.get("inline", "never") != "never":
                inlined.add(id(one.py_func))
            one = one.py_func
        if not is_a(one, FunctionType) or id(one) in found or is_of_libraries(one):
            continue
        found[id(one)] = (one, tuple(_values(one)))
        waiting.extend(value for _, value in captured_values(one))
    return Frozen(tuple(found.values()), frozenset(inlined))


def _values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what counts: what is read by its name, or through a module."""
    yield "the code", Same(function.__code__)
    for number, one in enumerate(function.__defaults__ or ()):
        yield f"default {number}", _key(one)
    for key, one in sorted((function.__kwdefaults__ or {}).items()):
        yield f"default of {key}", _key(one)
    read = _names_read(function.__code__)
    for path, value in captured_values(function):
        kind, _, rest = path.partition(" ")
        if kind != "global" or rest.partition(".")[0] in read:
            yield path, _key(value)


def _names_read(code: CodeType) -> set[str]:
    """Return the globals that code reads; attributes of the same name are something else."""
    found = {
        one.argval
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names_read(constant)
    return found


def _key(value: Any) -> Any:
    if value is MISSING:
        return MISSING
    if is_a(value, Dispatcher | list | set | dict):
        # A dispatcher gets its signatures, and is closed, after its first compile; of containers
        # nothing is frozen but which they are.
        return Same(value)
    return fingerprint(value)

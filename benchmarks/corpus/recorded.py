"""What a driver makes Numba compile, with the arguments of the calls from Python.

Also imported by the measuring process: there it runs the driver once, and hands out the checked
functions and copies of the arguments by name.
"""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from numba.core import types
from numba.core.dispatcher import Dispatcher, OmittedArg

from alloccheck import check_allocs
from alloccheck.audit.judge import KERNEL_OPTIONS
from alloccheck.check import without_addresses
from alloccheck.compile.job import PASSED_OPTIONS
from alloccheck.compile.recording import Compiled, Recorder
from alloccheck.compile.target import python_function


@dataclass(frozen=True)
class Recorded:
    """One compiled function, and the arguments of its first call from Python, if there was one."""

    compiled: Compiled
    arguments: tuple[Any, ...] | None


@cache
def record(package: str) -> tuple[Recorded, ...]:
    """Run a package's driver, once for each process, and return what was compiled."""
    calls: dict[tuple[int, str], tuple[Any, ...]] = {}

    def first_call(dispatcher: Any, given: tuple[Any, ...]) -> None:
        kinds = tuple(
            types.Omitted(one.default) if isinstance(one, OmittedArg) else _type(dispatcher, one)
            for one in given
        )
        passed = tuple(_copy(one) for one in given if not isinstance(one, OmittedArg))
        calls.setdefault((id(dispatcher), _key(kinds)), passed)

    # A disk cache would change the order of compiles between processes, and so the numbers.
    Dispatcher.enable_caching = _no_disk_cache
    with Recorder(first_call=first_call) as recorder:
        importlib.import_module(f"benchmarks.corpus.drive_{package}").run()
    return tuple(
        Recorded(one, calls.get((id(one.target), _key(one.argument_types))))
        for one in recorder.compiled
    )


def name_of(one: Compiled) -> str:
    """Return a name that another process finds the same function by; of twins, the first."""
    line = one.function.__code__.co_firstlineno
    return without_addresses(f"{one.name} {line} {one.kind} {one.argument_types}")


def _named(package: str, name: str) -> Recorded:
    return next(one for one in record(package) if name_of(one.compiled) == name)


def _no_disk_cache(self: Any) -> None:
    """Stand for `enable_caching`."""


def _type(dispatcher: Any, value: Any) -> Any:
    return dispatcher.typeof_pyval(value)


def _key(kinds: tuple[Any, ...]) -> str:
    return ", ".join(str(one).replace("StarArgUniTuple", "UniTuple") for one in kinds)


def _copy(value: Any) -> Any:
    if hasattr(value, "py_func"):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # a value of Numba's that cannot be copied serves all calls
        return value


@cache
def subject(package: str, name: str) -> Any:
    """Return the checked artifact of a recorded function, whatever its verdict."""
    one = _named(package, name).compiled
    options: dict[str, Any] = {}
    target = one.target
    if one.kind == "ufunc kernel":
        options = {k: v for k, v in one.options.items() if k in KERNEL_OPTIONS}
    elif one.kind == "callback":
        target = python_function(target)
    elif not one.options.keys() <= PASSED_OPTIONS | {"nopython", "cache"}:
        # An implementation of an overload, with options of Numba's own that change no code.
        target = one.function
        options = {k: v for k, v in one.options.items() if k in PASSED_OPTIONS}
    checked = check_allocs(on_failure="report", **options)(target)
    signature: Any = one.argument_types
    if one.return_type is not None:
        signature = one.return_type(*one.argument_types)
    checked.compile(signature)
    # Whatever is passed is converted to this one signature.
    checked.disable_compile()
    return checked


def argument(package: str, name: str, position: int) -> Any:
    """Return a copy of a recorded argument."""
    found = _named(package, name).arguments
    assert found is not None
    return _copy(found[position])

"""Hostile histories: what a process may have done with a program before it is checked.

Each history works on a freshly loaded case with stock Numba alone, and leaves behind what stock
Numba remembers: overloads compiled with other flags, declared result types, failures, files in a
disk cache. None may change an answer. Knows Numba and cases; nothing of the package's compiler.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import cfunc, njit, types, vectorize
from numba.core import sigutils
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.typing.templates import Signature

from harness import Case, load_case

History = Callable[[Case], None]

# What stock Numba raises when a history does not suit a program: that program then has one
# memory of failure more, which is hostile enough.
_UNSUITABLE = (NumbaError, TypeError, ValueError, NotImplementedError, AssertionError, RuntimeError)


def _attempt(action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            action()
        except _UNSUITABLE:
            return False
    return True


def argument_types(case: Case) -> tuple[Any, ...]:
    """Argument types of a case's question, in Numba's form."""
    arguments, _ = sigutils.normalize_signature(case.signature)
    return tuple(arguments)


def helpers(case: Case) -> dict[str, Dispatcher]:
    """Jitted functions of the case's module, by name, without its entry."""
    return {
        name: value
        for name, value in vars(case.module).items()
        if isinstance(value, Dispatcher) and value is not case.entry and name != "ENTRY"
    }


@functools.lru_cache(maxsize=1)
def signatures_used(path: Path) -> dict[str, list[Signature]]:
    """How each helper of a program is compiled, learnt from a copy of the program."""
    other = load_case(path)
    compile_caller(other)
    return {
        name: [overload.signature for overload in helper.overloads.values()]
        for name, helper in helpers(other).items()
    }


def compile_caller(case: Case, **flags: Any) -> bool:
    """Compile a caller of the entry with stock Numba and these flags."""
    entry = case.entry if isinstance(case.entry, Dispatcher) else njit(case.entry)
    arguments = argument_types(case)
    names = ", ".join(f"a{i}" for i in range(len(arguments)))
    caller = _function(f"lambda {names}: entry({names})", entry=entry)
    return _attempt(lambda: njit(**flags)(caller).compile(arguments))


def _function(text: str, **names: Any) -> Any:
    return eval(text, names)  # the text is ours: a lambda with the right number of arguments


# --- the histories --------------------------------------------------------------------------


def callers_with_fast_math(case: Case) -> None:
    """A caller with fastmath and NumPy's error model compiles everything first."""
    compile_caller(case, fastmath=True, error_model="numpy")


def callers_with_bounds_checks(case: Case) -> None:
    """A caller with bounds checks compiles everything first."""
    compile_caller(case, boundscheck=True)


def helpers_first_in_reverse(case: Case) -> None:
    """Helpers are compiled one by one, last one first, by callers with other flags."""
    used = signatures_used(case.path)
    for name, helper in reversed(helpers(case).items()):
        for signature in used.get(name, ()):
            names = ", ".join(f"a{i}" for i in range(len(signature.args)))
            caller = _function(f"lambda {names}: helper({names})", helper=helper)
            _attempt(lambda c=caller, s=signature: njit(error_model="numpy")(c).compile(s.args))


def declared_results(case: Case) -> None:
    """Helpers are compiled first with a declared result other than the inferred one."""
    used = signatures_used(case.path)
    for name, helper in helpers(case).items():
        for signature in used.get(name, ()):
            wider = _wider(signature.return_type)
            if wider is not None:
                _attempt(lambda h=helper, w=wider, s=signature: h.compile(w(*s.args)))


def _wider(kind: Any) -> Any:
    if isinstance(kind, types.Array) and kind.layout != "A":
        return kind.copy(layout="A")
    if isinstance(kind, types.Integer):
        return types.float64
    if kind == types.float64:
        return types.complex128
    return None


def ufuncs_and_callbacks(case: Case) -> None:
    """Helpers of numbers are first used by a ufunc and by a C callback."""
    used = signatures_used(case.path)
    for name, helper in helpers(case).items():
        for given in (signature.args for signature in used.get(name, ())):
            if not given or not all(isinstance(kind, types.Number) for kind in given):
                continue
            names = ", ".join(f"a{i}" for i in range(len(given)))
            kernel = _function(f"lambda {names}: helper({names})", helper=helper)
            _attempt(lambda k=kernel, a=given: vectorize([types.float64(*a)])(k))
            _attempt(lambda k=kernel, a=given: cfunc(types.float64(*a))(k))


def failures(case: Case) -> None:
    """The entry fails to compile for nonsense, and the failure is remembered."""
    entry = case.entry if isinstance(case.entry, Dispatcher) else njit(case.entry)
    arguments = (types.none,) * len(argument_types(case))
    _attempt(lambda: entry.compile(arguments))


HISTORIES: dict[str, History] = {
    history.__name__.replace("_", " "): history
    for history in (
        callers_with_fast_math,
        callers_with_bounds_checks,
        helpers_first_in_reverse,
        declared_results,
        ufuncs_and_callbacks,
        failures,
    )
}


def histories_for(case: Case) -> list[str]:
    """Names of the histories that a case goes through, in an order of its own.

    Every case meets a caller with other flags and a failure; those with helpers meet the rest. The
    choice and the order differ from case to case, yet not from run to run.
    """
    chance = random.Random(case.name)
    flags = chance.choice(["callers with fast math", "callers with bounds checks"])
    about_helpers = ["helpers first in reverse", "declared results", "ufuncs and callbacks"]
    names = [flags, "failures", *(about_helpers if helpers(case) else [])]
    chance.shuffle(names)
    return names


def warm_disk_cache(case: Case) -> None:
    """Every jitted function of the program, and its entry, are compiled into Numba's disk cache.

    The case must be a copy in a folder that may be written to.
    """
    functions = [*helpers(case).values()]
    entry = case.entry if isinstance(case.entry, Dispatcher) else njit(case.entry)
    for function in (*functions, entry):
        _attempt(function.enable_caching)
    arguments = argument_types(case)
    _attempt(lambda: entry.compile(arguments))

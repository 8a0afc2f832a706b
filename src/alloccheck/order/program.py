"""A program in a worker's process: its module, and the jitted functions that can be reached in it.

Each process that loads the same module finds the same functions under the same labels. Knows
Numba's dispatchers; nothing of scenarios or of how an answer is shown.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types as python_types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.ccallback import CFunc
from numba.core.registry import CPUDispatcher

from alloccheck import decorators
from alloccheck.errors import UsageError
from alloccheck.modules import load_file, module_name


def load_module(place: str) -> python_types.ModuleType:
    """Import a module by name, or a file under the name that its package gives it.

    Parameters
    ----------
    place : str
        A dotted name, or the path of a file that ends in ``.py``.

    Raises
    ------
    UsageError
        When there is no such file.
    """
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise UsageError(f"no such file: {place}")
    root, name = module_name(path)
    sys.path.insert(0, str(root))
    if "." in name or path.stem == "__init__":
        return importlib.import_module(name)
    return load_file(name, path)


def find(module: python_types.ModuleType, function: str) -> Any:
    """Return the object of a dotted name in a module.

    Raises
    ------
    UsageError
        When it is missing, or no function.
    """
    try:
        found = functools.reduce(getattr, function.split("."), module)
    except AttributeError as error:
        raise UsageError(str(error)) from None
    if isinstance(found, CPUDispatcher | CFunc | python_types.FunctionType):
        return found
    raise UsageError(
        f"{module.__name__}:{function} is of type {type(found).__name__}; expected a Python "
        "function, a function made by njit, a cfunc, or one decorated by alloccheck"
    )


def functions_of(module: python_types.ModuleType, target: Any) -> dict[str, Any]:
    """Return the jitted functions of a module, and those that its functions can reach.

    Parameters
    ----------
    module : module
        The target's module.
    target : object
        A Python function, dispatcher or callback.

    Returns
    -------
    dict
        Dispatchers by label, in the order of the module's names and then of reach.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    pending: list[Any] = [target, *vars(module).values()]
    while pending:
        value = pending.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        function = python_function(value)
        if function is None:
            continue
        if isinstance(value, CPUDispatcher):
            found[_free_label(found, function)] = value
        elif value is not target:
            continue
        pending += _named_in(function)
    return found


def share_callees(one: Any, other: Any) -> bool:
    """Whether two functions reach a jitted function in common, themselves included.

    Parameters
    ----------
    one, other : object
        Python functions, dispatchers or callbacks.
    """
    return bool(_reached(one) & _reached(other))


def _reached(start: Any) -> set[int]:
    found: set[int] = set()
    pending = [start]
    while pending:
        value = pending.pop()
        function = python_function(value)
        known = id(value) in found
        if function is None or known or not (value is start or isinstance(value, CPUDispatcher)):
            continue
        found.add(id(value))
        pending += _named_in(function)
    return found


def python_function(value: Any) -> python_types.FunctionType | None:
    """Return the Python function behind a dispatcher, callback or function; None for others."""
    function: Any = value
    if isinstance(value, CPUDispatcher):
        function = value.py_func
    elif isinstance(value, CFunc):
        function = value._pyfunc
    return function if isinstance(function, python_types.FunctionType) else None


def _free_label(taken: dict[str, Any], function: python_types.FunctionType) -> str:
    label = f"{function.__module__}:{function.__qualname__}"
    number = 2
    while label in taken:
        label = f"{function.__module__}:{function.__qualname__}#{number}"
        number += 1
    return label


def _named_in(function: python_types.FunctionType) -> Iterator[Any]:
    """Yield what a function's code names: globals, closure variables, attributes of modules."""
    codes = [function.__code__]
    names: dict[str, None] = {}
    while codes:
        code = codes.pop()
        names.update(dict.fromkeys(code.co_names))
        codes += [one for one in code.co_consts if isinstance(one, python_types.CodeType)]
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue  # a variable that is not assigned yet
    for value in values:
        if isinstance(value, python_types.ModuleType):
            for name in names:
                yield vars(value).get(name)
        elif isinstance(value, tuple | list):
            yield from value
        else:
            yield value


def use_stock_decorators() -> None:
    """Let the decorators of this package stand for ``njit`` in this process.

    The question is what stock Numba makes of the program, also when it is decorated already.
    """
    decorators._decorate = _stock


def _stock(target: Any, making: Any, methods: Any, jit_options: dict[str, Any]) -> Any:
    signatures = None if target is None else decorators._signatures(target)

    def make(function: Any) -> Any:
        if isinstance(function, CPUDispatcher):
            options = {**function.targetoptions, **jit_options}
            return njit(list(signatures or ()) or None, **options)(function.py_func)
        if isinstance(function, python_types.FunctionType):
            return njit(list(signatures or ()) or None, **jit_options)(function)
        return function

    return make if target is None or signatures is not None else make(target)

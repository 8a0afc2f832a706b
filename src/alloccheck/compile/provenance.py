"""What is compiled into an artifact besides its arguments: functions' sources, captured values.

Numba freezes globals, closure variables and module attributes when it compiles. This module names
them, digests those that have a value that can be digested, and says later which of them are no
longer what they were. Knows Python functions; nothing of machine code, proofs or reports.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import inspect
import types as python_types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.origin import attribute, is_a

# isort: split
import numba
from numba.core import types
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

_NUMBA = str(Path(numba.__file__).parent)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A Python function that was compiled into an artifact.

    Parameters
    ----------
    name : str
        ``module:qualname``.
    source_digest : str or None
        SHA-256 of its source text, where that can be read.
    code_digest : str
        SHA-256 of its bytecode, constants, names and defaults.
    function : Callable
        The function itself.
    """

    name: str
    source_digest: str | None
    code_digest: str
    function: Callable[..., Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Capture:
    """A value that a compiled function took from around it.

    Parameters
    ----------
    function : str
        ``module:qualname`` of the function that refers to it.
    name : str
        ``NAME``, ``module.NAME``, or ``closure NAME``.
    digest : str or None
        SHA-256 of the value; None where it has none and identity is all there is.
    note : str
        What it is, in words that mean the same in another process.
    value : object
        The value itself.
    owner : FunctionSource
        The function that refers to it.
    """

    function: str
    name: str
    digest: str | None
    note: str
    value: Any = field(repr=False, compare=False)
    owner: FunctionSource = field(repr=False, compare=False)


def function_source(function: Callable[..., Any]) -> FunctionSource:
    """Name a function and digest its source and bytecode.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> function_source(function_source).name
    'alloccheck.compile.provenance:function_source'
    """
    name = f"{function.__module__}:{function.__qualname__}"
    return FunctionSource(name, source_digest(function), code_digest(function), function)


def source_digest(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of a function's source text, or None where it cannot be read.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> source_digest(eval("lambda x: x")) is None
    True
    """
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def code_digest(function: Callable[..., Any]) -> str:
    """Return the SHA-256 of a function's bytecode, constants, names and defaults.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1)
    True
    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 2)
    False
    """
    state = hashlib.sha256()
    for part in _code_parts(function.__code__):
        state.update(part.encode() + b"\0")
    for one in function.__defaults__ or ():
        state.update(f"default {value_digest(one)} {describe(one)}".encode())
    return state.hexdigest()


def _code_parts(code: python_types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount))
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            yield from _code_parts(constant)
        else:
            yield f"{type(constant).__name__} {_frozen(constant)}"


def _frozen(constant: Any) -> str:
    """Return a constant as text that does not depend on hash order."""
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))
    return repr(constant)


def value_digest(value: Any) -> str | None:
    """Return the SHA-256 of a value, or None when it is not one whose value can be digested.

    Parameters
    ----------
    value : object
        Numbers, strings, bytes, None, enumeration members, arrays and tuples of these have one.

    Examples
    --------
    >>> value_digest((1, 2.0)) == value_digest((1, 2.0))
    True
    >>> value_digest(1) == value_digest(1.0), value_digest(object()) is None
    (False, True)
    """
    state = hashlib.sha256()
    return state.hexdigest() if _digest_into(state, value) else None


def _digest_into(state: Any, value: Any) -> bool:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if is_a(value, enum.Enum):
        state.update(f"{kind}.{value.name}=".encode())
        return _digest_into(state, value.value)
    if is_a(value, np.ndarray):
        if value.dtype.hasobject:
            return False
        state.update(f"array {value.dtype.descr} {value.shape} {value.strides}\0".encode())
        state.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
        return True
    if is_a(value, np.generic):
        if value.dtype.hasobject:
            return False
        state.update(f"scalar {value.dtype.descr}\0".encode() + value.tobytes())
        return True
    if is_a(value, np.dtype):
        state.update(f"dtype {value.descr if value.names else value.str}".encode())
        return True
    if type(value) in (bool, int, float, complex, str, bytes, type(None), type(...), slice):
        text = value.hex() if is_a(value, float) else repr(value)
        state.update(f"{kind} {len(text)}:{text}".encode(errors="surrogatepass"))
        return True
    if is_a(value, tuple):
        state.update(f"{kind} {len(value)}:".encode())
        done = [_digest_into(state, one) for one in value]  # all of them, whatever the first says
        return all(done)
    return False


def describe(value: Any) -> str:
    """Say what a value is, in words that mean the same in another process.

    Examples
    --------
    >>> describe(3), describe(np.zeros(2)), describe(np)
    ('int 3', 'array float64 (2,)', 'module numpy')
    """
    if is_a(value, np.ndarray):
        return f"array {value.dtype} {value.shape}"
    if is_a(value, python_types.ModuleType):
        return f"module {value.__name__}"
    if is_a(value, bool | int | float | complex | str | bytes | type(None)):
        text = repr(value)
        return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
    kind = type(value).__name__
    function = value.py_func if is_a(value, Dispatcher) else value
    name = attribute(function, "__qualname__") or attribute(function, "__name__")
    if isinstance(name, str):
        module = attribute(function, "__module__")
        return f"{kind} {module}:{name}" if module else f"{kind} {name}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def compiled_functions(
    root: Callable[..., Any], linked: Iterable[Callable[..., Any]], arguments: Iterable[Any]
) -> tuple[FunctionSource, ...]:
    """Return the functions of the user's that are compiled into an artifact, each once.

    Parameters
    ----------
    root : Callable
        The Python function that was compiled.
    linked : iterable of Callable
        Python functions of the libraries that were linked in.
    arguments : iterable of numba types
        The root's argument types: some of them carry functions.

    Returns
    -------
    tuple of FunctionSource
        The root first, then what it names, directly or not, then what was linked in besides.

    Notes
    -----
    What a function names counts whether or not every call of it survived: functions that Numba
    inlines early leave no trace of their own. Numba's own functions are left out: they are
    named by Numba's version.
    """
    found: dict[tuple[Any, ...], FunctionSource] = {}
    waiting: list[Any] = [root]
    waiting += (one for argument in arguments for one in functions_of_type(argument))
    waiting += linked
    for function in waiting:
        code = function.__code__
        # Of one code there may be several functions, each with variables of its own.
        key = (code, *map(id, function.__closure__ or ()))
        if key in found or code.co_filename.startswith(_NUMBA):
            continue
        found[key] = function_source(function)
        for _, value in sorted(_named_values(function).items(), key=lambda one: one[0]):
            waiting += _functions_in(value)
    return tuple(found.values())


def _functions_in(value: Any) -> Iterator[Callable[..., Any]]:
    """Yield the Python functions that a captured value stands for."""
    if is_a(value, Dispatcher):
        yield value.py_func
    elif is_a(value, CFunc):
        yield value._pyfunc
    elif is_a(value, python_types.FunctionType):
        yield value
    elif is_a(value, tuple):
        for one in value:
            yield from _functions_in(one)
    else:
        yield from functions_of_type(attribute(value, "class_type"))


def functions_of_type(type_: Any) -> Iterator[Callable[..., Any]]:
    """Yield the Python functions that a Numba type carries: a dispatcher's, or a class's methods.

    Parameters
    ----------
    type_ : numba type
        Or anything else, which carries none.
    """
    if isinstance(type_, types.Dispatcher):
        yield type_.dispatcher.py_func
    elif isinstance(type_, types.ClassInstanceType | types.ClassType):
        for method in type_.jit_methods.values():
            yield method.py_func
        for accessors in type_.jit_props.values():
            yield from (one.py_func for one in accessors.values())
        for static in type_.jit_static_methods.values():
            yield static.py_func


def captures(sources: Iterable[FunctionSource]) -> tuple[Capture, ...]:
    """Return what functions take from around them, in the order of their names.

    Parameters
    ----------
    sources : iterable of FunctionSource
        Compiled functions.

    Examples
    --------
    >>> scale = 3.0
    >>> def make():
    ...     scale = 3.0
    ...     return lambda x: scale * x
    >>> [(one.name, one.note) for one in captures([function_source(make())])]
    [('closure scale', 'float 3.0')]
    """
    found = []
    for source in sources:
        for name, value in sorted(_named_values(source.function).items()):
            if value is not _ABSENT:
                found.append(
                    Capture(source.name, name, value_digest(value), describe(value), value, source)
                )
    return tuple(found)


def _named_values(function: Callable[..., Any]) -> dict[str, Any]:
    """Return globals, module attributes and closure variables that a function's code names."""
    found: dict[str, Any] = {}
    codes = [function.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if is_a(one, python_types.CodeType)]
        _add_globals(code, function.__globals__, found)
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[f"closure {name}"] = cell.cell_contents
        except ValueError:
            continue
    return found


def _add_globals(
    code: python_types.CodeType, namespace: dict[str, Any], found: dict[str, Any]
) -> None:
    builtins = namespace.get("__builtins__", {})
    standard = builtins if isinstance(builtins, dict) else vars(builtins)
    name, value = "", _ABSENT
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = instruction.argval
            value = namespace.get(name, standard.get(name, _ABSENT))
            found[name] = value
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(
            value, python_types.ModuleType
        ):
            name = f"{name}.{instruction.argval}"
            value = getattr(value, instruction.argval, _ABSENT)
            found[name] = value
        elif instruction.opname not in ("CACHE", "PRECALL", "EXTENDED_ARG"):
            value = _ABSENT


@dataclass(frozen=True, slots=True)
class Change:
    """A function or captured value that is no longer what was compiled."""

    subject: str
    message: str


def changes(sources: Iterable[FunctionSource], captured: Iterable[Capture]) -> Iterator[Change]:
    """Say what changed since functions were compiled.

    Parameters
    ----------
    sources, captured
        As they were taken then.

    Yields
    ------
    Change
        For each function with other bytecode, each rebound name, and each value (or content of an
        array) that differs.
    """
    present: dict[int, dict[str, Any]] = {}
    for source in sources:
        present[id(source)] = _named_values(source.function)
        if code_digest(source.function) != source.code_digest:
            yield Change(source.name, f"the code of {source.name} was replaced")
    for one in captured:
        subject = f"{one.function} {one.name}"
        values = present.get(id(one.owner))
        if values is None:
            values = present[id(one.owner)] = _named_values(one.owner.function)
        now = values.get(one.name, _ABSENT)
        if now is _ABSENT:
            yield Change(subject, f"{one.name} of {one.function} no longer exists")
        elif one.digest is None:
            if now is not one.value:
                yield Change(
                    subject,
                    f"{one.name} of {one.function} was rebound: {one.note} was compiled in, "
                    f"{describe(now)} is there now",
                )
        elif value_digest(now) != one.digest:
            what = "has other content" if now is one.value else "was rebound"
            yield Change(
                subject,
                f"{one.name} of {one.function} {what}: {one.note} was compiled in, "
                f"{describe(now)} is there now",
            )

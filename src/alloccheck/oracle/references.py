"""How a function is named so that another process finds the same one.

Knows modules, files and code objects; nothing of Numba or of measuring. A function travels as a
name, never as code: what runs there is what its file says.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alloccheck.errors import UsageError
from alloccheck.modules import load_file

ONLY = "*"
"""Stands for the signature of a dispatcher's only overload, whatever its types are called."""


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """Where a function, or a factory of one, stands.

    Parameters
    ----------
    module : str or None
        The module's import name. None: load the file by itself.
    qualname : str
        The attribute path inside the module.
    path : str or None
        The module's file. It is used when the import name does not lead to it.

    Examples
    --------
    >>> str(FunctionReference("mypkg.dsp", "gain"))
    'mypkg.dsp:gain'
    """

    module: str | None
    qualname: str
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.qualname}"


@dataclass(frozen=True, slots=True)
class Made:
    """A value to be made in the measuring process by calling a module-level function there.

    For what does not travel: typed lists and dicts, jitclass instances, closures. As an argument
    it stands for the value; as the function it stands for the dispatcher that the factory returns.

    Parameters
    ----------
    factory : FunctionReference
        The function to call.
    arguments : tuple
        Its arguments; they must be ones that travel.
    """

    factory: FunctionReference
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.factory}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Parts:
    """A value that compiled code puts together from its parts, before anything is measured.

    For structrefs and jitclass instances as they may lie in memory, whatever their constructors
    do. It can only be passed where the types of the arguments are known.

    Parameters
    ----------
    values : tuple
        One for each field, in their order.
    """

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """What a factory returns that makes all arguments of a call at once; it is the only argument.

    Parameters
    ----------
    values : tuple
        The arguments.
    """

    values: tuple[Any, ...]


def made_by(factory: Callable[..., Any], *arguments: Any) -> Made:
    """Return a value to be made in the measuring process: ``factory(*arguments)``.

    Parameters
    ----------
    factory : callable
        A module-level Python function.
    *arguments : object
        What it is called with.

    Examples
    --------
    >>> import textwrap
    >>> str(made_by(textwrap.indent, "text", "  "))
    "textwrap:indent('text', '  ')"
    """
    return Made(reference_of(factory), arguments)


def reference_of(function: Any) -> FunctionReference:
    """Return the name of a function, dispatcher or class of a module.

    Parameters
    ----------
    function : object
        A dispatcher (with ``py_func``), a Python function, or a class.

    Raises
    ------
    UsageError
        When no module-level name leads to this very object.
    """
    plain = getattr(function, "py_func", None) or getattr(function, "__wrapped__", function)
    code = code_of(plain)
    if code is None and not isinstance(plain, type):
        raise UsageError(f"{function!r} has no source file to be found by")
    module = sys.modules.get(plain.__module__)
    name = _name_in(module, plain.__qualname__, function)
    if module is None or name is None:
        raise UsageError(
            f"No module-level name leads to {plain.__module__}:{plain.__qualname__}, so another "
            "process cannot find it. Move it to module level, or pass made_by(factory, ...) with "
            "a module-level factory that returns it."
        )
    path = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        if path is None:
            raise UsageError(
                f"{plain.__qualname__} was defined in an interactive session, which has no file "
                "that another process can load. Put it into a module."
            )
        return FunctionReference(None, name, str(Path(path).absolute()))
    return FunctionReference(module.__name__, name, path and str(Path(path).absolute()))


def code_of(function: Any) -> types.CodeType | None:
    """Return the code of a function, or of the one that a dispatcher or a callback compiles.

    Parameters
    ----------
    function : object
        Of any kind.

    Examples
    --------
    >>> code_of(reference_of).co_name, code_of(len)
    ('reference_of', None)
    """
    own = getattr(getattr(function, "py_func", function), "__code__", None)
    return own if own is not None else getattr(wrapped_of(function), "__code__", None)


def wrapped_of(function: Any) -> Any:
    """Return the function that a callable which is none was made from, or None.

    So a callback (``cfunc``) names its own. A ufunc has one, too, yet is another thing than the
    function of its elements.

    Parameters
    ----------
    function : object
        Of any kind.
    """
    return None if is_ufunc(function) else getattr(function, "__wrapped__", None)


def is_ufunc(function: Any) -> bool:
    """Tell whether something is a ufunc, made by ``vectorize`` and ``guvectorize`` or by NumPy.

    Parameters
    ----------
    function : object
        Of any kind.

    Examples
    --------
    >>> is_ufunc(np.sin), is_ufunc(len)
    (True, False)
    """
    # Numba's own kinds hold NumPy's; a dynamic one holds it from its first call on.
    return isinstance(function, np.ufunc) or (
        hasattr(function, "ufunc") and hasattr(function, "build_ufunc")
    )


def refuse_ufunc(function: Any) -> None:
    """Say what to measure instead of a ufunc: NumPy calls it, not the measured thread's driver.

    Parameters
    ----------
    function : object
        What is to be measured.

    Raises
    ------
    UsageError
        When it is a ufunc.
    """
    if is_ufunc(function):
        name = getattr(function, "__name__", "?")
        raise UsageError(
            f"{name} is a ufunc: NumPy's loop, which makes arrays and Python objects, calls what "
            "was compiled. To measure the code of one element (or core), measure a compiled "
            "function of it: numba.njit(kernel), with the function that was decorated, at module "
            f"level. To measure a loop in compiled code, measure a function that calls {name}."
        )


def _name_in(module: types.ModuleType | None, qualname: str, wanted: Any) -> str | None:
    if module is None:
        return None
    if "<" not in qualname:
        found: Any = module
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if found is wanted:
            return qualname
    return next((name for name, value in vars(module).items() if value is wanted), None)


def resolve(reference: FunctionReference) -> Any:
    """Return the object that a reference names, importing or loading its module.

    Parameters
    ----------
    reference : FunctionReference
        From `reference_of`, or written by hand.

    Raises
    ------
    UsageError
        When the module has no such attribute.
    ImportError
        When the module cannot be imported.

    Examples
    --------
    >>> resolve(FunctionReference("os.path", "join")).__name__
    'join'
    """
    found: Any = _module_of(reference)
    for part in reference.qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{reference}: the module has no {reference.qualname!r}") from None
    return found


_loading: ContextVar[bool] = ContextVar("loading a module to resolve a reference", default=False)


def is_loading() -> bool:
    """Tell whether a module is being imported because a reference names something in it."""
    return _loading.get()


def _module_of(reference: FunctionReference) -> types.ModuleType:
    before = _loading.set(True)
    try:
        return _find_module(reference)
    finally:
        _loading.reset(before)


def _find_module(reference: FunctionReference) -> types.ModuleType:
    if reference.module is None:
        if reference.path is None:
            raise UsageError(f"{reference}: a reference needs a module or a path")
        content = hashlib.sha256(Path(reference.path).read_bytes()).hexdigest()[:16]
        return _load(f"_alloccheck_{Path(reference.path).stem}_{content}", reference.path)
    try:
        module = importlib.import_module(reference.module)
    except ModuleNotFoundError as error:
        if reference.path is None or not reference.module.startswith(error.name or "\0"):
            raise
        return _load(reference.module, reference.path)
    found = getattr(module, "__file__", None)
    if reference.path is not None and found is not None and not _same(found, reference.path):
        # Another file answers to this name, as with two test modules of one name.
        content = hashlib.sha256(reference.path.encode()).hexdigest()[:16]
        return _load(f"{reference.module}_{content}", reference.path)
    return module


def _same(left: str, right: str) -> bool:
    return Path(left).resolve() == Path(right).resolve()


def _load(name: str, path: str) -> types.ModuleType:
    return sys.modules[name] if name in sys.modules else load_file(name, path)


def fingerprint(function: Any) -> str | None:
    """Return a digest of a function's bytecode and constants, or None when it has no code.

    Two processes that load the same source agree on it; it tells that a file has changed since.

    Parameters
    ----------
    function : object
        A dispatcher or a Python function.

    Examples
    --------
    >>> fingerprint(lambda: 1) == fingerprint(lambda: 1)
    True
    >>> fingerprint(lambda: 1) == fingerprint(lambda: 2)
    False
    """
    code = code_of(function)
    if code is None:
        return None
    digest = hashlib.sha256()
    _digest_code(code, digest)
    return digest.hexdigest()


def _digest_code(code: types.CodeType, digest: Any) -> None:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    digest.update(repr((code.co_argcount, code.co_flags, names)).encode())
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _digest_code(constant, digest)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {constant!r}".encode())

"""From the targets of a command line to the functions and signatures that are to be checked.

Knows files, modules and decorated functions; nothing of how a check works or is shown.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alloccheck.cli.road import Road
from alloccheck.config import Config, nearest
from alloccheck.errors import UsageError
from alloccheck.modules import load_file, module_name


@dataclass(frozen=True, slots=True)
class Subject:
    """A function that is to be checked.

    Parameters
    ----------
    name : str
        ``module:qualname``.
    function : object
        The function as it stands in its module.
    decorated : bool
        Whether our decorators made it, so that it has a guarantee of its own.
    signatures : tuple
        Strings or Numba's types, as given; empty when nobody gave any.
    receiver : object
        Of a jitclass's method the type of ``self``, which strings leave out; else None.
    """

    name: str
    function: Any
    decorated: bool
    signatures: tuple[Any, ...]
    receiver: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was asked for and could not be decided."""

    target: str
    message: str


@dataclass(slots=True)
class Discovery:
    """What the targets hold."""

    subjects: list[Subject] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def discover(
    targets: Sequence[str], signatures: Sequence[str], config: Config, road: Road
) -> Discovery:
    """Find what is to be checked; what cannot be found is a problem, and the rest goes on.

    Parameters
    ----------
    targets : sequence of str
        Files, directories, modules, ``module:function`` or ``path.py:function``.
    signatures : sequence of str
        For the functions that are named; they replace declared ones.
    config : Config
        May hold signatures of functions that are not decorated.
    road : Road
        How decorated functions are recognised.

    Returns
    -------
    Discovery
        Each function once, in the order of targets, files and lines.
    """
    found = Discovery()
    for target in targets:
        try:
            _discover_target(target, tuple(signatures), config, road, found)
        except UsageError as error:
            found.problems.append(Problem(target, str(error)))
    unique = {subject.name: subject for subject in reversed(found.subjects)}
    found.subjects = list(reversed(unique.values()))
    return found


def split_target(target: str) -> tuple[str, str | None]:
    """Split a target into place and function.

    Parameters
    ----------
    target : str
        As given on the command line.

    Examples
    --------
    >>> split_target("pkg.dsp:Filter.step")
    ('pkg.dsp', 'Filter.step')
    >>> split_target("examples/")
    ('examples/', None)
    """
    place, colon, function = target.rpartition(":")
    if colon and place and all(part.isidentifier() for part in function.split(".")):
        return place, function
    return target, None


@contextlib.contextmanager
def import_path() -> Iterator[None]:
    """Let modules of the current directory be imported, and restore ``sys.path`` at the end."""
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before


def _discover_target(
    target: str, signatures: tuple[str, ...], config: Config, road: Road, found: Discovery
) -> None:
    place, function = split_target(target)
    if function is not None:
        module = _load(place, road)
        found.subjects.append(_named(module, function, signatures, config, road))
        return
    if signatures:
        raise UsageError(
            "--signature needs a function to apply to: write module:function or path.py:function"
        )
    for one in _places(place, road):
        try:
            module = _load(one, road)
            found.subjects.extend(_in_module(module, config, road, found))
        except UsageError as error:
            found.problems.append(Problem(one, str(error)))


def _places(place: str, road: Road) -> list[str]:
    """List the files or modules that a target without a function stands for."""
    path = Path(place)
    if path.is_dir():
        return [str(file) for file in sorted(path.rglob("*.py")) if _is_importable(file, path)]
    return [place] if _is_path(place) else list(_modules(place, road))


def _modules(name: str, road: Road) -> Iterator[str]:
    """Yield a module's name and, for a package, those inside it.

    A package that does not import is yielded too: loading it again tells the user why.
    """
    yield name
    try:
        module = _load(name, road)
    except UsageError:
        return
    for inner in sorted(pkgutil.iter_modules(getattr(module, "__path__", ())), key=_module_name):
        if inner.ispkg:
            yield from _modules(f"{name}.{inner.name}", road)
        elif inner.name != "__main__":
            yield f"{name}.{inner.name}"


def _module_name(found: pkgutil.ModuleInfo) -> str:
    return found.name


def _is_importable(file: Path, top: Path) -> bool:
    inner = file.relative_to(top).parts
    hidden = any(part.startswith(".") or part == "__pycache__" for part in inner)
    environment = any(
        (parent / "pyvenv.cfg").exists()
        for parent in file.parents
        if top in (parent, *parent.parents)
    )
    # A __main__.py is there to be run: importing it would run it.
    return not hidden and not environment and file.name != "__main__.py"


def _is_path(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place or Path(place).is_file()


def _load(place: str, road: Road) -> types.ModuleType:
    """Import a file or module; decorators in it do not prove, and its output goes to stderr."""
    is_path = _is_path(place)
    if is_path and Path(place).is_dir():
        raise UsageError(
            f"{place} is a directory; expected a file or module that holds the function"
        )
    if is_path and not Path(place).is_file():
        raise UsageError(f"no such file or directory: {place}")
    try:
        with road.deferred(), contextlib.redirect_stdout(sys.stderr):
            return _import_file(Path(place)) if is_path else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if not is_path and error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise UsageError(
                f"no module named {error.name!r} on the path, and no such file or directory"
            ) from None
        raise UsageError(f"cannot import {place}: {error}") from None
    except KeyboardInterrupt:
        raise
    except UsageError as error:  # ours: the place where we raised it says nothing
        raise UsageError(f"cannot import {place}: {error}") from None
    except BaseException as error:  # the user's module may raise anything, SystemExit too
        raise UsageError(f"cannot import {place}: {_describe(error)}") from None


def _describe(error: BaseException) -> str:
    where = ""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if isinstance(error, SyntaxError):
        where = ""
    elif last is not None:
        where = f" (at {last.tb_frame.f_code.co_filename}:{last.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"


def _import_file(path: Path) -> types.ModuleType:
    """Import a file under the name that its package gives it, or else under its own."""
    path = path.resolve()
    root, name = module_name(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if "." in name or path.stem == "__init__":
        module = importlib.import_module(name)
        if _is_from(module, path):
            return module
        raise ImportError(f"module {name} is {module.__file__} already, not {path}")
    number = 1
    while name in sys.modules and not _is_from(sys.modules[name], path):
        number += 1
        name = f"{path.stem}_{number}"
    if name in sys.modules:
        return sys.modules[name]
    return load_file(name, path)


def _is_from(module: types.ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path


def _named(
    module: types.ModuleType,
    function: str,
    signatures: tuple[str, ...],
    config: Config,
    road: Road,
) -> Subject:
    """Find one function by its dotted name."""
    owner: Any = module
    receiver: Any = None
    for index, part in enumerate(function.split(".")):
        method = _methods(owner).get(part)
        if method is not None:
            owner, receiver = method
            continue
        receiver = None
        if not hasattr(owner, part):
            within = ".".join([module.__name__, *function.split(".")[:index]])
            names = (*dir(owner), *_methods(owner))
            known = tuple(dict.fromkeys(name for name in names if not name.startswith("__")))
            hint = nearest(part, known) if known else ""
            raise UsageError(f"{within} has no attribute {part!r}{hint}")
        owner = getattr(owner, part)
    name = f"{module.__name__}:{function}"
    if not (isinstance(owner, types.FunctionType) or hasattr(owner, "py_func")):
        raise UsageError(
            f"{name} is of type {type(owner).__name__}; "
            "expected a Python function, a function made by njit, or one decorated by alloccheck"
        )
    subject = _subject(name, owner, config, road, receiver)
    if signatures:
        return Subject(name, owner, subject.decorated, signatures, receiver)
    if not subject.signatures:
        raise UsageError(
            f"{name} has no signature; give one by --signature, in a decorator, "
            f'or under [tool.alloccheck.signatures] as "{name}"'
        )
    return subject


def _subject(name: str, function: Any, config: Config, road: Road, receiver: Any = None) -> Subject:
    decorated = isinstance(function, road.decorated)
    known: dict[str, Any] = {}
    if decorated:
        # Declared in the decorator, or proved already because the module called the function.
        for one in (*function.declared_signatures, *function.reports):
            known.setdefault(str(one), one)
    for one in config.signatures.get(name, ()):
        known.setdefault(one, one)
    return Subject(name, function, decorated, tuple(known.values()), receiver)


def _in_module(
    module: types.ModuleType, config: Config, road: Road, found: Discovery
) -> list[Subject]:
    """List a module's own decorated functions by line, then those that only the settings name."""
    decorated = sorted(
        _decorated(vars(module), module.__name__, road),
        key=lambda one: (one[0].py_func.__code__.co_firstlineno, one[0].py_func.__qualname__),
    )
    subjects: dict[str, Subject] = {}
    for function, receiver in decorated:
        name = f"{module.__name__}:{function.py_func.__qualname__}"
        subjects.setdefault(name, _subject(name, function, config, road, receiver))
    for name in config.signatures:
        place, _, function_name = name.partition(":")
        if place == module.__name__ and name not in subjects:
            try:
                subjects[name] = _named(module, function_name, (), config, road)
            except UsageError as error:
                found.problems.append(Problem(name, f"{error} (named in {config.file})"))
    return list(subjects.values())


def _decorated(namespace: Any, module: str, road: Road) -> Iterator[tuple[Any, Any]]:
    """Yield the decorated functions of a namespace and of the classes in it, with receivers."""
    for value in namespace.values():
        inner = value.__func__ if isinstance(value, staticmethod) else value
        found: list[tuple[Any, Any]] = [(inner, None)]
        if isinstance(inner, type) and inner.__module__ == module:
            yield from _decorated(vars(inner), module, road)
            found = list(_methods(inner).values())
        for one, receiver in found:
            if isinstance(one, road.decorated):
                function: Any = one
                if function.py_func.__module__ == module:
                    yield function, receiver


def _methods(owner: Any) -> dict[str, tuple[Any, Any]]:
    """Return the methods of a jitclass by name, each with its receiver; of others none.

    Numba keeps them in tables of a type; the class has them as attributes only after the first
    instance came to Python, and then plain.
    """
    class_type = vars(owner).get("class_type") if isinstance(owner, type) else None
    instance = getattr(class_type, "instance_type", None)
    tables = (("jit_static_methods", None), ("jit_methods", instance))
    return {
        name: (function, receiver)
        for table, receiver in tables
        for name, function in (getattr(class_type, table, None) or {}).items()
    }

"""What a function takes from outside itself: globals, closure cells, module attributes.

Numba freezes captured values when it compiles. Whoever keeps compiled code must be able to tell
whether the values are still the ones that were frozen.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.origin import attribute, is_a, is_of_libraries

# isort: split
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.types import ClassType
from numba.np.ufunc.dufunc import DUFunc

ASSUMPTION_ATTRIBUTE = "__alloccheck_assumption__"
"""Attribute of a Python function that carries a trust declared by the user.

Such a function stays a call of its own; what the trust says is for those who check.
"""

_PLAIN = (int, bool, str, bytes, type(None))
_BY_ADDRESS = 1_000_000
"""Arrays of more bytes than this are captured by address, not by content."""

MISSING = object()
"""Stands for a value that is not there (yet)."""

_BUILTINS = {
    name: value for name, value in vars(builtins).items() if type(value) is not FunctionType
}
"""Python's own, as far as nobody changed them before."""


def captured_values(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a Python function can reach outside itself, with the way to it.

    Parameters
    ----------
    function : Callable
        A Python function.

    Yields
    ------
    path : str
        Such as ``"global gain"``, ``"closure size"`` or ``"global np.pi"``.
    value : object
        A marker of its own when there is no such value (yet).

    Examples
    --------
    >>> size = 3
    >>> [path for path, _ in captured_values(lambda x: x + size)]
    ['global size']
    """
    names = sorted(names_read(function))
    scope = function.__globals__
    given = scope.get("__builtins__", {})
    builtin_names = vars(given) if isinstance(given, ModuleType) else given
    for name in names:
        if name in scope:
            yield from _with_attributes(f"global {name}", scope[name], names)
        elif name not in builtin_names:
            yield f"global {name}", MISSING
        elif builtin_names[name] is not _BUILTINS.get(name, MISSING):
            # Somebody put it where all modules look.
            yield from _with_attributes(f"global {name}", builtin_names[name], names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            value = MISSING
        yield from _with_attributes(f"closure {name}", value, names)


def compiled_in(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what `captured_values` does, without globals whose name only attributes have.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> example = {"np": np, "zeros": None}
    >>> exec("def f(n): return np.zeros(n)", example)
    >>> [path for path, _ in compiled_in(example["f"])]
    ['global np', 'global np.zeros']
    >>> [path for path, _ in captured_values(example["f"])]
    ['global np', 'global np.zeros', 'global zeros']
    """
    read = _globals_read(function.__code__)
    by_text = not BY_TEXT.isdisjoint(names_of(function.__code__))
    for path, value in captured_values(function):
        kind, _, rest = path.partition(" ")
        if by_text or kind != "global" or rest.partition(".")[0] in read:
            yield path, value


@functools.lru_cache(maxsize=4096)
def _globals_read(code: CodeType) -> frozenset[str]:
    """Return the globals that code reads; attributes of the same name are something else."""
    found = {
        one.argval
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals_read(constant)
    return frozenset(found)


BY_TEXT = frozenset({"getattr", "hasattr"})
"""Builtins that look names up that are given as text."""


def names_read(function: Callable[..., Any]) -> set[str]:
    """Return the names that a function looks up, in nested functions too.

    Parameters
    ----------
    function : Callable
        A Python function.

    Returns
    -------
    set of str
        Where ``getattr`` is among them also all text that it may be given: constants, defaults,
        and captured values.

    Examples
    --------
    >>> sorted(names_read(lambda m: getattr(m, "size") + m.step))
    ['getattr', 'size', 'step']
    """
    names = set(names_of(function.__code__))
    if names & BY_TEXT:
        cells = function.__closure__ or ()
        for one in (
            *(function.__globals__.get(name) for name in names),
            *(attribute(cell, "cell_contents") for cell in cells),
            *(function.__defaults__ or ()),
            *(function.__kwdefaults__ or {}).values(),
        ):
            names |= texts_in(one)
    return names


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> frozenset[str]:
    """Return the names that code looks up, also by ``getattr`` with a constant.

    Parameters
    ----------
    code : code
        Nested functions count as well.
    """
    found: set[str] = set()
    constants: list[Any] = []
    waiting = [code]
    for one in waiting:
        found.update(one.co_names)
        constants += one.co_consts
        waiting += [x for x in one.co_consts if isinstance(x, CodeType)]
    if found & BY_TEXT:
        for constant in constants:
            found |= texts_in(constant)
    return frozenset(found)


def texts_in(value: Any) -> set[str]:
    """Return a value if it is text, and what is text in a tuple.

    Parameters
    ----------
    value : object
    """
    if type(value) is str:
        return {value}
    if is_a(value, tuple | frozenset):
        return {text for one in value for text in texts_in(one)}
    return set()


def _with_attributes(
    path: str, value: Any, names: list[str], above: frozenset[int] = frozenset()
) -> Iterator[tuple[str, Any]]:
    yield path, value
    # A module may be reached through any number of others, and through itself.
    if is_a(value, ModuleType) and id(value) not in above:
        own = vars(value)
        for name in names:
            if name in own:
                yield from _with_attributes(f"{path}.{name}", own[name], names, above | {id(value)})


class Same:
    """Equal to another of the same object alone; never to one of an object that is gone.

    An address alone does not tell objects apart: a new one may get that of one that was deleted.

    Parameters
    ----------
    value : object
        Kept alive only where Python knows no weak references to it.
    """

    __slots__ = ("_get",)

    def __init__(self, value: Any) -> None:
        try:
            self._get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._get = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self._get()
        return isinstance(other, Same) and mine is not None and mine is other._get()

    __hash__ = None  # type: ignore[assignment]


def function_fingerprint(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return a key that changes when Numba would make something else of a Python function.

    Parameters
    ----------
    function : Callable
        A Python function.

    Returns
    -------
    tuple
        Of its code, its defaults, the trust declared for it, and all that it captures.

    Examples
    --------
    >>> def scale(x, by=2.0):
    ...     return x * by
    >>> before = function_fingerprint(scale)
    >>> scale.__defaults__ = (3.0,)
    >>> function_fingerprint(scale) == before
    False
    """
    named = function.__kwdefaults__ or {}
    return (
        Same(function.__code__),
        tuple(fingerprint(one) for one in function.__defaults__ or ()),
        tuple((name, fingerprint(one)) for name, one in sorted(named.items())),
        getattr(function, ASSUMPTION_ATTRIBUTE, None),
        tuple((path, fingerprint(value)) for path, value in captured_values(function)),
    )


def plain_functions(function: Callable[..., Any]) -> Iterator[FunctionType]:
    """Yield a Python function and all that may run, or be inlined, in its place; each once.

    Functions that choose an overload's implementation call others in Python. Dispatchers that are
    inlined leave no trace of their own.

    Parameters
    ----------
    function : Callable
        A Python function.
    """
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop()
        if is_a(one, Dispatcher) and one.targetoptions.get("inline", "never") != "never":
            one = one.py_func
        if is_a(one, FunctionType) and id(one) not in seen and not is_of_libraries(one):
            seen.add(id(one))
            yield one
            waiting.extend(value for _, value in captured_values(one))


def looks_recursive(function: Callable[..., Any]) -> bool:
    """Return whether a function can reach itself, or a callee that can, by what it captures.

    A guess: recursion through methods or overloads is not seen, and a name may lead to a function
    that is never called.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> def countdown(n):
    ...     return 0 if n == 0 else countdown(n - 1)
    >>> countdown.__globals__.setdefault("countdown", countdown) is not None
    True
    >>> looks_recursive(countdown), looks_recursive(lambda x: x + 1)
    (True, False)
    """
    done: set[int] = set()
    above: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(function, False)]
    while waiting:
        one, leaving = waiting.pop()
        if leaving:
            above.discard(id(one))
            done.add(id(one))
            continue
        if id(one) in done or id(one) in above:
            continue
        above.add(id(one))
        waiting.append((one, True))
        for _, value in compiled_in(one):
            callee = _python_function(value)
            if callee is None or is_of_libraries(callee):
                continue
            if id(callee) in above:
                return True
            waiting.append((callee, False))
    return False


def _python_function(value: Any) -> FunctionType | None:
    """Return the Python function that a captured value would be compiled from, if any."""
    function = value.py_func if is_a(value, Dispatcher) else value
    function = value._pyfunc if is_a(value, CFunc) else function
    return function if is_a(function, FunctionType) else None


def class_fingerprint(class_type: ClassType) -> tuple[Any, ...]:
    """Return a key that changes when a method or property of a jitclass is replaced."""
    return tuple(
        (name, tuple(map(Same, one.values())) if is_a(one, dict) else Same(one))
        for table in (class_type.jit_methods, class_type.jit_static_methods, class_type.jit_props)
        for name, one in table.items()
    )


def fingerprint(value: Any) -> tuple[Any, ...]:
    """Return a key that changes when Numba would freeze something else for `value`.

    Parameters
    ----------
    value : object
        A captured value.

    Returns
    -------
    tuple
        Content for what Numba copies, identity for everything else.

    Examples
    --------
    >>> fingerprint(1.0) == fingerprint(1.0), fingerprint(1.0) == fingerprint(1)
    (True, False)
    >>> a = np.zeros(2)
    >>> before = fingerprint(a)
    >>> a[0] = 1.0
    >>> fingerprint(a) == before
    False
    """
    if is_a(value, np.generic):
        # How a record is printed leaves out fields, or digits.
        return (type(value), str(value.dtype), value.tobytes())
    if is_a(value, float | complex):
        return (type(value), np.array(value).tobytes())
    if is_a(value, _PLAIN):
        return (type(value), repr(value))
    if is_a(value, tuple):
        return (type(value), *(fingerprint(one) for one in value))
    if is_a(value, list | set | frozenset | dict):
        return (type(value), id(value), _printed(value))
    if is_a(value, np.ndarray):
        shape = (value.shape, value.strides, str(value.dtype))
        if value.nbytes > _BY_ADDRESS or value.dtype.hasobject:
            return (np.ndarray, Same(value), value.ctypes.data, shape)
        return (np.ndarray, shape, hashlib.sha256(value.tobytes()).digest())
    if is_a(value, Dispatcher):
        declared = () if value._can_compile else tuple(map(str, value.nopython_signatures))
        return (
            Same(value),
            Same(value.py_func),
            value._can_compile,
            declared,
            repr(value.targetoptions),
            repr(value.locals),
            _trust(value),
        )
    if is_a(value, DUFunc):
        declared = tuple(map(str, value._dispatcher.overloads)) if value._frozen else ()
        return (Same(value), value._frozen, declared)
    if is_a(value, CFunc):
        compiler = value._compiler
        return (
            Same(value),
            Same(value._pyfunc),
            repr(compiler.targetoptions),
            repr(compiler.locals),
        )
    class_type = attribute(value, "class_type")
    if isinstance(class_type, ClassType):
        return (Same(value), class_fingerprint(class_type))
    return (Same(value),)


def _printed(value: Any) -> Any:
    """Return what tells whether a container was changed; Numba freezes none of those."""
    try:
        return repr(value) if len(value) < 1000 else len(value)
    except Exception:
        # Of the container's class, or of what is in it: then by what it holds.
        kind = next(one for one in (list, set, frozenset, dict) if is_a(value, one))
        held = dict.items(value) if kind is dict else kind.__iter__(value)
        return tuple(map(Same, (part for one in held for part in _pair(one, kind))))


def _pair(one: Any, kind: type) -> tuple[Any, ...]:
    return one if kind is dict else (one,)


def _trust(dispatcher: Any) -> Any:
    return getattr(dispatcher.py_func, ASSUMPTION_ATTRIBUTE, None)

"""Records what Numba compiles while something else runs, without changing what that does.

Functions made by ``jit`` are announced by Numba's own event system. Three places do not announce
what they make: code from the disk cache, kernels of ufuncs, and C callbacks. There a method is
wrapped while a recorder is open; the wrapper calls it, notes what it made, and returns the same.
Knows nothing of what is done with the records.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self

from alloccheck.compile import canonical, isolation, numba_internals  # noqa: F401  (the gate)
from alloccheck.compile.frozen import Frozen, frozen_by
from alloccheck.compile.overloads import Choices

# isort: split
from numba.core import ccallback, dispatcher, event, registry, sigutils, types, utils
from numba.np.ufunc import ufuncbuilder

Kind = Literal["function", "ufunc kernel", "callback"]
Origin = Literal["compiled", "disk cache", "checked"]

COMPILE_EVENT = "numba:compile"
"""Kind of the event that Numba broadcasts when a dispatcher compiles."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """One function that Numba compiled, for one tuple of argument types.

    Parameters
    ----------
    kind : {"function", "ufunc kernel", "callback"}
        Made by ``jit``; what ``vectorize`` or ``guvectorize`` runs for each element; by ``cfunc``.
    target : object
        What can be asked about: the dispatcher, the callback, or a kernel's Python function.
    function : Callable
        The Python function.
    argument_types : tuple of numba types
        As they were compiled.
    return_type : numba type or None
        When it was declared.
    options : mapping
        Numba's options, as the decorator got them.
    origin : {"compiled", "disk cache", "checked"}
        Where the machine code came from; ``"checked"``: from a decorator of this package.
    frozen : Frozen or None
        What the function and those that it can call had captured when it was recorded.
    """

    kind: Kind
    target: Any
    function: Callable[..., Any]
    argument_types: tuple[Any, ...]
    return_type: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = "compiled"
    frozen: Frozen | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """``module:qualname``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Recorder:
    """Records while it is open, on all threads of this process; a context manager.

    Functions of Numba itself, and what this package compiles to check it, are left out. Recorded
    objects are kept alive.

    Parameters
    ----------
    begins : callable, optional
        Called before each outermost compile, under Numba's compiler lock.
    compiled_one : callable, optional
        Called after each compile, under Numba's compiler lock, with whether it was outermost.
    first_call : callable, optional
        Called with a dispatcher and the arguments of each call from Python that Numba compiles
        for, before the compile.

    Attributes
    ----------
    faults : list of str
        What went wrong inside the recorder; never raised into the program.
    choices : Choices
        What choosers of overloads answered; it can go on looking when the recorder is closed.

    Examples
    --------
    >>> import numba
    >>> @numba.njit
    ... def twice(x):
    ...     return 2 * x
    >>> with Recorder() as recorder:
    ...     twice(1.5)
    3.0
    >>> [(one.function.__name__, one.argument_types) for one in recorder.compiled]
    [('twice', (float64,))]
    """

    def __init__(
        self,
        *,
        begins: Callable[[], None] | None = None,
        compiled_one: Callable[[bool], None] | None = None,
        first_call: Callable[[Any, tuple[Any, ...]], None] | None = None,
    ) -> None:
        self._found: dict[tuple[Any, ...], Compiled] = {}
        self._lock = threading.Lock()
        self._listener = _Listener(self._began, functools.partial(self._guarded, self._ended))
        self._begins, self._compiled_one = begins, compiled_one
        self._depth = threading.local()
        self._first_call = first_call
        self._undo: list[Callable[[], None]] = []
        self.faults: list[str] = []
        self.choices = Choices()

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """What was recorded, in the order in which compiling ended."""
        with self._lock:
            return tuple(self._found.values())

    def __enter__(self) -> Self:
        """Begin to record."""
        # What an earlier check was told by choosers is in a kept world, and not known here.
        canonical.shared.clear()
        self.choices.open()
        self._undo.append(self.choices.close)
        event.register(COMPILE_EVENT, self._listener)
        self._undo.append(lambda: event.unregister(COMPILE_EVENT, self._listener))
        self._after(dispatcher._DispatcherBase, "add_overload", self._added)
        self._after(ufuncbuilder.UFuncDispatcher, "compile", self._kernel)
        self._after(ccallback.CFunc, "compile", self._callback)
        if self._first_call is not None:
            self._before_first_call(self._first_call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put Numba's methods back."""
        while self._undo:
            self._undo.pop()()

    # --- what is seen -----------------------------------------------------------------------------

    def _began(self) -> None:
        self._depth.now = getattr(self._depth, "now", 0) + 1
        if self._begins is not None and self._depth.now == 1 and not _is_ours():
            self._guarded(self._begins)

    def _ended(self, data: Mapping[str, Any]) -> None:
        self._depth.now = max(getattr(self._depth, "now", 0) - 1, 0)
        self._announced(data)
        if self._compiled_one is not None and not _is_ours():
            self._compiled_one(self._depth.now == 0)

    def _announced(self, data: Mapping[str, Any]) -> None:
        found = data["dispatcher"]
        # Not by the event's `is_failed`, which says the opposite in Numba 0.68.
        if isinstance(found, registry.CPUDispatcher) and tuple(data["args"]) in found.overloads:
            self._note(
                Compiled(
                    "function",
                    found,
                    found.py_func,
                    _folded(found.py_func, data["args"]),
                    data["return_type"],
                    dict(found.targetoptions),
                )
            )

    def _added(self, owner: Any, arguments: tuple[Any, ...], result: Any) -> None:
        if not isinstance(owner, registry.CPUDispatcher):
            return
        given = tuple(arguments[0].signature.args)
        declared = None
        origin: Origin = "checked"
        if type(owner) is registry.CPUDispatcher:
            # What is being compiled is announced when its event ends; what is loaded is not.
            hits = {tuple(types_): returned for types_, returned in map(_types, owner._cache_hits)}
            if given not in hits:
                return
            declared, origin = hits[given], "disk cache"
        found = _folded(owner.py_func, given)
        options = dict(owner.targetoptions)
        self._note(Compiled("function", owner, owner.py_func, found, declared, options, origin))

    def _kernel(self, owner: Any, arguments: tuple[Any, ...], result: Any) -> None:
        given, declared = _types(arguments[0])
        options = {**owner.targetoptions, "error_model": "numpy"}
        self._note(
            Compiled("ufunc kernel", owner.py_func, owner.py_func, tuple(given), declared, options)
        )

    def _callback(self, owner: Any, arguments: tuple[Any, ...], result: Any) -> None:
        signature = owner._sig
        self._note(
            Compiled(
                "callback",
                owner,
                owner._pyfunc,
                tuple(signature.args),
                signature.return_type,
                dict(owner._compiler.targetoptions),
            )
        )

    def _note(self, one: Compiled) -> None:
        if _is_ours() or _is_numbas(one.function):
            return
        # By identity: two closures of one name are two functions.
        key = (one.kind, id(one.target), one.argument_types)
        with self._lock:
            if key not in self._found:
                frozen = frozen_by(one.function, one.argument_types)
                self._found[key] = replace(one, frozen=frozen)

    # --- how it is seen ---------------------------------------------------------------------------

    def _after(
        self, owner: Any, name: str, note: Callable[[Any, tuple[Any, ...], Any], None]
    ) -> None:
        plain = owner.__dict__[name]

        @functools.wraps(plain)
        def recorded(self_: Any, *arguments: Any, **named: Any) -> Any:
            result = plain(self_, *arguments, **named)
            self._guarded(note, self_, arguments, result)
            return result

        self._replace(owner, name, recorded, plain)

    def _before_first_call(self, note: Callable[[Any, tuple[Any, ...]], None]) -> None:
        owner = dispatcher._DispatcherBase
        plain = owner.__dict__["_compile_for_args"]

        @functools.wraps(plain)
        def recorded(self_: Any, *arguments: Any, **named: Any) -> Any:
            self._guarded(note, self_, arguments)
            return plain(self_, *arguments, **named)

        self._replace(owner, "_compile_for_args", recorded, plain)

    def _replace(self, owner: Any, name: str, new: Any, plain: Any) -> None:
        setattr(owner, name, new)

        def put_back() -> None:
            # Not over what somebody else has put there since.
            if owner.__dict__.get(name) is new:
                setattr(owner, name, plain)

        self._undo.append(put_back)

    def _guarded(self, note: Callable[..., None], *arguments: Any) -> None:
        """Look, and never let what goes wrong in looking reach the program."""
        try:
            note(*arguments)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")


def _is_ours() -> bool:
    """Whether this package compiles something to check it."""
    return isolation.current_world() is not None


class _Listener(event.Listener):  # type: ignore[misc]
    """Tells of the beginnings and ends of compiles."""

    def __init__(
        self, began: Callable[[], None], ended: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._began, self._ended = began, ended

    def on_start(self, event: Any) -> None:
        self._began()

    def on_end(self, event: Any) -> None:
        self._ended(event.data)


def _types(signature: Any) -> tuple[Any, Any]:
    """Return argument types and declared return type of what Numba takes for a signature."""
    found: tuple[Any, Any] = sigutils.normalize_signature(signature)
    return found


def _is_numbas(function: Any) -> bool:
    """Whether a function is part of Numba, or glue between Python and a jitclass.

    The glue is text that Numba runs: it has no module, and names that begin with ``__numba_``.
    """
    if function.__module__ is not None:
        return str(function.__module__).split(".")[0] == "numba"
    code = function.__code__
    return any(name.startswith("__numba_") for name in (*code.co_varnames, *code.co_names))


def _folded(function: Any, given: Any) -> tuple[Any, ...]:
    """Return argument types with those of ``*args`` marked, as they are when a call is compiled.

    Some announcements come with a plain tuple in that place.
    """
    found = tuple(given)
    parameters = tuple(utils.pysignature(function).parameters.values())
    starred = parameters and parameters[-1].kind is parameters[-1].VAR_POSITIONAL
    if not starred or len(found) != len(parameters) or not isinstance(found[-1], types.BaseTuple):
        return found
    return (*found[:-1], types.StarArgTuple(tuple(found[-1])))

"""The decorators: `check_allocs`, `nonblocking` and `hermetic`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alloccheck.compile.disjoint import base_pipeline, disjoint_pipeline, parameters_named
from alloccheck.compile.job import checked_options, parse_signature, require_jit_enabled
from alloccheck.compile.target import own_settings, python_function
from alloccheck.dispatcher import CheckedDispatcher, OnFailure, VerifyingDispatcher
from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError
from alloccheck.policy import Policy
from alloccheck.storage import Storage, storage_at

# isort: split
from numba.core import sigutils, types

if TYPE_CHECKING:
    from alloccheck.analysis.contracts import Contract

_ON_FAILURE = ("raise", "warn", "report")


def check_allocs(
    target: Any = None,
    *,
    guarantee: str | Guarantee = Guarantee.NONALLOCATING,
    ignore_throw: bool = True,
    on_failure: str = "raise",
    first_call: str = "prepare",
    entry: str = "python",
    contracts: Iterable[Contract] = (),
    methods: Iterable[str] | None = None,
    value_on_raise: int | float | None = None,
    verify_on_call: bool = False,
    disjoint: bool | Iterable[str] = False,
    store: str | Path | None = None,
    **jit_options: Any,
) -> Any:
    """Compile with Numba, prove that no call allocates, and run what was proved.

    Parameters
    ----------
    target : Callable, class, str, signature or list of signatures
        Bare: a function, an ``njit`` dispatcher, or a jitclass (its methods are replaced by
        checked ones). Otherwise signatures: the proof then happens at definition, and no other
        signature is accepted, as with ``njit``.
    guarantee : {"nonallocating", "nonblocking"}
        Which effects are forbidden.
    ignore_throw : bool
        Leave out what happens only when the call as a whole ends by raising.
    on_failure : {"raise", "warn", "report"}
        Raise `AllocCheckError`; or warn, or stay silent, and run all the same.
    first_call : {"prepare", "forbid", "allow"}
        How process-wide lazy set-up is treated.
    entry : {"python", "c"}
        Check the native function, or its C entry.
    contracts : iterable of Contract
        Your own contracts for external symbols.
    methods : iterable of str, optional
        For a jitclass: which methods to check; all but ``__init__`` when left out.
    value_on_raise : int or float, optional
        What the C entry at ``.address`` returns when the function raises; zero, or NaN for
        floating point, when left out.
    verify_on_call : bool
        Compare the machine code with the proof (``.verify()``) before each call from Python. That
        costs a millisecond or so a call; calls from jitted code and from C are not intercepted.
    disjoint : bool or iterable of str
        Names of arrays among the arguments, or True for all, that never overlap. They are
        checked once per call: it raises ``ValueError`` when two of them do. Assignments such as
        ``out[1:] = x[:-1]`` then need no copy in case that they do, which would allocate.
    store : "user" or a directory, optional
        Keep what was proved there, and bring it back in later processes instead of compiling; see
        ``docs/store.md``. ``.stored`` says for each signature what happened, and why.
    **jit_options
        Options of ``njit``: ``fastmath``, ``error_model``, ``boundscheck``, ``nogil``,
        ``inline``, ``parallel``, ``locals``, ``pipeline_class`` and others. ``cache=True`` and
        object mode are refused.

    Returns
    -------
    CheckedDispatcher, or a decorator that makes one

    Raises
    ------
    AllocCheckError
        At the first call of a signature, or at definition, when the proof fails.
    UsageError, Refused
        For options and targets under which nothing can be proved.

    Examples
    --------
    >>> @check_allocs
    ... def gain(out, x, g):
    ...     for i in range(x.size):
    ...         out[i] = g * x[i]
    >>> import numpy as np
    >>> out = np.zeros(2)
    >>> gain(out, np.ones(2), 3.0)
    >>> out
    array([3., 3.])

    >>> @check_allocs("float64(float64[::1])")
    ... def total_of_double(x):
    ...     return (2.0 * x).sum()
    Traceback (most recent call last):
        ...
    alloccheck.errors.AllocCheckError: ...

    Notes
    -----
    The name and the behaviour at first call are AllocCheck.jl's.
    """
    policy = Policy.of(guarantee, ignore_throw, first_call, entry, contracts)
    storage = storage_at(store)
    made = _Making(policy, on_failure, value_on_raise, verify_on_call, disjoint, storage)
    return _decorate(target, made, methods, jit_options)


def nonblocking(target: Any = None, **options: Any) -> Any:
    """Prove that no call allocates, frees or waits: for real-time callbacks.

    Parameters
    ----------
    target, **options
        As `check_allocs`, with ``guarantee="nonblocking"``.

    Examples
    --------
    >>> @nonblocking("float64(float64)")
    ... def soft_clip(x):
    ...     return x / (1.0 + abs(x))
    >>> soft_clip.ctypes(1.0)
    0.5
    """
    options.setdefault("guarantee", Guarantee.NONBLOCKING)
    return check_allocs(target, **options)


def hermetic(target: Any = None, *, store: str | Path | None = None, **jit_options: Any) -> Any:
    """Compile as if nothing had been compiled before, without a check.

    A drop-in for ``njit`` whose types, values and machine code do not depend on what was compiled
    earlier, and which gets mutual recursion right.

    Parameters
    ----------
    target : Callable, str, signature or list of signatures
        As with ``njit``.
    store : "user" or a directory, optional
        As `check_allocs` takes it.
    **jit_options
        Options of ``njit``.

    Examples
    --------
    >>> @hermetic
    ... def down(n):
    ...     return 1 if n <= 0 else up(n - 1)
    >>> @hermetic
    ... def up(n):
    ...     return 2.5 if n <= 0 else down(n - 1)
    >>> down(3), up(3)
    (2.5, 1.0)
    """
    return _decorate(target, _Making(storage=storage_at(store)), None, jit_options)


@dataclass(frozen=True)
class _Making:
    """What makes a dispatcher, apart from its function and Numba's options."""

    policy: Policy | None = None
    on_failure: str = "raise"
    value_on_raise: int | float | None = None
    verify_on_call: bool = False
    disjoint: bool | Iterable[str] = False
    storage: Storage | None = None


def _decorate(
    target: Any,
    making: _Making,
    methods: Iterable[str] | None,
    jit_options: dict[str, Any],
) -> Any:
    if making.on_failure not in _ON_FAILURE:
        raise UsageError(
            f"on_failure must be one of {', '.join(_ON_FAILURE)}, found {making.on_failure!r}"
        )
    require_jit_enabled()
    own = ("locals", "pipeline_class")
    checked_options({k: v for k, v in jit_options.items() if k not in own})

    def make(function: Any) -> Any:
        if inspect.isclass(function):
            return _check_jitclass(function, making, methods, jit_options)
        return _dispatcher_for(function, making, jit_options)

    if making.storage is None:
        _load_checker()
    if target is None:
        return make
    signatures = _signatures(target)
    if signatures is None:
        return make(target)

    def make_eager(function: Any) -> Any:
        dispatcher = _dispatcher_for(function, making, jit_options)
        dispatcher.prove_now(signatures)
        return dispatcher

    return make_eager


def _load_checker() -> None:
    """Load what the first call of any function needs: not at that call, but at the definition.

    A store may make it needless.
    """
    from alloccheck import check, crosscheck  # noqa: F401
    from alloccheck.analysis.contracts import contract_lookup

    crosscheck.load()
    contract_lookup()("NRT_incref")  # reads the table that nearly every function needs


def _signatures(target: Any) -> tuple[Any, ...] | None:
    """Return declared signatures, or None when `target` is what is to be decorated."""
    if isinstance(target, list):
        for one in target:
            parse_signature(one)
        return tuple(target)
    if isinstance(target, str) or sigutils.is_signature(target):
        parse_signature(target)
        return (target,)
    return None


def _dispatcher_for(target: Any, making: _Making, jit_options: dict[str, Any]) -> CheckedDispatcher:
    options = dict(jit_options)
    declared_locals = dict(options.pop("locals", None) or {})
    pipeline = options.pop("pipeline_class", None)
    passed = checked_options(options)
    function = python_function(target)
    own: dict[str, Any] = {"nopython": True, "boundscheck": None}
    options_of_target, locals_of_target, pipeline_of_target = own_settings(target)
    inherited = {k: v for k, v in options_of_target.items() if k not in ("nopython", "cache")}
    checked_options(inherited)
    own.update(inherited)
    declared_locals = {**locals_of_target, **declared_locals}
    pipeline = pipeline or pipeline_of_target
    disjoint = parameters_named(making.disjoint, inspect.signature(function).parameters)
    if disjoint:
        pipeline = disjoint_pipeline(base_pipeline(pipeline), disjoint)
    failure: OnFailure = making.on_failure  # type: ignore[assignment]
    kind = VerifyingDispatcher if making.verify_on_call else CheckedDispatcher
    return kind(
        function,
        locals=declared_locals,
        targetoptions={**own, **passed},
        policy=making.policy,
        on_failure=failure,
        value_on_raise=making.value_on_raise,
        pipeline_class=pipeline,
        storage=making.storage,
    )


def _check_jitclass(
    owner: Any,
    making: _Making,
    methods: Iterable[str] | None,
    jit_options: dict[str, Any],
) -> Any:
    """Replace a jitclass's methods by checked ones and return the class."""
    class_type = getattr(owner, "class_type", None)
    if not isinstance(class_type, types.ClassType):
        raise UsageError(
            f"{owner.__qualname__} is a class, but not a jitclass; decorate its methods, or put "
            "check_allocs above @jitclass"
        )
    table = class_type.jit_methods
    chosen = [name for name in table if name != "__init__"] if methods is None else list(methods)
    missing = [name for name in chosen if name not in table]
    if missing:
        raise UsageError(
            f"the jitclass {owner.__name__} has no method {', '.join(missing)}; it has "
            f"{', '.join(sorted(table))}"
        )
    for name in chosen:
        table[name] = _dispatcher_for(table[name], making, jit_options)
    return owner

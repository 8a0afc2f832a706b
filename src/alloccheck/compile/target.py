"""From what a user hands over (function, dispatcher, C callback, arguments) to a `CompileJob`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.disjoint import disjoint_pipeline, parameters_named
from alloccheck.compile.job import CompileJob, checked_options, parse_signature, require_jit_enabled
from alloccheck.errors import UsageError

# isort: split
from numba.core import registry, types, utils
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.typing.templates import fold_arguments
from numba.core.typing.typeof import Purpose, typeof
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc


def python_function(target: Any) -> Callable[..., Any]:
    """Return the Python function behind a target.

    Parameters
    ----------
    target : Callable
        A Python function, an ``njit`` dispatcher or a ``cfunc`` callback.

    Raises
    ------
    UsageError
        For anything that Numba does not compile.

    Examples
    --------
    >>> python_function(len)
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: expected a Python function, an njit dispatcher or a cfunc, found \
builtin_function_or_method: <built-in function len>
    """
    if isinstance(target, registry.CPUDispatcher):
        return target.py_func  # type: ignore[no-any-return]
    if isinstance(target, CFunc):
        return target._pyfunc  # type: ignore[no-any-return]
    if inspect.isfunction(target):
        return target
    if inspect.ismethod(target):
        return python_function(target.__func__)
    if isinstance(target, Dispatcher):
        raise UsageError(
            f"expected a CPU dispatcher, found {type(target).__qualname__}: {target!r}"
        )
    hint = ""
    if isinstance(target, DUFunc | GUFunc | np.ufunc):
        hint = (
            ". NumPy runs a ufunc's loop. Ask about the function that vectorize or guvectorize was "
            "given, with the types of one element (or core), or about a compiled function that "
            "calls the ufunc"
        )
    raise UsageError(
        "expected a Python function, an njit dispatcher or a cfunc, found "
        f"{type(target).__qualname__}: {target!r}{hint}"
    )


def own_settings(target: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], Any]:
    """Return what the decorator that made a target was given: options, locals, compiler pipeline.

    Parameters
    ----------
    target : Callable
        See `python_function`.

    Returns
    -------
    options : mapping
        Jit options.
    locals : mapping
        Declared types of local variables.
    pipeline : type or None
        None for a plain Python function, which nobody compiles yet.

    Examples
    --------
    >>> from numba import cfunc
    >>> own_settings(cfunc("float64(float64)", error_model="numpy")(lambda x: 1.0 / x))[0]
    {'error_model': 'numpy'}
    """
    if isinstance(target, registry.CPUDispatcher):
        return target.targetoptions, target.locals, target._compiler.pipeline_class
    if isinstance(target, CFunc):
        compiler = target._compiler
        return compiler.targetoptions, compiler.locals, compiler.pipeline_class
    if inspect.ismethod(target):
        return own_settings(target.__func__)
    return {}, {}, None


def make_job(
    target: Any, signature: Any = None, options: Mapping[str, Any] | None = None
) -> CompileJob:
    """Return the compile job for a target and a signature.

    Parameters
    ----------
    target : Callable
        See `python_function`.
    signature : str, tuple of types, or numba signature
        May be left out for a ``cfunc``, which has one.
    options : mapping
        Jit options; on a dispatcher or a ``cfunc`` they override its own.

    Raises
    ------
    UsageError
        For a bad signature, option or target.
    Refused
        For options under which nothing can be proved.
    """
    require_jit_enabled()
    function = python_function(target)
    given = dict(options or {})
    declared_locals = given.pop("locals", {}) or {}
    pipeline = given.pop("pipeline_class", None)
    disjoint = parameters_named(
        given.pop("disjoint", False), inspect.signature(function).parameters
    )
    passed = checked_options(given)
    if signature is None and isinstance(target, CFunc):
        signature = target._sig
    if signature is None:
        raise UsageError(f"no signature given for {function.__qualname__}")
    arguments, return_type = parse_signature(signature)
    folded = fold_types(function, arguments)
    dispatcher = target if isinstance(target, registry.CPUDispatcher) else None
    options_of_target, locals_of_target, pipeline_of_target = own_settings(target)
    own = {k: v for k, v in options_of_target.items() if k not in ("nopython", "cache")}
    if "forceobj" in own or options_of_target.get("nopython") is False:
        checked_options({"forceobj": True})
    if dispatcher is None or passed or declared_locals or pipeline or disjoint:
        passed = {**own, **passed}
        declared_locals = {**locals_of_target, **declared_locals}
        pipeline = pipeline or pipeline_of_target
        dispatcher = None
    if disjoint:
        pipeline = disjoint_pipeline(pipeline, disjoint)
    return CompileJob(
        function,
        dispatcher,
        folded,
        return_type,
        passed,
        declared_locals,
        pipeline_class=pipeline,
    )


def fold_types(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fit argument types to a function's parameters: defaults are omitted, the rest is ``*args``.

    Parameters
    ----------
    function : Callable
        The Python function.
    arguments : tuple of numba types
        As written in a signature.

    Raises
    ------
    UsageError
        When there are too many or too few.

    Examples
    --------
    >>> from numba import float64
    >>> fold_types(lambda x, y=2.0: x, (float64,))
    (float64, omitted(default=2.0))
    """
    parameters = utils.pysignature(function)
    if any(isinstance(one, types.StarArgTuple | types.Omitted) for one in arguments):
        return arguments
    try:
        return tuple(
            fold_arguments(
                parameters,
                arguments,
                {},
                lambda index, parameter, value: value,
                lambda index, parameter, default: types.Omitted(default),
                lambda index, parameter, values: types.StarArgTuple(values),
            )
        )
    except (TypeError, TypingError) as error:
        raise UsageError(
            f"the signature has {len(arguments)} argument types, but "
            f"{function.__qualname__}{parameters} does not take them: {error}"
        ) from None


def types_of_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    literal: frozenset[int] = frozenset(),
) -> tuple[Any, ...]:
    """Return the types with which Numba would compile a call.

    Parameters
    ----------
    function : Callable
        The Python function.
    args, kwargs
        The call's arguments.
    literal : frozenset of int
        Parameters that are typed by value, as ``numba.literally`` asks.

    Raises
    ------
    UsageError
        When an argument has no Numba type, or the arguments do not fit the function.
    """
    parameters = utils.pysignature(function)

    def one(index: int, parameter: Any, value: Any) -> Any:
        if index in literal:
            return types.literal(value)
        try:
            found = typeof(value, Purpose.argument)
        except ValueError as error:
            raise UsageError(
                f"argument {getattr(parameter, 'name', index)!r} of {function.__qualname__} has no "
                f"Numba type: {error}"
            ) from None
        return found

    try:
        return tuple(
            fold_arguments(
                parameters,
                args,
                dict(kwargs),
                one,
                lambda index, parameter, default: types.Omitted(default),
                lambda index, parameter, values: types.StarArgTuple(
                    tuple(one(index, parameter, value) for value in values)
                ),
            )
        )
    except (TypeError, TypingError) as error:
        raise UsageError(f"the arguments do not fit {function.__qualname__}: {error}") from None

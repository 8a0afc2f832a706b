"""One compile as an immutable value: the question, and the configuration it is asked under.

A `CompileJob` holds everything that a verdict depends on. Options are validated here, before
anything is compiled.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as ll

from alloccheck.compile import numba_internals
from alloccheck.errors import InterpreterRefused, Refused, UsageError

# isort: split
from numba.core import config, sigutils, types, typing
from numba.core.codegen import get_host_cpu_features

PASSED_OPTIONS = frozenset(
    {
        "fastmath",
        "error_model",
        "boundscheck",
        "nogil",
        "inline",
        "forceinline",
        "parallel",
        "no_rewrites",
        "debug",
        "writable_args",
        "_nrt",
        "_dbg_extend_lifetimes",
        "_dbg_optnone",
    }
)
"""Options of ``njit`` that pass through unchanged."""

REFUSED_OPTIONS = {
    "cache": "a cached function brings back machine code that was not checked, and its key lacks "
    "callees and options; proved artifacts have a store of their own",
    "forceobj": "object mode runs in the interpreter: it allocates by construction",
    "looplift": "loop lifting falls back to object mode",
}

CODE_SETTINGS = (
    "OPT",
    "BOUNDSCHECK",
    "CPU_NAME",
    "CPU_FEATURES",
    "ENABLE_AVX",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "DISABLE_INTEL_SVML",
    "LLVM_REFPRUNE_PASS",
    "LLVM_REFPRUNE_FLAGS",
    "DEBUGINFO_DEFAULT",
    "ENABLE_PROFILING",
    "EXTEND_VARIABLE_LIFETIMES",
    "OPTNONE",
    "DEBUG_JIT",
    "DEBUG_NRT",
    "JIT_COVERAGE",
    "THREADING_LAYER",
)
"""Process-wide settings of Numba that change, or may change, the machine code."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything outside the program that its machine code depends on.

    Parameters
    ----------
    settings : tuple of (str, str)
        Numba's process-wide settings.
    cpu_name, cpu_features, triple : str
        What code is generated for.
    versions : tuple of (str, str)
        Packages and compiler.
    """

    settings: tuple[tuple[str, str], ...]
    cpu_name: str
    cpu_features: str
    triple: str
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def current(cls) -> Configuration:
        """Read the configuration as it is now.

        Examples
        --------
        >>> Configuration.current() == Configuration.current()
        True
        """
        # As every compile does: what the environment says now is what holds.
        config.reload_config()
        settings = tuple(
            (name, _text(getattr(config, name))) for name in CODE_SETTINGS if hasattr(config, name)
        )
        name = config.CPU_NAME if config.CPU_NAME is not None else ll.get_host_cpu_name()
        features = (
            config.CPU_FEATURES if config.CPU_FEATURES is not None else get_host_cpu_features()
        )
        return cls(
            settings=settings,
            cpu_name=name,
            cpu_features=features,
            triple=ll.get_process_triple(),
            versions=tuple(sorted(numba_internals.versions().items())),
        )

    def changed_to(self, other: Configuration) -> tuple[str, ...]:
        """Return a sentence part for each setting in which `other` differs.

        Examples
        --------
        >>> here = Configuration.current()
        >>> here.changed_to(here)
        ()
        """
        mine, theirs = _flat(self.to_json()), _flat(other.to_json())
        return tuple(
            f"{name} was {mine.get(name, 'absent')!r} and is {theirs.get(name, 'absent')!r}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for certificates and reports."""
        return {
            "settings": dict(self.settings),
            "cpu_name": self.cpu_name,
            "cpu_features": self.cpu_features,
            "triple": self.triple,
            "versions": dict(self.versions),
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the configuration, in hexadecimal."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _text(setting: Any) -> str:
    """Return a setting as text; Numba's optimisation level is a number, or the word "max"."""
    if getattr(setting, "is_opt_max", False):
        return "max"
    return str(int(setting)) if isinstance(setting, int | bool) else str(setting)


def _flat(data: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration's entries by their own names."""
    flat: dict[str, str] = {}
    for name, value in data.items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: str(value)})
    return flat


@dataclass(frozen=True)
class CompileJob:
    """A function, a signature and options: the question that an artifact answers.

    Parameters
    ----------
    function : Callable
        The Python function.
    dispatcher : object or None
        The user's dispatcher of it, where there is one; never compiled or changed.
    argument_types : tuple of numba types
        Folded argument types, one per parameter.
    return_type : numba type or None
        The declared return type, or None to infer it.
    options : mapping
        Numba's jit options that pass through.
    locals : mapping
        Declared types of local variables.
    value_on_raise : int, float or None
        What the C entry that returns a value returns when the function raised.
    pipeline_class : type or None
        The compiler pipeline of a function without a dispatcher, when it is not Numba's own.
    """

    function: Callable[..., Any]
    dispatcher: Any
    argument_types: tuple[Any, ...]
    return_type: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    locals: Mapping[str, Any] = field(default_factory=dict)
    value_on_raise: int | float | None = None
    pipeline_class: Any = None

    @property
    def pipeline(self) -> Any:
        """The compiler pipeline that holds, the dispatcher's or one of its own; None: Numba's."""
        if self.dispatcher is not None:
            return self.dispatcher._compiler.pipeline_class
        return self.pipeline_class


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate jit options and return those that pass through to Numba.

    Parameters
    ----------
    options : mapping
        Keyword arguments as given to ``njit``.

    Returns
    -------
    dict
        Without ``nopython``, which always holds.

    Raises
    ------
    Refused
        For an option under which nothing could be proved, with the reason.
    UsageError
        For an option that Numba does not have.

    Examples
    --------
    >>> checked_options({"fastmath": True, "nopython": True})
    {'fastmath': True}
    >>> checked_options({"fastmaths": True})
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: unknown option 'fastmaths'; did you mean 'fastmath'?
    """
    passed: dict[str, Any] = {}
    for name, value in options.items():
        if name == "nopython":
            if not value:
                raise InterpreterRefused(
                    "nopython=False is refused: object mode runs in the interpreter"
                )
        elif name in REFUSED_OPTIONS:
            if value:
                kind = InterpreterRefused if name == "forceobj" else Refused
                raise kind(f"{name}={value!r} is refused: {REFUSED_OPTIONS[name]}")
        elif name in PASSED_OPTIONS:
            passed[name] = value
        else:
            near = difflib.get_close_matches(name, PASSED_OPTIONS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"unknown option {name!r}{hint}")
    return passed


def require_jit_enabled() -> None:
    """Refuse to prove anything while Numba is switched off.

    Raises
    ------
    Refused
        When ``NUMBA_DISABLE_JIT`` is set.
    """
    if config.DISABLE_JIT:
        raise Refused(
            "NUMBA_DISABLE_JIT is set: functions run in the interpreter, where nothing is proved. "
            "Unset it to prove; or run the plain Python function by choice (.py_func)"
        )


def parse_signature(signature: Any) -> tuple[tuple[Any, ...], Any]:
    """Turn a signature in any of Numba's forms into argument types and return type.

    Parameters
    ----------
    signature : str, tuple of numba types, or numba signature
        For example ``"void(float64[::1])"`` or ``(types.float64,)``.

    Returns
    -------
    arguments : tuple of numba types
    return_type : numba type or None
        None when the signature does not declare one.

    Raises
    ------
    UsageError
        When it cannot be understood, with the part that is wrong.

    Examples
    --------
    >>> parse_signature("float64(int64)")
    ((int64,), float64)
    >>> parse_signature("float64(int65)")
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: cannot understand the signature 'float64(int65)': \
name 'int65' is not defined. Write it as Numba does, for example 'void(float64[::1], int64)'
    """
    advice = "Write it as Numba does, for example 'void(float64[::1], int64)'"
    try:
        arguments, return_type = sigutils.normalize_signature(signature)
    except Exception as error:  # Numba evaluates the text: any error may come out of it
        raise UsageError(
            f"cannot understand the signature {signature!r}: {error}. {advice}"
        ) from None
    wrong = [a for a in arguments if not isinstance(a, types.Type)]
    if wrong:
        raise UsageError(
            f"cannot understand the signature {signature!r}: {wrong[0]!r} is not a Numba type. "
            f"{advice}"
        )
    return tuple(arguments), return_type


def method_signature(receiver: Any, signature: Any) -> Any:
    """Return the signature of a method, from one that leaves out ``self``.

    Parameters
    ----------
    receiver : numba type
        The type of ``self``.
    signature : str, tuple of numba types, or numba signature
        Of the other arguments.

    Raises
    ------
    UsageError
        When it cannot be understood.

    Examples
    --------
    >>> method_signature(types.none, "float64(int64)")
    (none, int64) -> float64
    >>> method_signature(types.none, "()")
    (none,)
    """
    arguments, return_type = parse_signature(signature)
    if return_type is None:
        return (receiver, *arguments)
    return typing.signature(return_type, receiver, *arguments)

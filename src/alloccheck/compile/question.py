"""The key of a stored artifact: a digest of all that it depends on, made without compiling.

Everything that could make Numba emit other code, or the proof come out otherwise, goes in:
too much costs a fresh proof, too little would run stale code.
"""

from __future__ import annotations

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.extensions import Extensions, Registration
from alloccheck.compile.identity import Identity
from alloccheck.compile.installation import fingerprint
from alloccheck.compile.job import CompileJob, Configuration

# isort: split
from numba.core import config, entrypoints

FORMAT = "alloccheck.artifact/1"
"""The container's format; part of the key."""

_OF_NUMBAS_CACHE = ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")
"""Settings of Numba's own disk cache, which is neither read nor written."""


def key_of(
    job: CompileJob, configuration: Configuration, asked: str, identity: Identity | None = None
) -> str:
    """Return the key under which a job's artifact is kept.

    Parameters
    ----------
    job : CompileJob
        The question.
    configuration : Configuration
        The present one.
    asked : str
        What is to be proved, as text that differs whenever the proof could.
    identity : Identity, optional
        What digests functions and values, with nothing in it yet.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    Unstorable
        When something that matters cannot be told apart from something else in another process.
    """
    # Whatever compiles loads extensions first; they are part of the question.
    entrypoints.init_all()
    identity = Identity() if identity is None else identity
    identity.text("format", FORMAT)
    identity.text("installation", fingerprint())
    identity.text("configuration", configuration.digest)
    for name in sorted(vars(config)):
        if name.isupper() and name not in _OF_NUMBAS_CACHE:
            identity.text("setting", f"{name}={_setting(name)}")
    identity.text("asked", asked)
    for one in job.argument_types:
        identity.type(one)
    identity.text("arguments", str(len(job.argument_types)))
    if job.return_type is not None:
        identity.type(job.return_type)
    identity.text("on raise", repr(job.value_on_raise))
    identity.options(job.options)
    identity.locals(job.locals)
    identity.pipeline(job.function.__qualname__, job.pipeline)
    if job.function.__module__ is None:
        identity.unknown("the function", job.function, "the function belongs to no module")
    if job.dispatcher is None:
        identity.function(job.function)
    else:
        identity.value(job.function.__qualname__, job.dispatcher)
    _add_extensions(identity)
    return identity.digest()


def _setting(name: str) -> str:
    value = getattr(config, name)
    if getattr(value, "is_opt_max", False):
        return "max"
    if value is not None and not isinstance(value, bool | int | float | str):
        return str(type(value))
    return repr(value)


def _add_extensions(identity: Identity) -> None:
    """Add what others have registered with Numba and a compile could choose.

    What is about functions and classes of others is chosen only where these are met, and they are
    met only where what is digested refers to them.
    """
    waiting = list(_extensions.registrations())
    while waiting:
        identity.settle()
        later: list[Registration] = []
        for one in waiting:
            if not all(map(identity.has_met, one.foreign_keys)):
                later.append(one)
                continue
            identity.text("registered", one.label)
            for function in one.functions:
                identity.function(function)
        if len(later) == len(waiting):
            return
        waiting = later


_extensions = Extensions()
"""Remembers what was looked at; it does not change what is found."""

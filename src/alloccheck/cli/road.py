"""What the commands use of the rest of the package, in one value that tests can replace."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from alloccheck.findings import Report


@dataclass(frozen=True, slots=True)
class Road:
    """The way from a function to a report.

    Parameters
    ----------
    analyze : callable
        :func:`alloccheck.check.analyze`.
    decorated : type
        Class of the functions that our decorators make; instances have `guarantee`,
        `ignore_throw`, `py_func`, `declared_signatures` and `reports`.
    deferred : callable
        Context manager under which decorators with signatures do not prove at once, so that a
        module that holds a failing proof can be imported.
    of_method : callable
        From the type of ``self`` and a string without it to the signature of a jitclass's method.
    """

    analyze: Callable[..., Report]
    decorated: type
    deferred: Callable[[], AbstractContextManager[object]]
    of_method: Callable[[Any, str], Any]


def default_road() -> Road:
    """Return the real one; imports Numba."""
    # By name, because Numba is slow to import and no other command needs it.
    check: Any = importlib.import_module("alloccheck.check")
    dispatcher: Any = importlib.import_module("alloccheck.dispatcher")
    job: Any = importlib.import_module("alloccheck.compile.job")
    return Road(
        check.analyze,
        dispatcher.CheckedDispatcher,
        dispatcher.deferred_proofs,
        job.method_signature,
    )

"""The oracle: runs compiled functions in a process of its own and counts what they really do.

A proof says what a function can never do; the oracle tries to refute it. What it finds is
certain, what it does not find proves nothing. See ``docs/oracle.md``.
"""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from alloccheck.oracle.client import Oracle
from alloccheck.oracle.counts import (
    CallCounts,
    Category,
    Counts,
    Coverage,
    Event,
    Place,
    Remote,
    Tally,
)
from alloccheck.oracle.errors import (
    OracleError,
    OracleUnavailable,
    RemoteError,
    WorkerCrashed,
    WorkerTimeout,
)
from alloccheck.oracle.references import FunctionReference, Made, made_by

__all__ = [
    "CallCounts",
    "Category",
    "Counts",
    "Coverage",
    "Event",
    "FunctionReference",
    "Made",
    "Oracle",
    "OracleError",
    "OracleUnavailable",
    "Place",
    "Remote",
    "RemoteError",
    "Tally",
    "WorkerCrashed",
    "WorkerTimeout",
    "count_effects",
    "default_oracle",
    "made_by",
]


@cache
def default_oracle() -> Oracle:
    """Return this process's shared oracle, which ends when the process does."""
    oracle = Oracle()
    atexit.register(oracle.close)
    return oracle


def count_effects(function: Any, *arguments: Any, calls: int = 3, fresh: bool = False) -> Counts:
    """Call a compiled function in the shared measuring process and count what it does.

    Parameters
    ----------
    function : dispatcher, FunctionReference or Made
        See `Oracle.count`.
    *arguments : object
        What to call it with.
    calls : int
        How often to call it; the counts of each call are kept.
    fresh : bool
        Make the arguments anew for each call.

    Returns
    -------
    Counts
        Its ``allocations`` are those of the last call, ``first_call`` tells of the first.

    Raises
    ------
    OracleError, UsageError
        As `Oracle.count`.

    Examples
    --------
    With ``gain`` a compiled function of a module::

        counts = count_effects(gain, out, x, 2.0)
        assert counts.allocations == 0, str(counts)
    """
    return default_oracle().count(function, *arguments, calls=calls, fresh=fresh)

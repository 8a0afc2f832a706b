"""Arguments as text that people can read and, for small ones, type again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_SHOWN = 6


def described(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return arguments as text.

    Parameters
    ----------
    names : sequence of str
        Of the parameters; further values have none.
    values : sequence
        The arguments.

    Examples
    --------
    >>> described(["x", "g"], [np.arange(3.0), 2.0])
    'x=array([0.0, 1.0, 2.0], float64), g=2.0'
    >>> described(["x"], [np.zeros((40, 2))[::2]])
    'x=array of float64, shape (20, 2), strides (32, 8)'
    """
    parts = []
    for number, value in enumerate(values):
        name = f"{names[number]}=" if number < len(names) else ""
        parts.append(name + _shown(value))
    arrays = [one for one in values if isinstance(one, np.ndarray)]
    overlaps = any(
        np.may_share_memory(one, other)
        for index, one in enumerate(arrays)
        for other in arrays[:index]
    )
    return ", ".join(parts) + (" (memory overlaps)" if overlaps else "")


def weight(values: Sequence[Any]) -> int:
    """Return how large arguments are, to prefer small ones.

    Examples
    --------
    >>> weight([np.zeros(3), 1.0]) < weight([np.zeros(5), 1.0])
    True
    """
    total = 0
    for one in values:
        if isinstance(one, np.ndarray):
            total += 1 + one.size
        elif isinstance(one, tuple | list):
            total += 1 + weight(one)
        else:
            total += len(repr(one)) > 4
    return total


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        plain = value.flags.c_contiguous and value.flags.writeable
        if value.size <= _SHOWN and plain:
            return f"array({value.tolist()}, {value.dtype})"
        strides = "" if value.flags.c_contiguous else f", strides {value.strides}"
        locked = "" if value.flags.writeable else ", read-only"
        return f"array of {value.dtype}, shape {value.shape}{strides}{locked}"
    if isinstance(value, np.generic):
        return f"{value.dtype}({value.item()!r})"
    text = repr(value) if not hasattr(value, "factory") else str(value)
    return text if len(text) <= 80 else text[:77] + "..."

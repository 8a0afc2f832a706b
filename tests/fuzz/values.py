"""What random programs are called with: one signature for all, so that one driver calls them.

Knows nothing of programs or proofs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import typeof, types
from numba.experimental import jitclass
from numba.typed import Dict, List

F, N = types.float64, types.int64
RECORD = np.dtype([("a", "f8"), ("b", "i8"), ("v", "f8", (3,))])


@jitclass([("total", F), ("count", N), ("data", F[::1]), ("pair", types.UniTuple(F, 2))])
class Box:
    """State of four kinds."""

    def __init__(self, size):
        self.total = 0.0
        self.count = 0
        self.data = np.zeros(size)
        self.pair = (0.0, 1.0)

    def put(self, value):
        """Keep a value in a ring."""
        self.data[self.count % self.data.size] = value
        self.count += 1
        self.total += value

    def swap(self, data):
        """Let go of one array and keep another."""
        self.data = data


PARAMETERS: dict[str, Any] = {
    "x": F[::1],
    "y": F[::1],
    "s": F[:],
    "ro": types.Array(F, 1, "C", readonly=True),
    "m": F[:, ::1],
    "fm": types.Array(F, 2, "F"),
    "am": F[:, :],
    "n": N,
    "a": F,
    "items": types.ListType(F),
    "table": types.DictType(N, F),
    "names": types.DictType(types.unicode_type, F),
    "text": types.unicode_type,
    "rec": typeof(np.zeros(1, RECORD)),
    "box": Box.class_type.instance_type,
    "draw": typeof(np.random.default_rng()),
}
SIGNATURE = tuple(PARAMETERS.values())
SIZES = (4, 1, 6, 9)
"""Of the arrays, call by call."""


def overlapping(size: int, overlap: str) -> tuple[Any, Any, Any]:
    """Two contiguous arrays and a strided one.

    Parameters
    ----------
    size : int
        Of each.
    overlap : {"same", "shifted", "apart"}
        How the first two lie to each other; the third always overlaps with them.
    """
    memory = np.linspace(-1.0, 2.0, 2 * size + 1)
    start = {"same": 0, "shifted": 1, "apart": size}[overlap]
    return memory[:size], memory[start : size + start], memory[: 2 * size : 2]


def arguments(k: int, overlap: str) -> tuple[Any, ...]:
    """Arguments of the call number `k`.

    Parameters
    ----------
    k : int
        Less than the number of `SIZES`.
    overlap : {"same", "shifted", "apart"}
        Of `x`, `y` and `s`, see `overlapping`.
    """
    size = SIZES[k]
    read_only = np.linspace(0.0, 1.0, size)
    read_only.flags.writeable = False
    side = max(size, 2)  # a matrix of one element would have all layouts
    square = np.linspace(0.5, 2.0, side * side).reshape(side, side) + np.eye(side)
    items, table = List.empty_list(F), Dict.empty(N, F)
    names = Dict.empty(types.unicode_type, F)
    for i in range(4):
        items.append(float(i))
        table[i] = float(i)
        names["abcd"[i]] = float(i)
    records = np.zeros(size, RECORD)
    records["a"] = np.linspace(0.0, 1.0, size)
    return (
        *overlapping(size, overlap),
        read_only,
        square,
        np.asfortranarray(square * 0.5),
        np.linspace(0.0, 1.0, 4 * side * side).reshape(2 * side, 2 * side)[::2, ::-2],
        (2, 0, 5, 1)[k],
        0.75,
        items,
        table,
        names,
        ("ab", "", "é", "b")[k],
        records,
        Box(size),
        np.random.default_rng(k),
    )

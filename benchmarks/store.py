"""From Numba being imported to a first result, with what an earlier process left behind.

``python -m benchmarks.store numba|stored CASE FOLDER``: by ``njit(cache=True)``, whose folder is
NUMBA_CACHE_DIR, or from the artifact store, its import included. The first process of each way
fills the folder; later ones must compile nothing. Numba's cache imports ``scipy.linalg``, where
there is one; a case whose name says so has imported it before the clock starts.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import numba
import numpy as np

from benchmarks.process import report_result


def scalar(x):
    return x * x + 1.0


def gain(out, x, g):
    for i in range(x.size):
        out[i] = g * np.sin(x[i])


def limiter(out, x, state, attack, release, limit):
    if x.size != out.size:
        raise ValueError("the buffers differ")
    level = state[0]
    for i in range(x.size):
        peak = abs(x[i])
        level += (attack if peak > level else release) * (peak - level)
        out[i] = x[i] * (limit / level if level > limit else 1.0)
    state[0] = level


IMPORTED = ", SciPy imported before"

CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "scalar": (scalar, (2.0,)),
    "loop": (gain, (np.zeros(8), np.ones(8), 2.0)),
    "limiter": (limiter, (np.zeros(8), np.ones(8), np.zeros(1), 0.5, 0.1, 0.8)),
}
CASES.update({f"{name}{IMPORTED}": one for name, one in list(CASES.items())})


def main(way: str, case: str, folder: str) -> None:
    function, arguments = CASES[case]
    if case.endswith(IMPORTED):
        importlib.import_module("scipy.linalg")
    wall, cpu = time.perf_counter(), time.process_time()
    if way == "numba":
        dispatcher = numba.njit(cache=True)(function)
    else:
        from alloccheck import check_allocs

        dispatcher = check_allocs(store=folder)(function)
    dispatcher(*arguments)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if way == "numba":
        compiled = sum(dispatcher.stats.cache_misses.values())
    else:
        compiled = sum(one.state != "loaded" for one in dispatcher.stored.values())
    report_result({"cpu": cpu, "wall": wall, "compiled": compiled})


if __name__ == "__main__":
    main(*sys.argv[1:])

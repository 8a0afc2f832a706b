"""What a call from Python costs, checked against plain Numba, interleaved in this process.

``python -m benchmarks.calls [CALLS] [BATCHES]``
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from alloccheck import check_allocs
from benchmarks.process import report_result


def scalar(x):
    return x + 1.0


def two_arrays(out, x):
    out[0] = x[0]


def six_arrays(a, b, c, d, e, f):
    f[0] = a[0] + b[0] + c[0] + d[0] + e[0]


def _batch(function: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    return (time.perf_counter() - started) / calls


def main(calls: int = 20_000, batches: int = 61) -> None:
    found = {}
    for function, count in ((scalar, 0), (two_arrays, 2), (six_arrays, 6)):
        arguments = tuple(np.zeros(4) for _ in range(count)) or (1.0,)
        ways = {"numba": njit(function), "checked": check_allocs(function)}
        for one in ways.values():
            _batch(one, arguments, calls)
        times: dict[str, list[float]] = {name: [] for name in ways}
        ratios = []
        for number in range(batches):
            order = list(ways) if number % 2 else list(reversed(ways))
            for name in order:
                times[name].append(_batch(ways[name], arguments, calls))
            ratios.append(times["checked"][-1] / times["numba"][-1])
        found[function.__name__.replace("_", " ")] = {
            "numba": statistics.median(times["numba"]),
            "checked": statistics.median(times["checked"]),
            "ratio": statistics.median(ratios),
        }
    report_result(found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

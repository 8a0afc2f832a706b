"""Memory that one artifact keeps, from the growth of the resident set over many.

``python -m benchmarks.memory numba|checked [COUNT]``
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

from numba import njit

from alloccheck import check_allocs
from benchmarks.process import report_result

SOURCE = """
def kernel(out, x, g):
    for i in range(x.size):
        out[i] = g * x[i] + {number}.5
"""
SIGNATURE = "void(float64[::1], float64[::1], float64)"
WARM_UP = 20


def _function(number: int):
    names: dict[str, object] = {"__name__": __name__}
    exec(SOURCE.format(number=number), names)  # the text is ours
    return names["kernel"]


def _resident() -> float:
    """Megabytes, with what the allocator could give back given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main(way: str, count: int = 200) -> None:
    decorate = check_allocs(SIGNATURE) if way == "checked" else njit(SIGNATURE)
    kept = [decorate(_function(number)) for number in range(WARM_UP)]
    before = _resident()
    kept += [decorate(_function(number)) for number in range(WARM_UP, WARM_UP + count)]
    growth = _resident() - before
    without_cache = None
    if way == "checked":
        from alloccheck.compile import canonical

        canonical.shared.clear()
        without_cache = (_resident() - before) / count
    report_result({"each": growth / count, "without cache": without_cache, "count": len(kept)})


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

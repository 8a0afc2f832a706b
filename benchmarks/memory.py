"""Memory that one artifact keeps, from the growth of the resident set over many.

``python -m benchmarks.memory numba|checked loop|mixed [COUNT]``
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import resource
import statistics
import sys
from pathlib import Path

import numpy as np
from numba import njit

from alloccheck import check_allocs
from benchmarks.process import report_result

LOOP = (
    """
def kernel(out, x, g):
    for i in range(x.size):
        out[i] = g * x[i] + {number}.5
""",
    "void(float64[::1], float64[::1], float64)",
)
WORKLOADS = {
    "loop": (LOOP,),
    "mixed": (
        LOOP,
        ("def kernel(x):\n    return x * {number}.5\n", "float64(float64)"),
        (
            "def kernel(x, i):\n"
            "    if i > {number}:\n"
            "        raise IndexError('beyond the end')\n"
            "    return np.sin(x[i]) + np.exp(x[0])\n",
            "float64(float64[:], int64)",
        ),
        (
            "def kernel(a, b, out):\n    out[:, 0] = a[0] + b * {number}.5\n",
            "void(float64[:, ::1], float64[::1], float64[:, ::1])",
        ),
        (
            "def kernel(x):\n    return x.mean() + x.std() + (x > {number}.5).sum()\n",
            "float64(float64[::1])",
        ),
    ),
}
"""Sources with signatures, used in turn; the number makes each a function of its own."""
WARM_UP = 20
BATCH = 20


def _made(decorate, workload: str, number: int):
    source, signature = WORKLOADS[workload][number % len(WORKLOADS[workload])]
    names: dict[str, object] = {"__name__": __name__, "np": np}
    exec(source.format(number=number), names)  # the text is ours
    return decorate(signature)(names["kernel"])


def _resident() -> float:
    """Megabytes, with what the allocator could give back given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main(way: str, workload: str, count: int = 200) -> None:
    # Whether it is proved changes nothing of what is kept: the report, too, is.
    decorate = _checked if way == "checked" else njit
    kept = [_made(decorate, workload, number) for number in range(WARM_UP)]
    sizes = [_resident()]
    for start in range(WARM_UP, WARM_UP + count, BATCH):
        kept += [_made(decorate, workload, number) for number in range(start, start + BATCH)]
        sizes.append(_resident())
    growth = [(b - a) / BATCH for a, b in itertools.pairwise(sizes)]
    found = {
        "each": (sizes[-1] - sizes[0]) / count,
        "median of batches": statistics.median(growth),
        "count": len(kept) - WARM_UP,
    }
    if way == "checked":
        from alloccheck.compile import canonical

        # By the allocator's own account: what is freed among things that stay is not given back.
        start = _allocated()
        canonical.shared.clear()
        without_cache = _allocated()
        kept.clear()
        found["cache"] = (start - without_cache) / count
        found["artifact"] = (without_cache - _allocated()) / count
    report_result(found)


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def _allocated() -> float:
    """Megabytes in use by ``malloc``."""
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallInfo
    found = libc.mallinfo2()
    return (found.uordblks + found.hblkhd) / 1e6


def _checked(signature: str):
    return check_allocs(signature, on_failure="report")


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))

"""Growth of one process over many checks of ever new functions.

``python -m benchmarks.growth [CHECKS]`` prints the resident set after each tenth of them, and what
one check added since the first tenth.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

from numba import njit, types

from alloccheck import analyze

SOURCE = """
def f(x):
    y = total(x, {number}.0)
    if y > {number}:
        x[0] = y
    return y
"""
SIGNATURE = (types.float64[::1],)
PARTS = 10


@njit
def total(x, k):
    s = 0.0
    for i in range(x.size):
        s += x[i] * k
    return s


def resident() -> float:
    """Return the resident set in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    checks = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    first = 0.0
    for number in range(checks):
        names = {"total": total, "__name__": __name__}
        exec(SOURCE.format(number=number), names)  # the text is ours
        if not analyze(names["f"], SIGNATURE).ok:
            raise SystemExit(f"function {number} is not proved")
        if (number + 1) % (checks // PARTS) == 0:
            gc.collect()
            now = resident()
            first = first or now
            print(
                f"{number + 1} checks, {now:.0f} MB, {time.process_time():.0f} s of CPU", flush=True
            )
    since = checks - checks // PARTS
    print(f"each check since the first tenth: {(now - first) / since * 1000:.1f} KB")


if __name__ == "__main__":
    main()

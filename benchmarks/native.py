"""Compare reading all of libm with smda, and a warm query with a cold one.

Run: ``python benchmarks/native.py [path of a Python with smda]``. Prints medians and ratios. The
second argument-less part needs nothing but alloccheck.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from alloccheck.analysis.native import Decider
from alloccheck.native_cache import ChunkCache
from alloccheck.program.machine.lookup import all_functions, symbol_address

SMDA = """
import sys, time
from smda.Disassembler import Disassembler
begin = time.process_time()
report = Disassembler().disassembleFile(sys.argv[1])
print(time.process_time() - begin, len(list(report.getFunctions())))
"""


def seconds(action: Callable[[], object], times: int) -> float:
    """Return the median processor time of an action."""
    taken = []
    for _ in range(times):
        begin = time.process_time()
        action()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def whole_library() -> int:
    """Decide every function of libm without a cache."""
    decider = Decider()
    for address in all_functions("libm.so.6").values():
        decider.decide(address)
    return len(decider.walker.images.images)


def main() -> None:
    """Print the figures."""
    sin = symbol_address("libm.so.6", "sin")
    library = Decider().walker.images.find(sin)
    cold_all = seconds(whole_library, 3)
    functions = len(all_functions("libm.so.6"))
    print(f"all of libm, cold: {cold_all:.2f} s for {functions} functions")
    with tempfile.TemporaryDirectory() as place:
        with ChunkCache(Path(place) / "native") as cache:
            Decider(store=cache).decide(sin)
        cold = seconds(lambda: Decider().decide(sin), 5)
        warm = seconds(lambda: Decider(store=ChunkCache(Path(place) / "native")).decide(sin), 5)
        decider = Decider(store=ChunkCache(Path(place) / "native"))
        decider.decide(sin)
        again = seconds(lambda: decider.decide(sin), 50)
    print(
        f"sin: cold {1e3 * cold:.1f} ms, warm cache {1e3 * warm:.2f} ms, again {1e3 * again:.3f} ms"
    )
    print(f"all of libm cold / sin warm: {cold_all / warm:.0f}x")
    if len(sys.argv) > 1 and library is not None:
        command = [sys.argv[1], "-c", SMDA, library.path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        taken, count = done.stdout.split()[-2:]
        print(
            f"smda: {float(taken):.2f} s for {count} functions, {float(taken) / cold_all:.1f}x ours"
        )


if __name__ == "__main__":
    main()

"""Reading machine code, against smda and with what was kept: ``python -m benchmarks native``.

All of libm is read for the first time in a process, by us and by smda in turn, each in a fresh
process in which the imports are done. One function, cold and kept, is asked for again and again in
this process. Cold: nothing is kept but the table of names; modules and symbols are read anew. Kept:
in memory, or in a file that is opened and checked by each query. Processor times, medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alloccheck.analysis.native import Decider
from alloccheck.compile.collector import slow_collector
from alloccheck.native_answers import AnswerCache
from alloccheck.program.machine import x86_64  # noqa: F401  (imports are done before)
from alloccheck.program.machine.lookup import all_functions, symbol_address
from alloccheck.program.machine.view import current_view
from benchmarks.process import in_fresh_process, report_result

LIBRARY_RUNS = 5
SMDA = """
import sys, time
from smda.Disassembler import Disassembler
begin = time.process_time()
report = Disassembler().disassembleFile(sys.argv[1])
print(time.process_time() - begin, len(list(report.getFunctions())))
"""


def seconds(action: Callable[[], object], times: int, repeat: int = 1) -> float:
    """Return the median processor time of an action."""
    taken = []
    for _ in range(times):
        begin = time.process_time()
        for _ in range(repeat):
            action()
        taken.append((time.process_time() - begin) / repeat)
    return statistics.median(taken)


def whole_library() -> None:
    """Decide every function of libm without anything kept, as ``alloccheck native --all`` does."""
    decider = Decider()
    for address in all_functions("libm.so.6").values():
        decider.decide(address)


def main(smda: str = "") -> None:
    """Report the figures.

    Parameters
    ----------
    smda : str
        A Python that has smda, or ``"library"`` to read libm once and nothing else.
    """
    if smda == "library":
        # Until the answers are there, at the pace of the collector that the command sets.
        with slow_collector():
            report_result(seconds(whole_library, 1))
        return
    sin = symbol_address("libm.so.6", "sin")
    image = current_view().images.find(sin)
    assert image is not None
    found: dict[str, Any] = {
        "functions": len(all_functions("libm.so.6")),
        "cold": seconds(lambda: Decider().decide(sin), 9),
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "native"
        AnswerCache(folder).decide(sin)

        def from_file() -> None:
            current_view().kept.clear()
            AnswerCache(folder).decide(sin)

        found["file"] = seconds(from_file, 9, 20)
        found["warm"] = seconds(lambda: AnswerCache(folder).decide(sin), 9, 50)
    libraries, others = [], []
    command = [smda, "-c", SMDA, image.path]
    for _ in range(LIBRARY_RUNS):
        libraries.append(in_fresh_process("benchmarks.native", "library"))
        if smda:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken, count = done.stdout.split()[-2:]
            others.append(float(taken))
            found["smda functions"] = int(count)
    found["library"] = statistics.median(libraries)
    if smda:
        found["smda"] = statistics.median(others)
    report_result(found)


if __name__ == "__main__":
    main(*sys.argv[1:])

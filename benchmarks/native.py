"""Reading machine code, against smda and with what was kept: ``python -m benchmarks native``.

One process: all of libm cold, smda on the same file in a process of its own, and one function cold
and kept. Processor times, medians.
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
from alloccheck.native_answers import AnswerCache
from alloccheck.program.machine.lookup import all_functions, symbol_address
from alloccheck.program.machine.view import current_view
from benchmarks.process import report_result

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
    """Decide every function of libm without anything kept."""
    decider = Decider()
    for address in all_functions("libm.so.6").values():
        decider.decide(address)


def main(smda: str = "") -> None:
    """Report the figures.

    Parameters
    ----------
    smda : str
        A Python that has smda.
    """
    sin = symbol_address("libm.so.6", "sin")
    image = current_view().images.find(sin)
    assert image is not None
    found: dict[str, Any] = {
        "library": seconds(whole_library, 3),
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
    if smda:
        command = [smda, "-c", SMDA, image.path]
        runs = [
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            for _ in range(3)
        ]
        found["smda"] = statistics.median(float(run[-2]) for run in runs)
        found["smda functions"] = int(runs[0][-1])
    report_result(found)


if __name__ == "__main__":
    main(*sys.argv[1:])

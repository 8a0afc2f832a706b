"""The first call of one function in this process, by plain Numba or checked.

``python -m benchmarks.first_call numba|checked CASE``
"""

from __future__ import annotations

import sys
import time

from numba import njit

from benchmarks import functions
from benchmarks.process import report_result


def main(way: str, case: str) -> None:
    function, arguments_of = functions.CASES[case]
    arguments = arguments_of()
    if way == "checked":
        from alloccheck import check_allocs

        decorate = check_allocs(on_failure="report")
    else:
        decorate = njit
    # Helpers that a case calls are jitted by plain Numba either way, as users have them.
    functions.counting = njit(functions.counting)
    dispatcher = decorate(function)
    if case == "recursion":
        functions.fibonacci = dispatcher
    wall, cpu = time.perf_counter(), time.process_time()
    dispatcher(*arguments)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    timings = {}
    if way == "checked":
        (report,) = dispatcher.reports.values()
        timings = dict(report.timings)
    report_result({"cpu": cpu, "wall": wall, "timings": timings})


if __name__ == "__main__":
    main(*sys.argv[1:])

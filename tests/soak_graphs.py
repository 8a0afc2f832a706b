"""Soak run: many random call graphs, in batches that are processes of their own.

``python tests/soak_graphs.py [N] [--seed S] [--most M]`` checks N graphs (default 2000) of up to M
functions (default 8), and ends with 1 when one fails; the shrunk graph is printed as a program.
Machine code is kept as long as its process lives, hence the batches.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

BATCH = 50


def run_batch(count: int, seed: int, most: int) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    from graphs import Graph, graphs
    from random_graphs import check

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(most=most), st.integers(0, 2**32))
    def soak(graph: Graph, history: int) -> None:
        check(graph, history)

    soak()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.batch:
        run_batch(given.count, given.seed, given.most)
        return 0
    failed = 0
    start = time.monotonic()
    for done in range(0, given.count, BATCH):
        count = min(BATCH, given.count - done)
        arguments = [str(count), "--seed", str(given.seed + done), "--most", str(given.most)]
        # A crash of one batch is a failure like any other; the next one starts afresh.
        ended = subprocess.run([sys.executable, str(Path(__file__)), *arguments, "--batch"])
        failed += ended.returncode != 0
        passed = time.monotonic() - start
        print(f"{done + count} graphs, {failed} batches failed, {passed:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

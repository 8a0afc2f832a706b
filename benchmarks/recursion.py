"""What the fixpoint of recursion costs: cycles of functions against one plain compile of them.

``python benchmarks/recursion.py [--repeat N] [--json FILE]`` prints a table. Each figure is the
median CPU time of fresh processes that compile one cycle, after a trivial warm-up compile. *Plain*
is stock Numba, which compiles the members once, told the right return type of the entry.
*Widening* cycles need more than one round: their members return an int, a float and a complex.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASES = {"same": ("2.5",), "two types": ("1", "2.5"), "three types": ("1", "2.5", "2.5j")}
RESULTS = {"same": "float64", "two types": "float64", "three types": "complex128"}
SIZES = (2, 5, 10)


def source(size: int, kind: str) -> str:
    lines = ["from numba import njit"]
    for index in range(size):
        base = BASES[kind][index % len(BASES[kind])]
        callee = (index + 1) % size
        lines += [
            "",
            "@njit",
            f"def f{index}(n):",
            "    total = 0",
            "    for i in range(n):",
            f"        total += i * {index + 1}",
            "    if n <= 0:",
            f"        return {base}",
            f"    return f{callee}(n - 1) + total % 3",
        ]
    return "\n".join(lines) + "\n"


def measure(path: str, mode: str, result: str) -> None:
    """Compile the cycle in this process and print its CPU time and rounds."""
    from numba import njit, types

    from alloccheck import hermetic

    sys.path.insert(0, str(Path(path).parent))
    import cycle

    make = njit if mode == "plain" else hermetic

    @make
    def warm(n: int) -> float:
        return n + 0.5

    warm.compile((types.int64,))
    start = time.process_time()
    if mode == "plain":
        cycle.f0.compile(getattr(types, result)(types.int64))
        rounds = 1
    else:
        entry = hermetic(cycle.f0)
        entry.compile((types.int64,))
        rounds = entry.artifacts[(types.int64,)].rounds
    print(json.dumps({"seconds": time.process_time() - start, "rounds": rounds}))


def figure(path: Path, mode: str, result: str, repeat: int) -> dict[str, float]:
    found = []
    for _ in range(repeat):
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(path), mode, result],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    return {
        "seconds": statistics.median(one["seconds"] for one in found),
        "rounds": found[0]["rounds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure)
        return
    rows = []
    print(f"{'cycle':<22}{'plain':>9}{'hermetic':>10}{'rounds':>8}{'ratio':>8}")
    for kind in BASES:
        for size in SIZES:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / "cycle.py"
                path.write_text(source(size, kind), encoding="utf-8")
                plain = figure(path, "plain", RESULTS[kind], given.repeat)
                hermetic = figure(path, "hermetic", RESULTS[kind], given.repeat)
            ratio = hermetic["seconds"] / plain["seconds"]
            rows.append(
                {
                    "kind": kind,
                    "members": size,
                    "plain_seconds": plain["seconds"],
                    "hermetic_seconds": hermetic["seconds"],
                    "rounds": hermetic["rounds"],
                    "ratio": ratio,
                }
            )
            print(
                f"{f'{size} members, {kind}':<22}{plain['seconds']:>8.2f}s"
                f"{hermetic['seconds']:>9.2f}s{hermetic['rounds']:>8}{ratio:>7.2f}x",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

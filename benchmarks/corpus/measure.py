"""Audits the corpus: verdicts, counts that try to refute the proofs, and what the audit costs.

``python -m benchmarks.corpus.measure [PACKAGE...]`` writes ``results/PACKAGE.json`` and the tables
of README.md. Run it with the interpreter of an environment that has requirements.txt.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE / "README.md"
DRIVERS = "benchmarks.corpus"
"""The module that runs the drivers."""
PATH = (ROOT / "src", ROOT)
"""What the programs may import."""
PACKAGES = (
    "antropy",
    "csr",
    "disba",
    "fastdist",
    "interpolation",
    "numba_stats",
    "numbagg",
    "quantecon",
    "quaternionic",
    "resampy",
    "sparse",
    "stumpy",
)


def _python(*words: str) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """Run a fresh interpreter with an empty disk cache; return it with wall and CPU seconds."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, PATH)),
            "NUMBA_CACHE_DIR": cache,
            "MPLBACKEND": "agg",
        }
        before, started = _cpu(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, *words],
            env=settings,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done, time.perf_counter() - started, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def times(package: str, repeat: int) -> dict[str, Any]:
    """Run a driver plainly and under the audit, in alternation; keep the fastest of each."""
    found: dict[str, list[float]] = {"plain": [], "audit": [], "plain cpu": [], "audit cpu": []}
    for _ in range(repeat):
        done, wall, cpu = _python("-m", DRIVERS, package)
        if done.returncode:
            raise RuntimeError(f"{package}: the driver failed:\n{done.stderr[-2000:]}")
        found["plain"].append(wall)
        found["plain cpu"].append(cpu)
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            words = ("--output", file.name, "-m", DRIVERS, package)
            done, wall, cpu = _python("-m", "alloccheck", "audit", *words)
            text = Path(file.name).read_text()
        said = re.search(r"; ([0-9.]+) s CPU of analysis", text)
        if said is None or "error:" in done.stderr:
            raise RuntimeError(f"{package}: {text[-300:]}\n{done.stderr[-2000:]}")
        found["audit"].append(wall)
        # The copies that analyse are no children of the command.
        found["audit cpu"].append(cpu + float(said[1]))
    return {name: round(min(each), 2) for name, each in found.items()}


def confirmed(package: str) -> list[dict[str, Any]]:
    """Return each function's verdict, and what the counter saw of the proved ones."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = ("--confirm", "--format", "json", "--output", file.name)
        done, _, _ = _python("-m", "alloccheck", "audit", *words, "-m", DRIVERS, package)
        try:
            found = json.loads(Path(file.name).read_text())
        except json.JSONDecodeError:
            raise RuntimeError(f"{package}: no result:\n{done.stderr[-3000:]}") from None
    if found["problems"]:
        raise RuntimeError(f"{package}: {found['problems']}\n{done.stderr[-3000:]}")
    kept = ("function", "signature", "kind", "verdict", "reason")
    return [
        {**{name: one[name] for name in kept}, "counted": one["counted"]}
        if one["counted"] is not None
        else {name: one[name] for name in kept}
        for one in found["functions"]
    ]


def version(package: str) -> str:
    """Return the installed version of the package that a driver is about; empty when none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _merge(package: str, key: str, value: Any) -> None:
    file = RESULTS / f"{package}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[key] = value
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def tables() -> str:
    """Return the tables of README.md, from the results."""
    lines = [
        "| package | functions | proved | finding | undecided | of the proved: run without an "
        "allocation | not run | refuted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total: collections.Counter[str] = collections.Counter()
    told: list[str] = []
    cost = [
        "| package | plain run, s | with the audit, s | ratio | CPU ratio |",
        "|---|---|---|---|---|",
    ]
    sums: collections.Counter[str] = collections.Counter()
    for file in sorted(RESULTS.glob("*.json")):
        data = json.loads(file.read_text())
        if "functions" in data:
            row = _row(data["functions"])
            total.update(row)
            lines.append(_line(file.stem, row))
        told += _told(data.get("functions", []))
        measured = data.get("times")
        if measured:
            sums.update(measured)
            cost.append(_cost(file.stem, measured))
    lines.append(_line("**total**", total))
    if sums:
        cost.append(_cost("**total**", sums))
    reasons = "\n".join(told)
    if not total["undecided"]:
        reasons = f"Nothing was left undecided.\n\n{reasons}".rstrip()
    return "\n".join(lines) + "\n\n" + reasons + "\n\n" + "\n".join(cost) + "\n"


def _told(functions: list[dict[str, Any]]) -> list[str]:
    """Return a line for each function that was not decided, or proved and not run."""
    lines = []
    for one in functions:
        if one["verdict"] == "undecided":
            lines.append(f"- `{one['function']}` was left undecided: {one['reason']}")
        elif one["verdict"] == "proved" and not one["counted"].get("returned"):
            arguments = one["signature"][one["signature"].find("(") :]
            why = one["counted"].get("note") or "no input returned"
            lines.append(f"- `{one['function']}{arguments}` was not run: {why}")
    return lines


def _row(functions: list[dict[str, Any]]) -> dict[str, int]:
    verdicts = collections.Counter(one["verdict"] for one in functions)
    counted = [one.get("counted", {}) for one in functions if one["verdict"] == "proved"]
    refuted = sum(bool(one.get("refuted")) for one in counted)
    clean = sum(bool(one.get("returned")) and not one.get("refuted") for one in counted)
    return {
        "functions": len(functions),
        "proved": verdicts["proved"],
        "finding": len(functions) - verdicts["proved"] - verdicts["undecided"],
        "undecided": verdicts["undecided"],
        "clean": clean,
        "not run": len(counted) - clean - refuted,
        "refuted": refuted,
    }


def _line(name: str, row: Any) -> str:
    keys = ("functions", "proved", "finding", "undecided", "clean", "not run", "refuted")
    return f"| {name} | " + " | ".join(str(row[key]) for key in keys) + " |"


def _cost(name: str, data: Any) -> str:
    wall, cpu = data["audit"] / data["plain"], data["audit cpu"] / data["plain cpu"]
    return f"| {name} | {data['plain']:.1f} | {data['audit']:.1f} | {wall:.2f} | {cpu:.2f} |"


def write_tables() -> None:
    text = PAGE.read_text()
    begin, end = "<!-- begin results -->\n", "<!-- end results -->\n"
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    PAGE.write_text(head + begin + tables() + end + tail)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", help="default: all")
    parser.add_argument("--only", choices=["times", "functions"], help="measure one thing alone")
    parser.add_argument("--repeat", type=int, default=2, help="runs of which times are taken")
    options = parser.parse_args(words)
    RESULTS.mkdir(exist_ok=True)
    for package in options.packages or PACKAGES:
        _merge(package, "version", version(package))
        if options.only != "times":
            _merge(package, "functions", confirmed(package))
        if options.only != "functions":
            _merge(package, "times", times(package, options.repeat))
        write_tables()
        print(package, "done", flush=True)


if __name__ == "__main__":
    main()

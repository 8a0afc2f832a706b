"""Measures what checking costs and prints a table: ``python -m benchmarks [section...]``.

Sections: first-call, calls, c-calls, memory, store, packages, native; all when none is named. Each
ratio is of two measurements of one run, taken in alternation; tables show medians. ``--json FILE``
keeps the figures, ``--figures FILE...`` takes kept ones instead of measuring, ``--write`` puts the
tables between the markers of ``docs/performance.md`` and a summary into ``README.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.functions import CASES
from benchmarks.packages import CORPUS
from benchmarks.process import ROOT, in_fresh_process
from benchmarks.store import CASES as STORE_CASES

Table = list[list[str]]


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- sections -------------------------------------------------------------------------------------


def first_call(rounds: int, _: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in CASES:
        runs: dict[str, list[Any]] = {"numba": [], "checked": []}
        for number in range(rounds):
            for way in sorted(runs, reverse=bool(number % 2)):
                runs[way].append(in_fresh_process("benchmarks.first_call", way, case))
        pairs = list(zip(runs["numba"], runs["checked"], strict=True))
        stages = [one["timings"] for one in runs["checked"]]
        found[case] = {
            "numba cpu": _median(one["cpu"] for one in runs["numba"]),
            "checked cpu": _median(one["cpu"] for one in runs["checked"]),
            "cpu ratio": _median(b["cpu"] / a["cpu"] for a, b in pairs),
            "wall ratio": _median(b["wall"] / a["wall"] for a, b in pairs),
            "share": _median(
                (s["read"] + s["solve"]) / (s["compile"] + s["close"]) for s in stages
            ),
            "share walk": _median(s["walk"] / (s["compile"] + s["close"]) for s in stages),
            "share read": _median(s["read"] / (s["compile"] + s["close"]) for s in stages),
        }
        _say(f"first call, {case}: {found[case]['cpu ratio']:.2f}")
    return found


def calls(rounds: int, _: str | None) -> dict[str, Any]:
    runs = [in_fresh_process("benchmarks.calls") for _ in range(rounds)]
    return {
        name: {key: _median(run[name][key] for run in runs) for key in runs[0][name]}
        for name in runs[0]
    }


def c_calls(rounds: int, _: str | None) -> dict[str, Any]:
    runs = [in_fresh_process("benchmarks.c_calls") for _ in range(rounds)]
    return {
        name: {key: _median(run[name][key] for run in runs) for key in runs[0][name]}
        for name in runs[0]
    }


def memory(rounds: int, _: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for workload in ("loop", "mixed"):
        for way in ("numba", "checked"):
            runs = [in_fresh_process("benchmarks.memory", way, workload) for _ in range(rounds)]
            found[f"{way}, {workload}"] = {
                key: _median(run[key] for run in runs) for key in runs[0]
            }
    return found


def store(rounds: int, _: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in STORE_CASES:
            runs: dict[str, list[Any]] = {"numba": [], "stored": []}
            for number in range(rounds + 1):
                for way in sorted(runs, reverse=bool(number % 2)):
                    arguments = (way, case, f"{folder}/stored")
                    run = in_fresh_process(
                        "benchmarks.store", *arguments, NUMBA_CACHE_DIR=f"{folder}/numba"
                    )
                    if number == 0:
                        continue  # fills the folders
                    if run["compiled"]:
                        raise RuntimeError(f"{way}, {case}: a later process compiled")
                    runs[way].append(run)
            pairs = list(zip(runs["numba"], runs["stored"], strict=True))
            found[case] = {
                "numba cpu": _median(one["cpu"] for one in runs["numba"]),
                "stored cpu": _median(one["cpu"] for one in runs["stored"]),
                "cpu ratio": _median(b["cpu"] / a["cpu"] for a, b in pairs),
                "wall ratio": _median(b["wall"] / a["wall"] for a, b in pairs),
            }
            _say(f"store, {case}: {found[case]['cpu ratio']:.2f}")
    return found


def packages(rounds: int, python: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        chosen = python or _corpus_environment(folder)
        return {name: _package(name, chosen, folder, rounds) for name in CORPUS}


def _package(name: str, python: str, folder: str, rounds: int) -> dict[str, Any]:
    file = str(Path(folder) / f"{name}.json")
    module = "benchmarks.packages"
    recorded = in_fresh_process(module, "record", name, file, python=python)
    ways = {"numba": ("numba", "1"), "checked": ("checked", "1"), "cold": ("checked", "0")}
    runs: dict[str, list[Any]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (command, cache) in ways.items():
            run = in_fresh_process(
                module, command, name, file, python=python, ALLOCCHECK_CANONICAL_CACHE=cache
            )
            runs[way].append(run)
            _say(f"{name}, {way}: {run['cpu']:.1f} s")
    last = runs["checked"][-1]
    return {
        "pairs": recorded["pairs"],
        "left out": len(recorded["left out"]),
        "outcomes": last["outcomes"],
        "refused": last["refused"],
        "stages": last["stages"],
        **{f"{way} cpu": _median(one["cpu"] for one in found) for way, found in runs.items()},
        "ratio": _ratio(runs, "checked"),
        "ratio without cache": _ratio(runs, "cold"),
    }


def _ratio(runs: dict[str, list[Any]], way: str) -> float:
    return _median(b["cpu"] / a["cpu"] for a, b in zip(runs["numba"], runs[way], strict=True))


def _corpus_environment(folder: str) -> str:
    requirements = str(ROOT / "benchmarks" / "corpus" / "requirements.txt")
    return _environment(Path(folder) / "corpus", "-r", requirements)


def _environment(folder: Path, *wanted: str) -> str:
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def native(rounds: int, _: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        smda = _environment(Path(folder) / "smda", SMDA)
        runs = [in_fresh_process("benchmarks.native", smda) for _round in range(rounds)]
    return {key: _median(run[key] for run in runs) for key in runs[0]}


SMDA = "smda==5.0.1"
"""What reading a library is compared with: it recovers functions, and decides nothing of them."""

SECTIONS = {
    "first-call": first_call,
    "calls": calls,
    "c-calls": c_calls,
    "memory": memory,
    "store": store,
    "packages": packages,
    "native": native,
}


# --- tables ---------------------------------------------------------------------------------------


def _goal(value: float, limit: float, text: str) -> str:
    return f"{text} ({'met' if value <= limit else '**missed**'}: goal {limit:g})"


def _hundredth(ratio: float, limit: float) -> str:
    return _goal(round(ratio, 2), limit, f"{ratio:.2f}")


def _first_call_tables(data: dict[str, Any]) -> Table:
    rows = [["function", "Numba, CPU s", "checked, CPU s", "ratio CPU", "ratio wall",
             "read and solve / compile", "machine code / compile"]]  # fmt: skip
    for case, one in data.items():
        rows.append([
            case, f"{one['numba cpu']:.3f}", f"{one['checked cpu']:.3f}",
            f"{one['cpu ratio']:.2f}", f"{one['wall ratio']:.2f}", f"{100 * one['share']:.1f} %",
            f"{100 * one['share walk']:.1f} %",
        ])  # fmt: skip
    ratio = _median(one["cpu ratio"] for one in data.values())
    worst = max(one["cpu ratio"] for one in data.values())
    share = _median(one["share"] for one in data.values())
    walk = _median(one["share walk"] for one in data.values())
    rows.append(["**median**", "", "", _goal(ratio, 0.9, f"{ratio:.2f}"), "",
                 _goal(100 * share, 1.5, f"{100 * share:.1f} %"),
                 _goal(100 * walk, 5, f"{100 * walk:.1f} %")])  # fmt: skip
    rows.append(["**worst**", "", "", _goal(worst, 1.2, f"{worst:.2f}"), "", "", ""])
    return rows


def _calls_tables(data: dict[str, Any]) -> Table:
    rows = [["arguments", "Numba, ns", "checked, ns", "ratio"]]
    for name, one in data.items():
        rows.append([name, f"{1e9 * one['numba']:.0f}", f"{1e9 * one['checked']:.0f}",
                     _goal(one["ratio"], 1.02, f"{one['ratio']:.3f}")])  # fmt: skip
    return rows


C_CALL_GOALS = {"jitted call": 1.2, "jitted call, may raise": 1.2}
"""Ratios to reach where it is not 1.0; to be read to one hundredth."""


def _c_calls_tables(data: dict[str, Any]) -> Table:
    rows = [["what", "compared with, \u00b5s", "checked, \u00b5s", "ratio"]]
    for name, one in data.items():
        rows.append([name, f"{1e6 * one['compared with']:.1f}", f"{1e6 * one['checked']:.1f}",
                     _hundredth(one["ratio"], C_CALL_GOALS.get(name, 1.0))])  # fmt: skip
    return rows


def _memory_tables(data: dict[str, Any]) -> Table:
    rows = [["way and functions", "MB for each", "median of ten batches", "of it in the artifact",
             "in the canonical cache"]]  # fmt: skip
    for name, one in data.items():
        if name.startswith("checked"):
            each = _goal(one["each"], 0.5, f"{one['each']:.2f}")
            parts = [f"{one['artifact']:.2f}", f"{one['cache']:.2f}"]
        else:
            each, parts = f"{one['each']:.2f}", ["", ""]
        rows.append([name, each, f"{one['median of batches']:.2f}", *parts])
    return rows


def _store_tables(data: dict[str, Any]) -> Table:
    rows = [["function", "cache=True, CPU s", "from the store, CPU s", "ratio CPU", "ratio wall"]]
    for case, one in data.items():
        rows.append([case, f"{one['numba cpu']:.3f}", f"{one['stored cpu']:.3f}",
                     _goal(one["cpu ratio"], 1.0, f"{one['cpu ratio']:.2f}"),
                     f"{one['wall ratio']:.2f}"])  # fmt: skip
    return rows


def _share(stages: dict[str, float]) -> float:
    """Return the time of reading and solving as a part of that of compiling and closing."""
    return (stages["read"] + stages["solve"]) / (stages["compile"] + stages["close"])


def _packages_tables(data: dict[str, Any]) -> Table:
    rows = [["package", "functions", "proved / not proved / other", "Numba, CPU s",
             "checked, CPU s", "ratio", "without the canonical cache",
             "read and solve / compile"]]  # fmt: skip
    totals = dict.fromkeys(("numba cpu", "checked cpu", "cold cpu"), 0.0)
    for name, one in data.items():
        outcomes = dict(one["outcomes"])
        proved, failed = outcomes.pop("proved", 0), outcomes.pop("not proved", 0)
        for key in totals:
            totals[key] += one[key]
        rows.append([
            name, str(one["pairs"]), f"{proved} / {failed} / {sum(outcomes.values())}",
            f"{one['numba cpu']:.1f}", f"{one['checked cpu']:.1f}", f"{one['ratio']:.2f}",
            f"{one['ratio without cache']:.2f}", f"{100 * _share(one['stages']):.1f} %",
        ])  # fmt: skip
    ratio = totals["checked cpu"] / totals["numba cpu"]
    rows.append([
        "**total**", "", "", f"{totals['numba cpu']:.1f}", f"{totals['checked cpu']:.1f}",
        _goal(ratio, 1.2, f"{ratio:.2f}"), f"{totals['cold cpu'] / totals['numba cpu']:.2f}", "",
    ])  # fmt: skip
    return rows


def _native_tables(data: dict[str, Any]) -> Table:
    faster, kept = data["smda"] / data["library"], data["cold"] / data["warm"]
    return [
        ["what", "CPU", "against", "ratio"],
        [f"all {data['functions']:.0f} functions of libm decided, nothing kept",
         f"{data['library']:.2f} s",
         f"smda recovering {data['smda functions']:.0f} functions: {data['smda']:.2f} s",
         _at_least(faster, 4)],
        ["`sin`, asked for before in the process", f"{1e3 * data['warm']:.3f} ms",
         f"nothing kept: {1e3 * data['cold']:.1f} ms", _at_least(kept, 200)],
        ["`sin`, from a file of an earlier process", f"{1e3 * data['file']:.3f} ms",
         f"nothing kept: {1e3 * data['cold']:.1f} ms", f"{data['cold'] / data['file']:.0f}"],
    ]  # fmt: skip


def _at_least(value: float, limit: float) -> str:
    return f"{value:.1f} ({'met' if value >= limit else '**missed**'}: goal {limit:g})"


TABLES = {
    "first-call": _first_call_tables,
    "calls": _calls_tables,
    "c-calls": _c_calls_tables,
    "memory": _memory_tables,
    "store": _store_tables,
    "packages": _packages_tables,
    "native": _native_tables,
}


def _markdown(rows: Table) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the Markdown table of each section that was measured."""
    return {name: _markdown(TABLES[name](data[name])) for name in SECTIONS if name in data}


def summary(data: dict[str, Any]) -> str:
    """Return the Markdown table of the headline figures; all sections must be there."""
    first, used = data["first-call"].values(), data["packages"].values()
    plain, checked = (sum(one[key] for one in used) for key in ("numba cpu", "checked cpu"))
    ratios = [one["cpu ratio"] for one in first]
    longest = max(one["ratio"] for one in data["calls"].values())
    each = max(one["each"] for name, one in data["memory"].items() if "checked" in name)
    by_address = data["c-calls"]
    share = _median(_share(one["stages"]) for one in used)
    walk = _median(one["share walk"] for one in first)
    faster = data["native"]["smda"] / data["native"]["library"]
    rows = [
        ["what", "measured"],
        [f"first call in a fresh process, CPU, median of {len(ratios)} functions",
         _goal(_median(ratios), 0.9, f"{_median(ratios):.2f}")],
        ["the worst of them", _goal(max(ratios), 1.2, f"{max(ratios):.2f}")],
        [f"functions of {len(used)} package(s) in one process, CPU",
         _goal(checked / plain, 1.2, f"{checked / plain:.2f}")],
        ["reading and solving against compiling, there",
         _goal(100 * share, 1.5, f"{100 * share:.1f} %")],
        ["reading machine code against compiling, first calls",
         _goal(100 * walk, 5, f"{100 * walk:.1f} %")],
        ["all of libm decided, against smda", _at_least(faster, 4)],
        ["a call from Python, worst of three", _goal(longest, 1.02, f"{longest:.3f}")],
        ["a call from C, against `numba.cfunc`", _hundredth(by_address["C call"]["ratio"], 1.0)],
        ["a call from jitted code, against a C function pointer",
         _hundredth(by_address["jitted call"]["ratio"], 1.2)],
        ["memory for each function, worse of two sets", _goal(each, 0.5, f"{each:.2f} MB")],
    ]  # fmt: skip
    return _markdown(rows)


def write_into(document: Path, found: dict[str, str]) -> None:
    """Put tables between a document's markers ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""
    text = document.read_text()
    for name, table in found.items():
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
        text, count = re.subn(pattern, lambda m, t=table: f"{m[1]}{t}\n{m[2]}", text, flags=re.S)
        if count != 1:
            raise SystemExit(f"{document} has no place for {name}")
    document.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--corpus-python", help="an interpreter that has corpus/requirements.txt")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--figures", type=Path, nargs="+", help="kept figures to use instead")
    parser.add_argument("--write", action="store_true", help="put the tables into the documents")
    options = parser.parse_args()
    unknown = sorted(set(options.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"unknown section {unknown[0]}; expected {', '.join(SECTIONS)}")
    data: dict[str, Any] = {}
    for file in options.figures or ():
        data.update(json.loads(file.read_text()))
    for name in () if options.figures else options.sections or SECTIONS:
        data[name] = SECTIONS[name](options.rounds, options.corpus_python)
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    if options.json:
        options.json.write_text(json.dumps({**machine, **data}, indent=2) + "\n")
    found = tables(data)
    if options.write:
        write_into(ROOT / "docs" / "performance.md", found)
        if len(found) == len(SECTIONS):
            write_into(ROOT / "README.md", {"figures": summary(data)})
    for name, table in found.items():
        print(f"\n## {name}\n\n{table}")


if __name__ == "__main__":
    main()

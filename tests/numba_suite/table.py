"""Turns the raw results of `run.py` into the stored list and the table in the documentation.

Usage, from the repository's root, after `run.py hermetic` and `run.py stock`:

    python tests/numba_suite/table.py

Writes ``tests/numba_suite/results.json`` and ``docs/numba-coverage.md``. Every test that does not
end as with Numba must be explained in ``explanations.toml``, or the command fails and names it.
"""

from __future__ import annotations

import fnmatch
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PREFIX = "numba.tests."

KINDS = ("same", "different", "refused", "not applicable")
"""What can become of a test that passes with Numba."""


def kinds_of(stored: dict[str, Any]) -> dict[str, str]:
    """Return what became of each test of a stored list, by identifier."""
    return {
        f"{PREFIX}{module}.{rest}": kind
        for module, table in stored["modules"].items()
        for kind in KINDS
        for rest in table.get(kind, ())
    }


def verdict(entry: dict[str, Any]) -> str:
    """Return what became of a test that passes with Numba, from its hermetic result.

    Parameters
    ----------
    entry : dict
        A line that `worker.py` wrote for the test's end.
    """
    if entry["outcome"] in ("pass", "xfail"):
        return "same" if entry.get("hermetic") else "not applicable"
    return "refused" if entry.get("refused") else "different"


def short(identifier: str) -> tuple[str, str]:
    """Split a test's identifier into the module and the rest.

    Examples
    --------
    >>> short("numba.tests.npyufunc.test_gufunc.TestGUFunc.test_gufunc")
    ('npyufunc.test_gufunc', 'TestGUFunc.test_gufunc')
    """
    parts = identifier.removeprefix(PREFIX).split(".")
    length = next(i for i, part in enumerate(parts, 1) if part.startswith("test_"))
    return ".".join(parts[:length]), ".".join(parts[length:])


class Explanations:
    """The reasons in ``explanations.toml``, by pattern."""

    def __init__(self, path: Path = HERE / "explanations.toml") -> None:
        with path.open("rb") as file:
            self.groups: dict[str, dict[str, Any]] = tomllib.load(file)

    def of(self, identifier: str, refused: Iterable[str] = ()) -> str | None:
        """Return the name of the group that explains a test, if there is one."""
        rest = identifier.removeprefix(PREFIX)
        for name, group in self.groups.items():
            if any(fnmatch.fnmatchcase(rest, one) for one in group.get("tests", ())):
                return name
            if "refusal" in group and any(group["refusal"] in one for one in refused):
                return name
        return None


def judge(
    identifier: str, entry: dict[str, Any], explanations: Explanations
) -> tuple[str, str | None]:
    """Return what became of a test, and the group that explains it where it is not the same."""
    kind = verdict(entry)
    if kind == "same":
        return kind, None
    if kind == "not applicable":
        left = sorted(entry.get("stock", {}))
        return (
            kind,
            f"compiled by Numba itself: {left[0]}"
            if left
            else "compiles nothing by jit in its own process",
        )
    reason = explanations.of(identifier, entry.get("refused", ()))
    if reason is None:
        return kind, None
    return explanations.groups[reason].get("kind", kind), reason


_SUBJECTS = "A test may be of several subjects or of none; all of them are in the next table."


def subjects() -> dict[str, list[str]]:
    """Return the patterns of tests by what of Numba they exercise."""
    with (HERE / "subjects.toml").open("rb") as file:
        found: dict[str, list[str]] = tomllib.load(file)["subjects"]
    return found


def by_subject(stored: dict[str, Any]) -> dict[str, Counter[str]]:
    """Return how many tests of each subject ended in each way; a test may be of several."""
    kinds = kinds_of(stored)
    return {
        name: Counter(
            kind
            for identifier, kind in kinds.items()
            if any(fnmatch.fnmatchcase(identifier.removeprefix(PREFIX), one) for one in patterns)
        )
        for name, patterns in subjects().items()
    }


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "id" in entry:
                found[entry["id"]] = entry
    return found


def _sizes(folder: Path) -> dict[str, dict[str, int]]:
    """Return for each module how many tests it has, and how many of them were run."""
    totals: dict[str, int] = {}
    run: Counter[str] = Counter()
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "module" in entry:
                totals[entry["module"]] = entry["total"]
    for identifier in _results(folder):
        run[short(identifier)[0]] += 1
    return {module: {"tests": total, "run": run[module]} for module, total in totals.items()}


def weighted(stored: dict[str, Any]) -> float:
    """Return the share that ends the same, were every test of these modules run.

    The stratified ratio estimate (Cochran, *Sampling Techniques*, 1977, section 6.11): a module
    counts as often as it has tests, however many of them were run.

    Examples
    --------
    >>> tables = {"a": {"same": ["t"]}, "b": {"same": ["t"], "different": {"u": "why"}}}
    >>> sizes = {"a": {"tests": 8, "run": 1}, "b": {"tests": 2, "run": 2}}
    >>> weighted({"modules": tables, "sizes": sizes})
    0.9
    """
    same = applicable = 0.0
    for module, table in stored["modules"].items():
        size = stored["sizes"][module]
        each = size["tests"] / size["run"]
        counts = _counts([table])
        same += each * counts["same"]
        applicable += each * (sum(counts.values()) - counts["not applicable"])
    return same / applicable


def left_out(hermetic: dict[str, dict[str, Any]]) -> list[str]:
    """Return the tests that took more time than one may."""
    return sorted(
        identifier.removeprefix(PREFIX)
        for identifier, entry in hermetic.items()
        if entry["outcome"] == "timeout"
    )


def merge(
    stock: dict[str, dict[str, Any]],
    hermetic: dict[str, dict[str, Any]],
    explanations: Explanations,
) -> tuple[dict[str, Any], list[str]]:
    """Compare both runs; return the list to store, and tests without an explanation."""
    modules: dict[str, dict[str, Any]] = {}
    unexplained = []
    for identifier, entry in sorted(hermetic.items()):
        reference = stock.get(identifier)
        if (
            entry["outcome"] == "timeout"
            or reference is None
            or reference["outcome"] not in ("pass", "xfail")
        ):
            continue
        kind, reason = judge(identifier, entry, explanations)
        module, rest = short(identifier)
        table = modules.setdefault(module, {})
        if kind == "same":
            table.setdefault(kind, []).append(rest)
        else:
            table.setdefault(kind, {})[rest] = reason or "not explained"
            if reason is None:
                unexplained.append(f"{identifier}: {entry['outcome']}: {entry['detail'][:300]}")
    return modules, unexplained


def _counts(tables: Iterable[dict[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for table in tables:
        total.update({kind: len(table.get(kind, ())) for kind in KINDS})
    return total


def document(stored: dict[str, Any], explanations: Explanations) -> str:
    """Return the text of the documentation page."""
    modules = stored["modules"]
    total = _counts(modules.values())
    passes = sum(total.values())
    applicable = passes - total["not applicable"]
    share = 100.0 * total["same"] / applicable
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(stored["versions"].items())
    )
    lines = [
        "# What Numba's own tests say",
        "",
        "Tests of `numba.tests`, unmodified, are run twice: as they are, and with every dispatcher",
        "that `jit`, `njit` or a jitclass makes replaced by a hermetic one. A test counts when it",
        "passes as it is. It is",
        "",
        "- **same** when it passes hermetically, too, and at least one signature of it was",
        "  compiled hermetically;",
        "- **different** when it does not pass;",
        "- **refused** when it does not pass because a hermetic compile was refused with a reason;",
        "- **not applicable** when it compiles nothing through a dispatcher, or only what a",
        "  hermetic compile cannot mean (object mode, disk caches), or looks at Numba's insides.",
        "",
        f"With {versions}: of {passes} tests that pass, {applicable} apply, and of these "
        f"{total['same']} ({share:.1f}%) end the same,",
        f"{total['different']} differently, {total['refused']} are refused. The tests of each "
        "module are a sample in a fixed order,",
        "cut where the time that a module is given ends; "
        f"{len(stored['left out'])} more took longer than a test may,",
        "and are left out. Were each module run to its end, "
        f"{100 * weighted(stored):.1f}% would end the same, as far as the",
        "samples tell (each module weighted by how many tests it has).",
        "",
        "Recomputed by:",
        "",
        "```",
        "python tests/numba_suite/run.py hermetic --seconds 15   # of CPU time for each module",
        "python tests/numba_suite/run.py stock --seconds 600",
        "python tests/numba_suite/table.py",
        "```",
        "",
        "`tests/test_numba_suite.py` runs a slice of them and demands what is stored in",
        "`tests/numba_suite/results.json`.",
        "",
        "## Every difference explained",
        "",
    ]
    used: dict[str, list[str]] = {}
    for module, table in modules.items():
        for kind in ("different", "refused"):
            for rest, reason in table.get(kind, {}).items():
                used.setdefault(reason, []).append(f"{module}.{rest}")
    for name, group in explanations.groups.items():
        if name in used:
            lines += [f"**{name}.** {' '.join(group['reason'].split())}", ""]
            lines += [f"- `{one}`" for one in used[name]]
            lines.append("")
    lines += ["## Left out", "", "Not within 10 seconds of CPU time:", ""]
    lines += [f"- `{one}`" for one in stored["left out"]]
    lines.append("")
    lines += ["## What does not apply", "", "| reason | tests |", "|---|---:|"]
    reasons = Counter(
        reason for table in modules.values() for reason in table.get("not applicable", {}).values()
    )
    for name, count in reasons.most_common():
        lines.append(f"| {name} | {count} |")
    lines.append("")
    for name in sorted(reasons.keys() & explanations.groups.keys()):
        lines += [f"**{name}.** {' '.join(explanations.groups[name]['reason'].split())}", ""]
    lines += ["## By subject", "", _SUBJECTS, ""]
    lines += [f"| subject | applies | {' | '.join(KINDS[:-1])} |"]
    lines.append("|---|" + "---:|" * len(KINDS))
    for name, counts in by_subject(stored).items():
        row = " | ".join(str(counts[kind]) for kind in KINDS[:-1])
        lines.append(f"| {name} | {sum(counts[kind] for kind in KINDS[:-1])} | {row} |")
    lines.append("")
    lines += ["## By module", "", f"| module | passes | {' | '.join(KINDS)} |"]
    lines.append("|---|" + "---:|" * (len(KINDS) + 1))
    for module, table in modules.items():
        counts = _counts([table])
        row = " | ".join(str(counts[kind]) for kind in KINDS)
        lines.append(f"| {module} | {sum(counts.values())} | {row} |")
    row = " | ".join(f"**{total[kind]}**" for kind in KINDS)
    lines.append(f"| **all** | **{passes}** | {row} |")
    return "\n".join(lines) + "\n"


def _versions() -> dict[str, str]:
    import numba
    import numpy

    return {"Numba": numba.__version__, "NumPy": numpy.__version__}


def render(stored: dict[str, Any]) -> str:
    """Return the stored list as text, one line per module and kind."""
    text = json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True)
    return text + "\n"


def main() -> None:
    """Merge, store and document."""
    explanations = Explanations()
    build = ROOT / "build" / "numba-suite"
    hermetic = _results(build / "hermetic")
    modules, unexplained = merge(_results(build / "stock"), hermetic, explanations)
    sizes = _sizes(build / "hermetic")
    stored = {
        "versions": _versions(),
        "left out": left_out(hermetic),
        "modules": modules,
        "sizes": {module: sizes[module] for module in modules},
    }
    (HERE / "results.json").write_text(render(stored))
    (ROOT / "docs" / "numba-coverage.md").write_text(document(stored, explanations))
    print(dict(_counts(modules.values())))
    if unexplained:
        sys.exit("not explained:\n" + "\n".join(unexplained))


if __name__ == "__main__":
    main()

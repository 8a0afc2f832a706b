"""The walk of machine code against Clang: ``python -m benchmarks.function_effects``.

The same functions, those of ``tests/native_sources``, whose effects are known by construction.
Clang (20 or later) reads the source with ``-Wfunction-effects``, in which each function has the
attribute ``nonallocating``; the walk reads what the same Clang made of it at ``-O2``. ``--clang
COMMAND`` names it; without it, an environment with the package ziglang is made, which brings one.
Prints a table for ``docs/machine-code.md``.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect
from benchmarks.process import ROOT

SOURCES = ROOT / "tests" / "native_sources"
LANGUAGES = {"truth.c": "c", "truth.cpp": "c++"}
ZIGLANG = "ziglang==0.17.1"
ATTRIBUTE = "-DEXPECT(...)=__attribute__((nonallocating))"
EXPECTED = re.compile(r"^EXPECT\(([^)]*)\)[^(]*?(\w+)\(")
WARNING = re.compile(r"^(\S+):(\d+):\d+: warning: (.*) \[-Wfunction-effects\]$")
OPEN_NOTES = ("no definition in this translation unit", "pointer cannot be", "method cannot be")


class Verdict(StrEnum):
    """What a tool says of a function, or what is true."""

    CLEAN = "clean"
    ALLOCATES = "allocates"
    OPEN = "undecided"


@dataclass(frozen=True, slots=True)
class Known:
    """A function, and what is true of it."""

    name: str
    line: int
    truth: Verdict


def functions(text: str) -> list[Known]:
    r"""Return the functions of a source.

    Examples
    --------
    >>> functions("EXPECT(clean) int f(int n);\nEXPECT(raise, raise:allocate) int g(int n);")
    ... # doctest: +NORMALIZE_WHITESPACE
    [Known(name='f', line=1, truth=<Verdict.CLEAN: 'clean'>),
     Known(name='g', line=2, truth=<Verdict.ALLOCATES: 'allocates'>)]
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = EXPECTED.match(line)
        if match is None:
            continue
        effects = match[1]
        truth = Verdict.CLEAN
        if "allocate" in effects:
            truth = Verdict.ALLOCATES
        elif any(word in effects for word in ("dispatch", "unknown", "more")):
            truth = Verdict.OPEN
        found.append(Known(match[2], number, truth))
    return found


def by_clang(known: list[Known], file: str, output: str) -> dict[str, Verdict]:
    """Return Clang's verdicts from its diagnostics.

    Parameters
    ----------
    known : list of Known
        The functions of the file, in order.
    file : str
        Its name, as diagnostics show it.
    output : str
        Warnings and their notes. A warning that has no other cause than that a definition or a
        pointer is out of sight is no decision.
    """
    verdicts = {one.name: Verdict.CLEAN for one in known}
    lines = output.splitlines()
    for number, line in enumerate(lines):
        match = WARNING.match(line)
        if match is None or Path(match[1]).name != file:
            continue
        notes = []
        for note in lines[number + 1 :]:
            if WARNING.match(note):
                break
            notes.append(note)
        blind = "'nonallocating' expression" in match[3] or any(
            text in note for note in notes for text in OPEN_NOTES
        )
        name = max((k for k in known if k.line <= int(match[2])), key=lambda k: k.line).name
        if not blind:
            verdicts[name] = Verdict.ALLOCATES
        elif verdicts[name] is Verdict.CLEAN:
            verdicts[name] = Verdict.OPEN
    return verdicts


def by_walk(known: list[Known], library: Path) -> dict[str, Verdict]:
    """Return the verdicts of the walk; as for Clang, what happens when raising counts."""
    loaded = ctypes.CDLL(str(library))
    decider = Decider()
    verdicts = {}
    for one in known:
        address = ctypes.cast(getattr(loaded, one.name), ctypes.c_void_p).value
        assert address is not None
        effects = decider.decide(address).effects
        verdict = Verdict.CLEAN
        if Effect.ALLOCATE in effects or Effect.PYTHON in effects:
            verdict = Verdict.ALLOCATES
        elif effects & {Effect.DISPATCH, Effect.UNKNOWN}:
            verdict = Verdict.OPEN
        verdicts[one.name] = verdict
    return verdicts


def row(tool: str, known: list[Known], verdicts: dict[str, Verdict]) -> list[str]:
    """Return a row of the table.

    Examples
    --------
    >>> known = [Known("f", 1, Verdict.CLEAN), Known("g", 2, Verdict.ALLOCATES)]
    >>> row("one", known, {"f": Verdict.OPEN, "g": Verdict.CLEAN})
    ['one', '2', '1', '0 of 1', '1 of 1']
    """
    seen = Counter((one.truth, verdicts[one.name]) for one in known)
    truths = Counter(one.truth for one in known)
    decided = sum(count for (_, said), count in seen.items() if said is not Verdict.OPEN)
    alarms = seen[Verdict.CLEAN, Verdict.ALLOCATES]
    missed = seen[Verdict.ALLOCATES, Verdict.CLEAN]
    return [
        tool,
        str(len(known)),
        str(decided),
        f"{alarms} of {truths[Verdict.CLEAN]}",
        f"{missed} of {truths[Verdict.ALLOCATES]}",
    ]


def compiler(folder: Path) -> list[str]:
    """Return the Clang of a fresh environment."""
    python = folder / "clang" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "clang")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", ZIGLANG], check=True)
    return [str(python), "-m", "ziglang", "cc", "-fno-sanitize=all", "-lunwind"]


def main() -> None:
    """Build, ask both, and print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.function_effects", description=__doc__)
    parser.add_argument("--clang", help="a Clang of version 20 or later, with options")
    options = parser.parse_args()
    rows = [["functions", "tool", "asked", "decided", "false alarms", "misses"]]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        clang = shlex.split(options.clang) if options.clang else compiler(folder)
        for file, language in LANGUAGES.items():
            known = functions((SOURCES / file).read_text())
            library = folder / f"{file}.so"
            command = [*clang, "-x", language, "-O2", "-fPIC", "-shared", "-Wno-everything"]
            command += ["-Wfunction-effects", ATTRIBUTE, str(SOURCES / file), "-o", str(library)]
            command += ["-Wl,-z,now", "-lm", *(["-lc++"] if language == "c++" else [])]
            # Zig keeps what it compiled, and is silent the next time.
            kept = {f"ZIG_{which}_CACHE_DIR": place for which in ("LOCAL", "GLOBAL")}
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, **kept}
            )
            if not library.exists() or "function-effects]" not in done.stderr:
                raise SystemExit(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
            answers = {
                "the walk": by_walk(known, library),
                "`-Wfunction-effects`": by_clang(known, file, done.stderr),
            }
            for tool, verdicts in answers.items():
                rows.append([f"`{file}`", *row(tool, known, verdicts)])
                for one in known:
                    if one.truth is not verdicts[one.name] and one.truth is not Verdict.OPEN:
                        print(f"{file} {tool} {one.name}: {one.truth}, said {verdicts[one.name]}")
    rows.insert(1, ["---"] * len(rows[0]))
    print()
    for cells in rows:
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

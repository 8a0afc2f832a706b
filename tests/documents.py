"""Code blocks of Markdown documents, and running them as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block: its language, text, and the output shown in the block behind it.

    A block that begins with ```` ```python fragment ```` speaks of things that it does not define.
    """

    language: str
    text: str
    output: str | None
    line: int
    fragment: bool


def blocks(document: Path) -> list[Block]:
    """Return a document's code blocks in order; a ``text`` block is the output of what precedes."""
    text = document.read_text()
    found = list(FENCE.finditer(text))
    result = []
    for i, match in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        between = text[match.end() : after.start()].strip() if after else "."
        output = after[3] if after and after[1] == "text" and not between else None
        line = text.count("\n", 0, match.start()) + 1
        result.append(Block(match[1], match[3], output, line, match[2].strip() == "fragment"))
    return result


def run_python(parts: list[str], folder: Path, name: str = "tour.py") -> str:
    """Run Python text in a fresh process in a folder of its own; return what it prints."""
    (folder / name).write_text("\n\n".join(parts))
    return _run([sys.executable, name], folder)


def run_command(line: str, folder: Path = ROOT) -> str:
    """Run an `alloccheck` command line of a document; findings are no failure."""
    program, *arguments = line.split()
    assert program == "alloccheck", line
    start = "import sys; from alloccheck.cli import main; sys.argv[0] = 'alloccheck'; main()"
    return _run([sys.executable, "-c", start, *arguments], folder, allowed=(0, 1))


def _run(command: list[str], folder: Path, allowed: tuple[int, ...] = (0,)) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    path = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in allowed, done.stderr
    return done.stdout


def comparable(text: str) -> str:
    """Return output without what differs from run to run and between patch releases of Numba."""
    text = re.sub(r"(numba/[\w/]+\.(?:py|cpp|c)):\d+", r"\1:N", text)
    text = re.sub(r"\d+\.\d+ s\b", "T s", text)
    # Where lines break follows from the width of what was replaced.
    return " ".join(text.split())

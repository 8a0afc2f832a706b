"""The programs of ``docs/order.md`` print on stock Numba what the document says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from alloccheck.order.compare import FACTS
from alloccheck.order.scenarios import KINDS

DOCUMENT = (Path(__file__).parent.parent / "docs" / "order.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", DOCUMENT, re.DOTALL)


def test_every_program_has_its_output() -> None:
    assert len(PROGRAMS) == DOCUMENT.count("```python") == 5


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_programs_print_what_is_written(program: str, printed: str, tmp_path: Path) -> None:
    assert "alloccheck" not in program
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr


def test_without_the_fast_caller_the_sum_is_exact(tmp_path: Path) -> None:
    program = next(text for text, _ in PROGRAMS if "fastmath" in text)
    file = tmp_path / "program.py"
    file.write_text(program.replace("fast(1.0, 1.0)\n", ""), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "0.0\n"


def test_kinds_and_facts_are_documented() -> None:
    for word in (*KINDS, *FACTS):
        assert f"`{word}`" in DOCUMENT

"""A slice of Numba's own tests, compiled hermetically, ends as the stored list says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from numba_suite import run, table

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "tests" / "numba_suite"
STORED = json.loads((SUITE / "results.json").read_text())


def slice_of_tests():
    lines = (SUITE / "slice.txt").read_text().splitlines()
    return [one for one in lines if one and not one.startswith("#")]


def test_the_slice_ends_as_stored(tmp_path):
    wanted = slice_of_tests()
    only, output = tmp_path / "only.txt", tmp_path / "results.jsonl"
    only.write_text("\n".join(wanted))
    command = [sys.executable, str(SUITE / "worker.py"), "slice", "hermetic", str(output)]
    process = subprocess.run(
        [*command, "--only", str(only), "--seconds", "600"],
        env=run.environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    explanations = table.Explanations()
    found, details = {}, {}
    for line in output.read_text().splitlines():
        entry = json.loads(line)
        if "id" in entry:
            found[entry["id"]] = table.judge(entry["id"], entry, explanations)[0]
            details[entry["id"]] = entry["detail"]
    stored = table.kinds_of(STORED)
    expected = {one: stored[one] for one in wanted}
    wrong = {one: details[one] for one in found if found[one] != expected[one]}
    assert not wrong
    assert found == expected


def test_nearly_all_end_as_with_numba():
    kinds = list(table.kinds_of(STORED).values())
    applicable = [one for one in kinds if one != "not applicable"]
    assert len(applicable) >= 1500
    assert applicable.count("same") / len(applicable) >= 0.99


def test_every_subject_is_represented():
    for name, counts in table.by_subject(STORED).items():
        assert counts["same"] >= 5, name


def test_every_difference_is_explained():
    explanations = table.Explanations()
    for module, kinds in STORED["modules"].items():
        for kind in ("different", "refused"):
            for rest, reason in kinds.get(kind, {}).items():
                assert explanations.groups[reason]["reason"], (module, rest)


def test_the_document_shows_the_stored_list():
    page = (ROOT / "docs" / "numba-coverage.md").read_text()
    assert page == table.document(STORED, table.Explanations())

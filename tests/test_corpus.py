"""The corpus of published packages: its scripts, on a package made here, and what they wrote."""

from __future__ import annotations

import json
import re

import pytest
from benchmarks.corpus import measure

from documents import ROOT

pytestmark = pytest.mark.usefixtures("alloccheck_oracle")

PACKAGE = """
import numpy as np
from numba import njit, vectorize

@njit
def _inner(pair, k):
    return pair[0] * k + pair[1]

@njit
def outer(x):
    total = 0.0
    for value in x:
        total += _inner((value, 1.0), 2)
    return total

@njit
def doubled(x):
    return x * 2.0

@vectorize
def smooth(a, b):
    return 0.5 * (a + b)
"""

DRIVER = """
import made_here
import numpy as np

PACKAGE = "made_here"

def run():
    made_here.outer(np.ones(3))
    made_here.doubled(np.ones(3))
    made_here.smooth(np.ones(3), 1.0)
    print("a driver may print")
"""

RUNNER = """
import runpy
from pathlib import Path

import benchmarks.corpus

benchmarks.corpus.__path__.append(str(Path(__file__).parent))
runpy.run_module("benchmarks.corpus", run_name="__main__")
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Drivers, measurement, results and tables, of one package without a network."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "made_here.py").write_text(PACKAGE)
    (folder / "drivers").mkdir()
    (folder / "drivers" / "drive_made_here.py").write_text(DRIVER)
    (folder / "drivers" / "__main__.py").write_text(RUNNER)
    page = folder / "README.md"
    page.write_text("before\n<!-- begin results -->\nold\n<!-- end results -->\nafter\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "DRIVERS", "drivers")
        patch.setattr(measure, "PATH", (*measure.PATH, folder))
        patch.setattr(measure, "RESULTS", folder / "results")
        patch.setattr(measure, "PAGE", page)
        measure.main(["made_here"])
    return json.loads((folder / "results" / "made_here.json").read_text()), page.read_text()


def test_each_function_has_a_verdict_and_each_proof_was_run(measured):
    result, _ = measured
    found = {one["function"]: one for one in result["functions"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "made_here:_inner": "proved",
        "made_here:outer": "proved",
        "made_here:doubled": "allocates",
        "made_here:smooth": "proved",
    }
    proved = [one["counted"] for one in found.values() if one["verdict"] == "proved"]
    assert all(one["returned"] and not one["refuted"] for one in proved)
    assert found["made_here:outer"]["counted"]["own"] == 1
    assert "counted" not in found["made_here:doubled"]


def test_times_are_of_the_plain_run_and_the_audit(measured):
    result, _ = measured
    times = result["times"]
    assert set(times) == {"plain", "audit", "plain cpu", "audit cpu"}
    assert 0 < times["plain cpu"] < times["audit cpu"]


def test_the_tables_say_what_the_results_say(measured):
    _, page = measured
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    assert "| made_here | 4 | 3 | 1 | 0 | 3 | 0 | 0 |" in page
    assert "| **total** | 4 | 3 | 1 | 0 | 3 | 0 | 0 |" in page
    assert "Nothing was left undecided." in page
    assert re.search(r"\| made_here \| \d+\.\d \| \d+\.\d \| \d+\.\d\d \| \d+\.\d\d \|", page)


def test_a_driver_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "PAGE", tmp_path / "README.md")
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results")
    with pytest.raises(RuntimeError, match=r"no_such: .*No module named .*drive_no_such"):
        measure.main(["--only", "functions", "no_such"])
    with pytest.raises(RuntimeError, match="no_such: the driver failed"):
        measure.main(["--only", "times", "no_such"])


def test_not_run_and_undecided_are_told_with_their_reasons(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    proved = {"function": "a:f", "signature": "()", "verdict": "proved"}
    kept = {"returned": 2, "refuted": [], "note": ""}
    not_run = {"returned": 0, "refuted": [], "note": "no values for a thing"}
    refuted = {"returned": 2, "refuted": ["call 1"], "note": ""}
    undecided = {"function": "a:g", "verdict": "undecided", "reason": "because"}
    functions = [*({**proved, "counted": one} for one in (kept, not_run, refuted)), undecided]
    (tmp_path / "a.json").write_text(json.dumps({"functions": functions}))
    tables = measure.tables()
    assert "| a | 4 | 3 | 0 | 1 | 1 | 1 | 1 |" in tables
    assert "- `a:g` was left undecided: because" in tables
    assert "- `a:f()` was not run: no values for a thing" in tables


def test_what_is_kept_is_whole():
    """Each package has a driver and a pin; what was measured stands in the document."""
    folder = ROOT / "benchmarks" / "corpus"
    drivers = {file.stem.removeprefix("drive_") for file in folder.glob("drive_*.py")}
    results = {file.stem for file in (folder / "results").glob("*.json")}
    pins = re.findall(r"^([\w-]+)==", (folder / "requirements.txt").read_text(), re.MULTILINE)
    assert set(measure.PACKAGES) == drivers >= results
    assert len(results) > 8
    assert {name.replace("-", "_") for name in pins} >= drivers
    for name in sorted(results):
        data = json.loads((folder / "results" / f"{name}.json").read_text())
        assert {"version"} < set(data) <= {"functions", "times", "version"}, name
        assert f"{name.replace('_', '-')}=={data['version']}" in (
            folder / "requirements.txt"
        ).read_text().replace("_", "-")
        for one in data.get("functions", []):
            assert ("counted" in one) == (one["verdict"] == "proved"), (name, one["function"])
            assert not one.get("counted", {}).get("refuted")
    assert measure.tables() in (folder / "README.md").read_text()

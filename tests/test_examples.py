"""The examples: each runs, prints what it should, and gets the verdict that it was written for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import alloccheck

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SOURCES = Path(alloccheck.__file__).parents[1]

PRINTED = {
    "biquad.py": ["100 Hz at 1.000", "8 kHz at 0.012"],
    "control_loop.py": ["PID: the arm is at 1.00", "0.0000 rad from its target"],
    "integrand.py": ["black body: 6.493939402,", "bell: 3.141592654,"],
    "kinetics.py": ["their sum is 1.000000", "C entry at the start: -0.04, 0.04, 0.00"],
    "limiter.py": ["loudest sample: 1.979 before, 0.500 after"],
    "order_book.py": ["10 bids, the best", "at 100.20"],
    "naive/naive_biquad.py": ["impulse response: 0.25 0.5 0.25 0.0"],
    "naive/naive_control_loop.py": ["0.0000 rad from its target"],
    "naive/naive_integrand.py": ["bell: 3.141592654,"],
    "naive/naive_kinetics.py": ["at the start: -0.04, 0.04, 0.00"],
    "naive/naive_limiter.py": ["loudest sample: 1.000 before, 0.500 after"],
    "naive/naive_order_book.py": ["1 bids, the best at 99.90"],
}

PROVED = {
    "biquad:biquad",
    "control_loop:add_product",
    "control_loop:observer_step",
    "control_loop:pid_step",
    "integrand:bell",
    "integrand:planck",
    "kinetics:derivatives",
    "kinetics:right_hand_side",
    "limiter:callback",
    "limiter:limit",
    "order_book:find",
    "order_book:update",
}

# Of each naive twin, the beginnings of the lines that take memory.
ALLOCATING = {
    "naive_biquad:biquad": ["out = np.empty_like"],
    "naive_control_loop:observer_step": [
        "corrected = estimate",
        "command[:] = feedback",
        "return a @ corrected",
    ],
    "naive_integrand:bell": ["return math.exp"],
    "naive_kinetics:derivatives": ["flows = rates", "return np.array"],
    "naive_limiter:limit": ["peaks = np.maximum", "gains = np.ones", "out[:] = block"],
    "naive_order_book:update": ["bids[price] = size", "prices = list"],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(SOURCES), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_every_example_is_listed():
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    assert files == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_example_runs(name):
    finished = run(str(EXAMPLES / name))
    assert finished.returncode == 0, finished.stderr
    for text in PRINTED[name]:
        assert text in finished.stdout


@pytest.fixture(scope="module")
def checked():
    command = "from alloccheck.cli import main; main()"
    finished = run("-c", command, "check", "examples/", "--format", "json")
    assert finished.returncode == 1, finished.stderr
    return json.loads(finished.stdout)


def test_exactly_the_naive_twins_are_found_fault_with(checked):
    assert checked["problems"] == []
    assert checked["without_signature"] == []
    verdicts = {report["function"]: report["ok"] for report in checked["reports"]}
    assert {name for name, ok in verdicts.items() if ok} == PROVED
    assert {name for name, ok in verdicts.items() if not ok} == set(ALLOCATING)


def test_allocations_of_the_twins_are_on_the_lines_that_take_memory(checked):
    found = {}
    for report in checked["reports"]:
        lines = Path(report["file"]).read_text().splitlines()
        numbers = {
            next(frame["line"] for frame in finding["backtrace"] if frame["file"] == report["file"])
            for finding in report["findings"]
            if finding["effect"] == "allocate" and finding["path"] == "return"
        }
        if numbers:
            found[report["function"]] = [lines[number - 1].strip() for number in sorted(numbers)]
    assert found.keys() == ALLOCATING.keys()
    for name, beginnings in ALLOCATING.items():
        assert len(found[name]) == len(beginnings), found[name]
        for line, beginning in zip(found[name], beginnings, strict=True):
            assert line.startswith(beginning)


def test_every_example_has_a_naive_twin():
    plain = {path.name for path in EXAMPLES.glob("*.py")}
    assert {path.name.removeprefix("naive_") for path in EXAMPLES.glob("naive/*.py")} == plain

"""`alloccheck check` finds the methods of jitclasses, decorated or named."""

from __future__ import annotations

import hashlib
import json

import pytest
from click.testing import CliRunner, Result

from alloccheck.cli import main

PROGRAM = """
import numpy as np
from numba import float64, int64
from numba.experimental import jitclass
from alloccheck import check_allocs, nonblocking

@nonblocking
@jitclass([("level", float64), ("count", int64)])
class Smooth:
    def __init__(self):
        self.level = 0.0
        self.count = 0

    def put(self, x):
        self.level += 0.1 * (x - self.level)
        self.count += 1

    def table(self, n):
        return np.full(n, self.level)[0]

    def value(self):
        return self.level

    @staticmethod
    def twice(x):
        return 2.0 * x

@jitclass([("level", float64)])
class Plain:
    def __init__(self):
        self.level = 1.0

    def get(self, by):
        return self.level * by

    def made(self, n):
        return np.ones(n)[0]

def clean(x):
    return x

Smooth().put(1.0)
"""
SETTINGS = """
[tool.alloccheck.signatures]
"{name}:Smooth.table" = ["float64(int64)"]
"{name}:Smooth.twice" = ["float64(float64)", "(int64,)"]
"{name}:Plain.get" = ["float64(float64)"]
"{name}:Plain.made" = ["(int64,)"]
"""


@pytest.fixture
def check(tmp_path, monkeypatch, request):
    """Runs the command in a directory with the program, a module of a name of its own."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()
    name = f"jitclasses_{digest[:8]}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, settings: bool = False) -> Result:
        if settings:
            (tmp_path / "pyproject.toml").write_text(SETTINGS.format(name=name))
        given = [one.replace("FILE", f"{name}.py") for one in arguments]
        return CliRunner().invoke(main, ["check", "--format", "json", *given])

    return run


def verdicts(result: Result) -> dict[str, bool]:
    return {
        f"{one['function'].partition(':')[2]} {one['signature']}": one["ok"]
        for one in json.loads(result.stdout)["reports"]
    }


SELF = "instance.jitclass.Smooth<level:float64,count:int64>"


def test_decorated_methods_are_found_with_what_was_proved_when_they_were_called(check):
    result = check("FILE")
    assert verdicts(result) == {f"Smooth.put none({SELF}, float64)": True}
    left = [one.partition(":")[2] for one in json.loads(result.stdout)["without_signature"]]
    assert left == ["Smooth.table", "Smooth.value"]
    assert json.loads(result.stdout)["reports"][0]["guarantee"] == "nonblocking"


def test_signatures_of_the_settings_leave_out_self(check):
    result = check("FILE", settings=True)
    plain = "instance.jitclass.Plain<level:float64>"
    assert verdicts(result) == {
        f"Smooth.put none({SELF}, float64)": True,
        f"Smooth.table float64({SELF}, int64)": False,
        f"Plain.get float64({plain}, float64)": True,
        f"Plain.made float64({plain}, int64)": False,
        "Smooth.twice float64(float64)": True,
        "Smooth.twice float64(int64)": True,
    }
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("target", "signature", "proved"),
    [
        ("FILE:Smooth.value", "float64()", True),
        ("FILE:Smooth.table", "float64(int64)", False),
        ("FILE:Plain.get", "(int64,)", True),
        ("FILE:Plain.made", "float64(int64)", False),
        ("FILE:clean", "float64(float64)", True),
    ],
)
def test_one_method_is_asked_about(check, target, signature, proved):
    result = check(target, "--signature", signature)
    assert list(verdicts(result).values()) == [proved]
    assert result.exit_code == (0 if proved else 1)


def test_a_method_that_is_not_there_is_told_with_the_nearest(check):
    result = check("FILE:Smooth.tabel", "--signature", "float64(int64)")
    assert result.exit_code == 2
    assert "has no attribute 'tabel'; did you mean 'table'?" in result.stderr

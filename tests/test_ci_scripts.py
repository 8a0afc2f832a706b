"""The scripts of `.ci/`: they parse, and the nightly one tries what it is told to."""

import os
import subprocess
import sys

import pytest

from documents import ROOT

SCRIPTS = sorted((ROOT / ".ci").iterdir())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_scripts_parse_and_stop_at_the_first_failure(script):
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def nightly(*words):
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        ["bash", ROOT / ".ci" / "nightly", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "ALLOCCHECK_NIGHTLY_PYTHON": sys.executable, "PYTHONPATH": path},
    )


@pytest.mark.usefixtures("alloccheck_oracle")
def test_the_nightly_script_tries_as_many_programs_as_it_is_told():
    done = nightly("2", "7000000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("programs judged 2, not compiled or not measured 0\n"), (
        done.stdout
    )


def test_the_nightly_script_fails_when_the_programs_cannot_be_tried():
    assert nightly("many").returncode != 0

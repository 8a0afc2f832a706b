"""What the walk calls clean takes no memory when it runs, whatever it is given."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEAST = {"libm": 1000, "helpers": 90, "cython_special": 90}
"""So many functions of each group are clean and must have run to the end at least once."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    assert platform.machine() == "x86_64"
    library = tmp_path_factory.mktemp("counted") / "counted.so"
    source = HERE / "native_sources" / "counted.c"
    command = ["gcc", "-O2", "-w", "-fPIC", "-shared", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    # Bound at the start: what the dynamic linker does at a first call is not the function's.
    environment = {**os.environ, "LD_PRELOAD": str(library), "LD_BIND_NOW": "1"}
    command = [sys.executable, str(HERE / "counted_calls.py"), str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_the_counter_counts(counted):
    [(number, calls)] = counted["control"].values()
    assert number == calls > 100


@pytest.mark.parametrize("group", LEAST)
def test_clean_functions_never_allocate(counted, group):
    found = counted[group]
    assert {name: number for name, (number, _) in found.items() if number > 0} == {}
    ran = [name for name, (_, calls) in found.items() if calls]
    assert len(ran) >= LEAST[group], (len(ran), len(found))

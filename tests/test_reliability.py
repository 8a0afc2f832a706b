"""`alloccheck` in poor surroundings: the same answer, or a clear sentence; never a wrong one."""

import json
import os
import resource
import subprocess
import sys

import pytest

PROGRAM = '''
"""Two functions: one that is proved, and one that allocates."""
import numpy as np
from alloccheck import check_allocs


@check_allocs("void(float64[::1], float64[::1])")
def clean(out, x):
    for i in range(x.size):
        out[i] = 2.0 * x[i]


@check_allocs("float64(float64[::1])", on_failure="report")
def total_of_double(x):
    return (2.0 * x).sum()  # größer
'''


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return file


def check(program, *options, interpreter=(), limit=None, remove=(), **environment):
    """Run the command, with a changed environment and without a terminal."""
    changed = {**os.environ, **environment}
    for name in (*remove, "COLUMNS", "TERM"):
        changed.pop(name, None)
    return subprocess.run(
        [sys.executable, *interpreter, "-m", "alloccheck", "check", *options, program.name],
        cwd=program.parent,
        env=changed,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        preexec_fn=limit,
    )


def answer(done):
    """What a JSON report says, apart from how long it took."""
    data = json.loads(done.stdout)
    assert len(data["reports"]) == 2
    for report in data["reports"]:
        report.pop("timings", None)
    return data


def test_the_order_of_hashes_changes_nothing(program):
    seen = [check(program, "--format", "json", PYTHONHASHSEED=seed) for seed in ("0", "1", "12345")]
    assert [one.returncode for one in seen] == [1, 1, 1], seen[0].stderr
    first, *others = map(answer, seen)
    assert all(one == first for one in others)


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_without_a_writable_home(program, name):
    # Not even the superuser writes below a device.
    done = check(program, remove=("HOME", "XDG_CACHE_HOME"), **{name: "/dev/null/home"})
    assert done.returncode == 1, done.stderr
    assert b"1 proved, 1 not proved" in done.stdout and not done.stderr


def test_without_any_home(program):
    done = check(program, remove=("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME"))
    assert done.returncode == 1 and b"1 proved, 1 not proved" in done.stdout, done.stderr


def test_output_that_takes_ascii_only(program):
    done = check(program, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 1, done.stderr
    assert b"1 proved, 1 not proved" in done.stdout and b"AC101" in done.stdout
    assert not done.stderr


def test_a_file_name_that_numba_cannot_write(program):
    odd = program.rename(program.with_name("größe.py"))
    assert check(odd).returncode == 1
    done = check(odd, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert b"does not compile" in done.stderr and b"internal error" not in done.stderr


def test_warnings_as_errors(program):
    done = check(program, interpreter=("-W", "error"))
    assert done.returncode == 1, done.stderr
    assert b"1 proved, 1 not proved" in done.stdout


@pytest.mark.parametrize("megabytes", [200, 400, 600, 800, 1000, 1500, 4000])
def test_under_memory_pressure_nothing_is_proved_that_was_not(program, megabytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    done = check(program, limit=limit)
    # Python or LLVM may die of it, but what is said is right.
    assert done.returncode != 0
    if b"proved" in done.stdout:
        assert b"2 proved" not in done.stdout
    if megabytes == 4000:
        assert done.returncode == 1 and b"1 proved, 1 not proved" in done.stdout


def test_a_closed_pipe_is_no_traceback(program):
    command = [sys.executable, "-m", "alloccheck", "check", program.name]
    process = subprocess.Popen(
        command, cwd=program.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    _, told = process.communicate(timeout=300)
    assert b"Traceback" not in told, told

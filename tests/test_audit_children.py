"""An audit follows the program's other Python processes, and says so when one was lost."""

from __future__ import annotations

import sys

import pytest

from test_audit import audit, document

KERNELS = """
import numpy as np
from numba import njit

@njit
def here(x):
    return x + 1

@njit
def clean(x):
    return 2 * x

@njit
def allocating(n):
    return np.ones(n).sum()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def verdicts(done):
    found = document(done)
    return found, {one["function"].partition(":")[2]: one["verdict"] for one in found["functions"]}


def test_workers_of_xdist_are_followed(folder):
    (folder / "test_it.py").write_text(
        "import kernels\n"
        "def test_clean():\n    assert kernels.clean(2) == 4\n"
        "def test_allocating():\n    assert kernels.allocating(3) == 3\n"
    )
    words = ("pytest", "-q", "-n2", "-p", "no:cacheprovider", "test_it.py")
    done = audit("--format", "json", "--", *words, cwd=folder)
    found, seen = verdicts(done)
    assert found["problems"] == [], done.stderr
    assert seen == {"clean": "proved", "allocating": "allocates"}
    assert found["processes"] == 3
    assert "2 passed" in done.stderr


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(7)", 7), ("raise ValueError", 1), ("sys.exit()", 0), ("pass", 0)]
)
def test_a_fork_that_ends_by_itself_is_no_second_audit(folder, end, code):
    (folder / "prog.py").write_text(
        "import atexit, os, sys\n"
        "import kernels\n"
        "kernels.here(1)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    atexit.register(print, 'handler')\n"
        f"    kernels.clean(2)\n    {end}\n"
        "else:\n"
        "    print('code', os.waitpid(child, 0)[1] >> 8)\n"
    )
    done = audit("--format", "json", "prog.py", cwd=folder)
    found, seen = verdicts(done)
    assert found["problems"] == [], done.stderr
    assert seen == {"here": "proved", "clean": "proved"} and found["processes"] == 2
    assert "handler\n" in done.stderr and f"code {code}\n" in done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_followed(folder, method):
    (folder / "prog.py").write_text(
        "import multiprocessing, sys\n"
        "import kernels\n"
        "def work(n):\n    return kernels.clean(n), kernels.allocating(n)\n"
        "if __name__ == '__main__':\n"
        "    kernels.here(1)\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    one = context.Process(target=work, args=(3,))\n"
        "    one.start()\n"
        "    one.join()\n"
        "    sys.exit(one.exitcode)\n"
    )
    found, seen = verdicts(audit("--format", "json", "prog.py", cwd=folder))
    assert found["problems"] == []
    assert seen == {"here": "proved", "clean": "proved", "allocating": "allocates"}
    assert found["processes"] == 2


@pytest.mark.parametrize("customised", [True, False])
def test_a_program_that_another_starts_is_followed_and_not_waited_for(folder, customised):
    """Its output ends with it, though its copy still analyses; its own customisation is run."""
    if customised:
        (folder / "sitecustomize.py").write_text("import sys\nsys.customised = True\n")
    (folder / "inner.py").write_text(
        f"import sys\nassert hasattr(sys, 'customised') == {customised}\nimport kernels\n"
        "assert not any('follow' in one for one in sys.path)\nprint(kernels.clean(2))\n"
    )
    (folder / "prog.py").write_text(
        "import os, subprocess, sys\n"
        "os.environ['PYTHONPATH'] += os.pathsep + os.getcwd()\n"
        "done = subprocess.run([sys.executable, 'inner.py'], capture_output=True, text=True)\n"
        "assert (done.stdout, done.stderr) == ('4\\n', ''), done\n"
    )
    done = audit("prog.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "1 functions compiled for prog.py in 2 processes" in done.stdout


def test_a_process_that_is_killed_is_missed(folder):
    (folder / "prog.py").write_text(
        "import multiprocessing, os, signal\n"
        "import kernels\n"
        "def work():\n    kernels.clean(3)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    kernels.here(1)\n"
        "    one = multiprocessing.get_context('fork').Process(target=work)\n"
        "    one.start()\n"
        "    one.join()\n"
    )
    found, seen = verdicts(audit("--format", "json", "prog.py", cwd=folder))
    assert seen == {"here": "proved"}
    (problem,) = found["problems"]
    assert "compiled functions with Numba and ended without telling which" in problem
    assert found["exit_code"] == 2


def test_another_environment_is_said_to_be_unseen(folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "numba.py").write_text("print('another Numba')\n")
    (folder / "prog.py").write_text(
        "import os, subprocess, sys\n"
        "import kernels\nkernels.here(1)\n"
        "del os.environ['PYTHONPATH']\n"
        "import alloccheck.audit\n"
        "follow = os.path.join(os.path.dirname(alloccheck.audit.__file__), 'follow')\n"
        "code = 'import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize;'\n"
        "code += 'sys.path.insert(0, \"elsewhere\"); import numba'\n"
        "words = [sys.executable, '-I', '-S', '-c', code, follow]\n"
        "done = subprocess.run(words, capture_output=True, text=True)\n"
        "assert done.stdout == 'another Numba\\n', done\n"
    )
    found, seen = verdicts(audit("--format", "json", "prog.py", cwd=folder))
    assert seen == {"here": "proved"}
    assert found["problems"] == [
        "another process could not be followed: ModuleNotFoundError: No module named 'alloccheck'"
    ]


def test_the_environment_is_put_back(folder, monkeypatch):
    import os

    from alloccheck.audit.program import command_of
    from alloccheck.audit.run import audit as run

    (folder / "prog.py").write_text("import os\nassert os.environ['ALLOCCHECK_AUDIT']\n")
    monkeypatch.chdir(folder)
    before, customized = dict(os.environ), sys.modules.get("sitecustomize")
    assert run(command_of(["prog.py"]), processes=0).problems == (
        "the program compiled no function with Numba",
    )
    assert dict(os.environ) == before
    assert sys.modules.get("sitecustomize") is customized


@pytest.mark.usefixtures("alloccheck_oracle")
def test_the_measuring_process_is_not_followed(folder):
    """What it compiles to count is not the program's."""
    (folder / "prog.py").write_text(
        "from alloccheck.oracle import count_effects\n"
        "import kernels\nkernels.here(1)\n"
        "assert count_effects(kernels.clean, 2).allocations == 0\n"
    )
    found, seen = verdicts(audit("--format", "json", "prog.py", cwd=folder))
    assert (found["problems"], found["processes"]) == ([], 1)
    assert seen == {"here": "proved"}

"""`alloccheck audit`: the program runs as it would, and everything it compiled is judged."""

from __future__ import annotations

import concurrent.futures
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from alloccheck.audit import workers
from alloccheck.audit.judge import VERDICTS, Row
from alloccheck.audit.program import Command, command_of
from alloccheck.audit.report import Audit, audit_to_json, audit_to_text
from alloccheck.cli import main
from alloccheck.errors import UsageError
from test_report import SCHEMA, violations

ROOT = Path(__file__).parents[1]

PROGRAM = """
import sys
import numpy as np
from numba import cfunc, njit, objmode, vectorize

@njit
def gain(out, x, g):
    for i in range(x.size):
        out[i] = g * x[i]

@njit
def temporary(x):
    return (x + 1.0).sum()

@njit
def checked_index(x, i):
    if i >= x.size:
        raise IndexError("too large")
    return x[i]

@njit
def printing(x):
    print(x)

@njit
def in_python(x):
    with objmode(y="int64"):
        y = x + 1
    return y

@njit
def of_function(f, x):
    return f(x)

@vectorize
def smooth(a, b):
    return a + b

@cfunc("float64(float64)")
def square(x):
    return x * x

x = np.ones(4)
gain(np.zeros(4), x, 2.0)
temporary(x), checked_index(x, 1), in_python(1), smooth(x, x), printing(1)
"""


def audit(*words, cwd, **options):
    return subprocess.run(
        [sys.executable, "-m", "alloccheck", "audit", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **options},
    )


def document(done):
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return found


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    (folder / "prog.py").write_text(PROGRAM)
    return folder, audit("--format", "json", "prog.py", cwd=folder)


def rows_of(done):
    return {one["function"].partition(":")[2]: one for one in document(done)["functions"]}


def test_every_function_has_its_verdict(audited):
    _, done = audited
    rows = rows_of(done)
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "gain": "proved",
        "temporary": "allocates",
        "checked_index": "proved",
        "printing": "allocates",
        "in_python": "enters Python",
        "smooth": "proved",
        "square": "proved",
    }
    assert rows["smooth"]["kind"] == "ufunc kernel"
    assert rows["square"]["kind"] == "callback"
    assert re.match(r"prog\.py:13: AC101 allocates array", rows["temporary"]["reason"])
    assert "objmode" in rows["in_python"]["reason"]
    assert "raise" in rows["checked_index"]["may"]
    assert "block" in rows["printing"]["may"]
    assert "block" not in rows["gain"]["may"]
    assert done.returncode == 1


def test_the_document_has_the_described_form(audited):
    _, done = audited
    found = document(done)
    assert found["schema"] == "alloccheck.audit/1"
    assert sum(found["counts"].values()) == len(found["functions"]) == 7
    assert tuple(found["counts"]) == VERDICTS
    for one in found["functions"]:
        if one["report"] is not None:
            assert violations(one["report"], SCHEMA) == []
            assert one["report"]["ok"] == (one["verdict"] == "proved")
            certificate = one["report"]["certificate"]
            assert certificate["proved"] == (one["verdict"] == "proved")
            assert certificate["guarantee"] == found["guarantee"] == "nonallocating"
    described = (ROOT / "docs" / "json-schema.md").read_text()
    for key in {*found, *found["functions"][0]}:
        assert f"`{key}`" in described, key


def test_the_same_program_gives_the_same_bytes(audited):
    folder, done = audited
    again = audit("--format", "json", "--processes", "0", "prog.py", cwd=folder)
    assert again.stdout == done.stdout


def test_a_place_that_cannot_be_written_is_told_before_the_program_runs(tmp_path):
    (tmp_path / "loud.py").write_text("print('it ran')\n")
    done = audit("--output", "nowhere/audit.txt", "loud.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere/audit.txt is in no directory to write into" in done.stderr
    assert "it ran" not in done.stdout


def test_the_table_is_for_people(audited):
    folder, _ = audited
    done = audit("--effects", "nonblocking", "--output", "audit.txt", "prog.py", cwd=folder)
    assert done.stdout == "1\n"  # what the program itself prints
    text = (folder / "audit.txt").read_text()
    assert "__main__:gain(" in text
    assert "(callback)" in text
    assert "frees" in text or "allocates" in text
    assert re.search(r"7 functions compiled for prog\.py, asked nonblocking: \d proved", text)


def test_only_narrows_what_is_analysed(audited):
    folder, _ = audited
    (folder / "lib.py").write_text(
        "from numba import njit\n@njit\ndef twice(x):\n    return 2 * x\n"
    )
    (folder / "both.py").write_text(
        "from numba import njit\nfrom lib import twice\n"
        "@njit\ndef f(x):\n    return twice(x)\nf(1)\n"
    )
    done = audit("--format", "json", "--only", "lib", "both.py", cwd=folder)
    assert [one["function"] for one in document(done)["functions"]] == ["lib:twice"]
    assert done.returncode == 0


NOTICING = """
import atexit, sys
from pathlib import Path
print(__name__, sys.argv, __file__, Path(sys.path[0]).name, "numba" in sys.modules)
print(sys.modules["__main__"].__dict__ is globals())
import numba
from numba import njit

@njit
def f(x):
    return x + 1

print(f(1), f.signatures, f.stats.cache_hits)
atexit.register(print, "at exit")
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_the_program_runs_as_it_would(tmp_path, code):
    (tmp_path / "notice.py").write_text(NOTICING)
    plain = subprocess.run(
        [sys.executable, "notice.py", str(code), "--output", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode == code
    done = audit("--output", "audit.txt", "notice.py", str(code), "--output", "x", cwd=tmp_path)
    assert done.stdout == plain.stdout
    assert done.returncode == (2 if code else 0)
    assert ("the program exited with 3" in done.stderr) == bool(code)
    assert "1 proved" in (tmp_path / "audit.txt").read_text()


def test_what_exit_handlers_compile_is_not_in_the_audit(tmp_path):
    """As docs/audit.md says in its limits: they run when all is told."""
    (tmp_path / "handled.py").write_text(
        "import atexit\nimport numpy as np\nfrom numba import njit\n"
        "@njit\ndef early(x):\n    return x\n"
        "@njit\ndef late(n):\n    return np.ones(n)\n"
        "early(1)\natexit.register(lambda: print(late(2), late.signatures))\n"
    )
    done = audit("--output", "audit.txt", "handled.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[1. 1.] [(int64,)]\n")
    told = (tmp_path / "audit.txt").read_text()
    assert "early" in told and "late" not in told


def test_a_program_that_fails_is_still_judged(tmp_path):
    (tmp_path / "fails.py").write_text(
        "from numba import njit\n@njit\ndef f(x):\n    return x\nf(1)\nraise KeyError('no')\n"
    )
    done = audit("--format", "json", "fails.py", cwd=tmp_path)
    found = document(done)
    assert done.returncode == 2
    assert found["problems"] == ["the program ended by KeyError: 'no'"]
    assert [one["verdict"] for one in found["functions"]] == ["proved"]
    assert "Traceback" in done.stderr


def test_modules_and_console_scripts(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom pkg.dsp import f\nprint(f(float(sys.argv[1])))\n"
    )
    (package / "dsp.py").write_text("from numba import njit\n@njit\ndef f(x):\n    return x\n")
    done = audit("--output", "a.json", "--format", "json", "-m", "pkg", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["program"] == "-m pkg 2"
    assert [one["function"] for one in found["functions"]] == ["pkg.dsp:f"]
    (tmp_path / "test_dsp.py").write_text(
        "from pkg.dsp import f\ndef test_f():\n    assert f(1) == 1\n"
    )
    words = ["pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_dsp.py"]
    done = audit("--format", "json", "--", *words, cwd=tmp_path, PYTHONPATH=_path(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [one["signature"] for one in document(done)["functions"]] == ["int64(int64)"]
    assert "1 passed" in done.stderr


def _path(folder):
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no program given"),
        (["no-such-thing"], "no program 'no-such-thing'"),
        (["--processes", "-1", "x.py"], "x>=0"),
        (["--effects", "none", "x.py"], "nonallocating"),
    ],
)
def test_wrong_questions_are_one_sentence(tmp_path, words, said):
    done = audit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


BEGINNINGS = {
    "this package": "from alloccheck import check_allocs\nfrom numba import njit\n",
    "a module of it": "import alloccheck.check\nfrom numba import njit\n",
    "a look whether Numba is there": (
        "import importlib.util\nassert importlib.util.find_spec('numba')\nfrom numba import njit\n"
    ),
}


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize("where", ["the program", "a process of it"])
def test_recording_begins_whatever_imports_numba(tmp_path, beginning, where):
    checked = "check_allocs" if "check_allocs" in beginning else "njit"
    (tmp_path / "prog.py").write_text(
        beginning + f"@{checked}('float64(float64)')\ndef f(x):\n    return x + 1.0\nf(1.0)\n"
    )
    (tmp_path / "other.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'prog.py'], check=True)\n"
    )
    name = "prog.py" if where == "the program" else "other.py"
    done = audit("--format", "json", name, cwd=tmp_path)
    assert document(done)["problems"] == [], done.stderr
    assert {name: row["verdict"] for name, row in rows_of(done).items()} == {"f": "proved"}


AT_THE_END = {
    "a thread": "threading.Thread(target=late).start()\n",
    "an executor": "concurrent.futures.ThreadPoolExecutor(1).submit(late)\n",
    "an error beside it": "threading.Thread(target=late).start()\nraise SystemExit(3)\n",
}


@pytest.mark.parametrize("end", AT_THE_END.values(), ids=AT_THE_END)
def test_threads_that_outlive_the_main_one_are_part_of_the_program(tmp_path, end):
    (tmp_path / "prog.py").write_text(
        "import concurrent.futures, threading, time\n"
        "from numba import njit\n"
        "@njit\ndef f(x):\n    return x + 1\n"
        "def late():\n    time.sleep(0.5)\n    print(f(1))\n" + end
    )
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    assert {name: row["verdict"] for name, row in rows_of(done).items()} == {"f": "proved"}
    assert done.stderr.startswith("2\n")
    assert done.returncode == (2 if "SystemExit" in end else 0)


def test_executors_take_work_after_an_audit_in_the_same_process(tmp_path):
    program = tmp_path / "plain.py"
    program.write_text(
        "import concurrent.futures.process\n"
        "concurrent.futures.ThreadPoolExecutor(1).submit(print, 'hello')\n"
    )
    done = CliRunner().invoke(main, ["audit", str(program)])
    assert done.output.startswith("hello\n")
    for kind in (concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor):
        with kind(1) as pool:
            assert pool.submit(int, "7").result() == 7


def test_a_program_that_takes_the_audit_with_it_is_not_proved(tmp_path):
    (tmp_path / "prog.py").write_text(
        "import os\nfrom numba import njit\n@njit\ndef f(x):\n    return x\nf(1)\n"
        "child = os.fork()\n"
        "if not child:\n    os._exit(7)\n"
        "print(os.waitpid(child, 0)[1] >> 8, flush=True)\nos._exit(0)\n"
    )
    done = audit("prog.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "7\n")
    assert "ended by os._exit" in done.stderr


def test_a_program_without_numba_is_undecided(tmp_path):
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = audit("plain.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "compiled no function" in done.stderr


def test_a_missing_module_is_pythons_own_error(tmp_path):
    done = audit("-m", "no_such_module", cwd=tmp_path)
    assert done.returncode == 2
    assert "no_such_module" in done.stderr


def test_commands_are_understood():
    assert command_of(["python3", __file__, "-x"]) == Command("script", __file__, ("-x",))
    assert command_of(["pytest", "-k", "a"]) == Command("entry point", "pytest", ("-k", "a"))
    assert str(command_of(["pytest", "-k", "a or b"])) == "pytest -k 'a or b'"
    assert str(command_of(["pkg", "a"], module=True)) == "-m pkg a"
    with pytest.raises(UsageError, match="no program given"):
        command_of([])


# --- workers --------------------------------------------------------------------------------------


def told(number, reason):
    return f"lost {number}: {reason}"


def each(answer, items, **options):
    given = {"processes": 2, "timeout": 60.0, **options}
    return workers.each(items, answer, told, **given)


def test_answers_come_in_order_from_other_processes():
    found = each(lambda n: (n, os.getpid()), list(range(7)))
    assert [n for n, _ in found] == list(range(7))
    assert os.getpid() not in {pid for _, pid in found}
    assert each(lambda n: os.getpid(), [1], processes=0) == [os.getpid()]
    assert each(lambda n: n, []) == []


@pytest.mark.parametrize("frozen", [True, False])
def test_what_the_program_froze_stays_frozen(frozen):
    before = gc.get_freeze_count() > 0
    (gc.freeze if frozen else gc.unfreeze)()
    try:
        assert each(lambda n: n + 1, [1]) == [2]
        assert (gc.get_freeze_count() > 0) == frozen
    finally:
        (gc.freeze if before else gc.unfreeze)()


def test_work_begins_while_the_program_runs(tmp_path):
    """A copy answers what it knows; what comes later is answered at the end, by others."""
    looked = tmp_path / "looked"

    def answer(n):
        # The first copy must not have ended before it was looked at.
        while not looked.exists():
            time.sleep(0.01)
        return n, os.getpid()

    pool = workers.Pool(answer, told, processes=2, timeout=60.0)
    pool.add(range(workers.ENOUGH - 1))
    pool.offer()
    assert pool._copies == []
    pool.add(range(workers.ENOUGH - 1, 6))
    pool.offer()
    pool.offer()
    assert len(pool._copies) == 1
    looked.touch()
    deadline = time.monotonic() + 60
    while not pool._copies[0].has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pool.add(range(6, 9))
    found = pool.finish()
    assert [n for n, _ in found] == list(range(9))
    assert len({pid for _, pid in found[:6]}) == 1
    assert {pid for _, pid in found[:6]}.isdisjoint({pid for _, pid in found[6:]})
    assert os.getpid() not in {pid for _, pid in found}


def test_what_is_lost_while_the_program_runs_is_asked_once_more(tmp_path):
    marker = tmp_path / "seen"

    def answer(n):
        if n == 2 and not marker.exists():
            marker.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    pool = workers.Pool(answer, told, processes=2, timeout=60.0)
    pool.add(range(5))
    pool.offer()
    assert pool.finish() == list(range(5))
    assert marker.exists()


def children():
    """The processes that this thread would be told of."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_the_program_never_meets_the_copies():
    before = children()
    pool = workers.Pool(lambda n: n, told, processes=2, timeout=60.0)
    pool.add(range(5))
    pool.offer()
    assert children() == before
    assert pool.finish() == list(range(5))


def test_one_process_begins_when_the_program_has_ended():
    pool = workers.Pool(lambda n: n, told, processes=1, timeout=60.0)
    pool.add(range(9))
    pool.offer()
    assert pool._copies == []
    assert pool.finish() == list(range(9))


def test_a_crash_costs_one_answer():
    def answer(n):
        if n == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if n == 3:
            os._exit(7)
        return n

    found = each(answer, list(range(5)))
    assert [found[n] for n in (0, 2, 4)] == [0, 2, 4]
    assert found[1] == "lost 1: the analysis crashed by SIGKILL; please report it"
    assert found[3] == "lost 3: the analysis ended with exit code 7; please report it"


def test_one_that_does_not_end_costs_one_answer():
    def answer(n):
        if n == 1:
            time.sleep(600)
        return n

    assert each(answer, [0, 1, 2], timeout=2.0) == [
        0,
        "lost 1: the analysis took longer than 2 s",
        2,
    ]


def test_children_do_not_outlive_an_interrupt():
    def interrupted(n, reason):
        raise KeyboardInterrupt

    def answer(n):
        os._exit(3)

    before = children()
    with pytest.raises(KeyboardInterrupt):
        workers.each([1, 2], answer, interrupted, processes=2, timeout=60.0)
    assert children() == before


# --- what it says ---------------------------------------------------------------------------------


def row(verdict, reason=""):
    return Row("m:f", "m.py", 1, "none()", "function", "compiled", verdict, reason)


@pytest.mark.parametrize(
    ("verdicts", "problems", "code"),
    [
        (("proved",), (), 0),
        (("proved", "allocates"), (), 1),
        (("blocks",), (), 1),
        (("allocates", "undecided"), (), 2),
        (("proved",), ("the program exited with 1",), 2),
    ],
)
def test_exit_codes(verdicts, problems, code):
    found = Audit("x.py", "nonallocating", tuple(map(row, verdicts)), problems)
    assert found.exit_code == code
    assert json.loads(audit_to_json(found))["exit_code"] == code


def test_undecided_rows_say_why():
    text = audit_to_text(Audit("x.py", "nonallocating", (row("undecided", "reasons of its own"),)))
    assert "reasons of its own" in text
    assert "1 undecided" in text

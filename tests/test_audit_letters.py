"""Copies that are made before the first compile are told of what is compiled later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from numba import njit, typeof, types
from numba.experimental import jitclass

from alloccheck.audit import workers
from alloccheck.audit.letters import Letters
from alloccheck.compile.kin import KinIdentity, living, told, understood
from alloccheck.compile.recording import Recorder
from test_audit import audit, document


class Numbers:
    """Letters about numbers; only even ones exist in the copies."""

    def __init__(self):
        self.version = "one"

    def open(self):
        pass

    def write(self, one):
        return str(one).encode()

    def read(self, letter):
        return int(letter) if int(letter) % 2 == 0 else None

    def question(self, one):
        return f"{one} {self.version}"


def lost(number, reason):
    return f"lost {number}: {reason}"


def pool_of(answer, letters, processes=2):
    return workers.Pool(answer, lost, processes=processes, timeout=60.0, letters=letters)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_one_copy_answers_what_it_is_told_and_another_the_rest():
    pool = pool_of(lambda n: (n, os.getpid()), Numbers())
    pool.begin()
    pool.begin()
    (copy,) = pool._copies
    for n in (2, 3, 4):
        pool.add([n])
    wait_until(lambda: pool._taken[1] == workers._ELSEWHERE and pool._taken[2] == workers._TAKEN)
    pool.add([6, 5])
    found = pool.finish()
    assert [n for n, _ in found] == [2, 3, 4, 6, 5]
    pids = dict(found)
    assert pids[2] == pids[4] == pids[6] == copy._pid
    assert copy._pid not in (pids[3], pids[5])


def test_an_answer_to_another_question_is_not_kept():
    letters = Numbers()
    pool = pool_of(lambda n: letters.version, letters)
    pool.begin()
    pool.add([2, 4])
    wait_until(lambda: pool._taken[1] == workers._TAKEN)
    letters.version = "two"
    assert pool.finish() == ["two", "two"]


def test_a_question_that_changes_while_it_is_answered_is_asked_once_more():
    letters = Numbers()

    def answer(n):
        before, letters.version = letters.version, "two"
        return before

    pool = pool_of(answer, letters)
    pool.begin()
    pool.add([2])
    wait_until(lambda: pool._taken[0] == workers._TAKEN)
    letters.version = "other"
    assert pool.finish() == ["other"]


def test_a_copy_that_knows_nothing_of_what_waits_makes_room_for_another():
    pool = pool_of(lambda n: (n, os.getpid()), Numbers())
    pool.begin()
    (first,) = pool._copies
    pool.add(range(1, 2 * workers.ENOUGH, 2))
    wait_until(lambda: pool._taken[workers.ENOUGH - 1] == workers._ELSEWHERE and first.idle)
    pool.offer()
    second = pool._copies[-1]
    assert first.ends
    assert second is not first
    wait_until(lambda: all(pool._taken[n] == workers._TAKEN for n in range(workers.ENOUGH)))
    assert {pid for _, pid in pool.finish()} == {second._pid}


def test_a_busy_copy_is_left_alone(tmp_path):
    free = tmp_path / "free"

    def answer(n):
        wait_until(free.exists)
        return n

    pool = pool_of(answer, Numbers())
    pool.begin()
    pool.add([2])
    wait_until(lambda: pool._taken[0] == workers._TAKEN)
    pool.add(range(1, 2 * workers.ENOUGH, 2))
    pool.offer()
    assert len(pool._copies) == 1
    assert not pool._copies[0].ends
    free.touch()
    assert pool.finish() == [2, *range(1, 2 * workers.ENOUGH, 2)]


@pytest.mark.parametrize(
    "last_words",
    [
        "os._exit(0)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.execv('/bin/sleep', ['sleep', '60'])",
    ],
)
def test_a_copy_ends_with_its_program(last_words, tmp_path):
    program = f"""
import os, signal
from alloccheck.audit import workers
from test_audit_letters import Numbers, pool_of
pool = pool_of(lambda n: n, Numbers())
pool.begin()
print(pool._copies[0]._pid, flush=True)
{last_words}
"""
    paths = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        copy = int(process.stdout.readline())
        try:
            wait_until(lambda: not workers.runs(copy))
        finally:
            process.kill()


# --- letters about functions ----------------------------------------------------------------------


@njit
def gain(x, by=2.0):
    return x * by


@njit
def applied(f, x):
    return f(x)


@jitclass([("x", types.float64)])
class Point:
    def __init__(self, x):
        self.x = x


@njit
def abscissa(point):
    return point.x


def records_of(call, *arguments):
    with Recorder() as recorder:
        call(*arguments)
    return recorder.compiled


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (gain, (1.0,)),
        (gain, (np.ones((2, 3)).T, np.float32(2))),
        (applied, (gain, 2.0)),
        (abscissa, (Point(1.0),)),
    ],
)
def test_a_letter_is_read_as_it_was_written(function, arguments):
    plain = njit(function.py_func)
    (one,) = (x for x in records_of(plain, *arguments) if x.target is plain)
    letters = Letters()
    letters.open()
    found = letters.read(letters.write(one))
    assert found.target is plain
    assert found.argument_types == one.argument_types
    assert letters.question(found) == letters.question(one)
    assert letters.question(one) is not None


def test_what_did_not_exist_is_not_read():
    letters = Letters()
    letters.open()

    @njit
    def later(x):
        return x

    (one,) = records_of(later, 1)
    assert letters.read(letters.write(one)) is None


def test_only_living_objects_are_looked_at():
    """Proxies are asked for their class by `isinstance`, and may run any code then."""
    import weakref

    class Gone:
        pass

    one = Gone()
    proxy = weakref.proxy(one)
    del one
    found = living()
    assert found[id(gain)] is gain
    assert found[id(Gone)] is Gone
    assert id(proxy) not in found
    assert understood(told((gain, float, Gone, [1, "x"])), found) == (gain, float, Gone, [1, "x"])


def digest(value):
    identity = KinIdentity()
    identity.value("it", value)
    return identity.digest()


class Settings:
    def __init__(self):
        self.size = 3

    def area(self):
        return self.size


def _changed_method(one):
    Settings.area = lambda self: 0


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1, 2], lambda one: one.append(3)),
        (lambda: {"a": [1]}, lambda one: one["a"].append(2)),
        (Settings, lambda one: setattr(one, "size", 4)),
        (lambda: Settings, _changed_method),
        (lambda: (1, [2]), lambda one: one[1].append(2)),
    ],
)
def test_what_has_no_name_elsewhere_is_told_by_address_and_content(make, change):
    one = make()
    before = digest(one)
    assert digest(one) == before
    change(one)
    assert digest(one) != before


def test_containers_of_themselves_are_told():
    one = [1]
    one.append(one)
    before = digest(one)
    one[0] = 2
    assert digest(one) != before


def test_defaults_that_are_arrays_are_told_by_content():
    first, second = types.Omitted(np.ones(3)), types.Omitted(np.zeros(3))
    assert str(typeof(1)) == "int64"
    told_of = []
    for one in (first, first, second):
        identity = KinIdentity()
        identity.type(one)
        told_of.append(identity.digest())
    assert told_of[0] == told_of[1] != told_of[2]


# --- in an audit ----------------------------------------------------------------------------------

CHANGING = """
    import numpy as np
    from numba import njit

    def clean(x):
        return x[0]

    def dirty(x):
        return (x + 1.0)[0]

    first, second = njit(clean), njit(dirty)
    if {swapped}:
        first, second = second, first
    chosen = first

    @njit
    def early(x):
        return x[0]

    @njit
    def late(x):
        return chosen(x)

    x = np.ones(3)
    early(x)          # here the first copy is made
    chosen = second
    late(x)
"""


@pytest.mark.parametrize(("swapped", "verdict"), [(False, "allocates"), (True, "proved")])
def test_the_program_is_judged_as_it_was_compiled_not_as_it_began(tmp_path, swapped, verdict):
    (tmp_path / "prog.py").write_text(textwrap.dedent(CHANGING.format(swapped=swapped)))
    done = audit("--format", "json", "--processes", "2", "prog.py", cwd=tmp_path)
    rows = {one["function"]: one["verdict"] for one in document(done)["functions"]}
    assert rows["__main__:late"] == verdict
    assert rows["__main__:early"] == "proved"


def test_a_copy_made_before_the_first_compile_answers_for_all(tmp_path):
    """Shown by the cost: what functions share is compiled once."""
    program = """
        from numba import njit

        @njit
        def shared(x):
            return x + 1

        @njit
        def a(x):
            return shared(x) * 2

        @njit
        def b(x):
            return shared(x) * 3

        a(1), b(1)
    """
    (tmp_path / "prog.py").write_text(textwrap.dedent(program))
    spy = """
        import os, runpy, sys
        from alloccheck.audit import children
        plain = children.judge
        def judged(one, *rest):
            with open("who.txt", "a") as file:
                print(one.function.__name__, os.getpid(), file=file)
            return plain(one, *rest)
        children.judge = judged
        sys.argv = ["alloccheck", "audit", "--processes", "2", "--format", "json", "prog.py"]
        runpy.run_module("alloccheck", run_name="__main__")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(spy)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 0
    who = dict(line.split() for line in (tmp_path / "who.txt").read_text().splitlines())
    assert set(who) == {"shared", "a", "b"}
    assert len(set(who.values())) == 1

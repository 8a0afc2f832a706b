"""Copies that are made before the first compile are told of what is compiled later."""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types as python_types
import weakref

import numpy as np
import pytest
from numba import njit, typeof, types, vectorize
from numba.experimental import jitclass

from alloccheck.audit import workers
from alloccheck.audit.letters import Letters
from alloccheck.compile import kin
from alloccheck.compile.identity import Identity
from alloccheck.compile.kin import KinIdentity, living, told, understood
from alloccheck.compile.recording import Compiled, Recorder
from alloccheck.errors import Unstorable
from test_audit import audit, document


@pytest.fixture(autouse=True)
def all_objects_are_seen():
    """The collector tells of no object that was frozen, as the tests' own were (conftest)."""
    gc.unfreeze()
    yield
    gc.freeze()


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


def test_a_copy_that_a_thread_makes_at_the_end_ends_too(monkeypatch):
    letters = Numbers()
    pool = pool_of(lambda n: letters.version, letters)
    pool.add([2])
    sweep, made = pool._sweep, []

    def swept():
        if not made:
            pool._copy_early()
            made.extend(pool._copies)
            pool.add([4])
            letters.version = "two"  # so what it answers by letter is asked once more
        sweep()

    def give_up(*_):
        raise TimeoutError

    monkeypatch.setattr(pool, "_sweep", swept)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        found = pool.finish()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert found[1] == "two" and made[0].ends


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


def test_copies_that_end_at_once_do_not_follow_one_another_for_ever(monkeypatch):
    monkeypatch.setattr(workers.Pool, "_work", lambda self, copy, numbers: os._exit(3))
    pool = pool_of(lambda n: n, None)
    pool.add([1, 2])
    found = pool.finish()
    assert all("ended with exit code 3" in one for one in found)


def test_copies_that_cannot_be_made_cost_the_answers_alone(monkeypatch):
    def no_copy(*arguments, **named):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(workers, "_Copy", no_copy)
    pool = pool_of(lambda n: n, None)
    pool.add([1])
    (found,) = pool.finish()
    assert "no more processes" in found


def test_a_copy_that_hangs_over_a_letter_is_not_waited_for_for_ever():
    class Hanging(Numbers):
        def read(self, letter):
            time.sleep(600)

    pool = workers.Pool(lambda n: n, lost, processes=2, timeout=1.0, letters=Hanging())
    pool.begin()
    pool.add([2])
    assert pool.finish() == [2]


def test_a_copy_holds_no_pipe_of_the_program_open():
    read, write = os.pipe()
    pool = pool_of(lambda n: n, Numbers())
    pool.begin()
    os.close(write)
    with open(read, "rb") as file:
        assert file.read() == b""
    assert pool.finish() == []


def test_files_that_the_program_opens_in_place_of_ours_are_not_written(tmp_path):
    """A program that becomes a daemon closes all descriptors."""
    pool = pool_of(lambda n: n, Numbers())
    pool.begin()
    (copy,) = pool._copies
    for one in copy._mine:
        os.close(one)
    theirs = []
    while not copy._mine.keys() <= set(theirs):
        theirs.append(os.open(tmp_path / f"file{len(theirs)}", os.O_CREAT | os.O_RDWR))
    pool.add([2, 3])
    assert pool.finish() == [2, 3]
    for one in theirs:
        assert os.fstat(one).st_size == 0
        os.close(one)


def test_a_program_may_have_waited_for_all_children():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pool = pool_of(lambda n: n, Numbers())
        pool.begin()
        pool.add([2, 3])
        assert pool.finish() == [2, 3]
    finally:
        signal.signal(signal.SIGCHLD, before)


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


class Slotted:
    __slots__ = ("one", "other")


def slotted():
    found = Slotted()
    found.one = 1
    return found


def _changed_method(one):
    Settings.area = lambda self: 0


def _changed_base(one):
    Settings.later = lambda self: 0


def _changed_slot(one):
    one.other = one.one
    del one.one


class Derived(Settings):
    pass


class Own(np.ndarray):
    pass


kernel_reads = 0


@vectorize
def kernel(x):
    return x + kernel_reads


def _changed_kernel(one):
    global kernel_reads
    kernel_reads += 1


def holder(value):
    found = Settings()
    found.size = value
    return found


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1, 2], lambda one: one.append(3)),
        (lambda: {"a": [1]}, lambda one: one["a"].append(2)),
        (Settings, lambda one: setattr(one, "size", 4)),
        (lambda: Settings, _changed_method),
        (lambda: (1, [2]), lambda one: one[1].append(2)),
        (lambda: {1}, lambda one: one.add(2)),
        (lambda: bytearray(2), lambda one: one.append(2)),
        (lambda: Derived, lambda one: setattr(Settings, "flag", object())),
        (Derived, _changed_base),
        (slotted, _changed_slot),
        (lambda: holder({1: 2}), lambda one: one.size.clear()),
        (lambda: holder(holder(1)), lambda one: setattr(one.size, "size", 2)),
        (lambda: holder([]).size.append, lambda one: one(1)),
        (lambda: functools.partial(max, []), lambda one: one.args[0].append(1)),
        (lambda: np.zeros(3).view(Own), lambda one: one.fill(1)),
        (lambda: np.zeros(300_000), lambda one: one.fill(1)),
        (lambda: kernel, _changed_kernel),
        (lambda: os.getenv, lambda one: os.environ.update(ALLOCCHECK_TEST="1")),
    ],
)
def test_what_has_no_name_elsewhere_is_told_by_address_and_content(make, change):
    one = make()
    before = digest(one)
    assert digest(one) == before
    change(one)
    assert digest(one) != before


@pytest.mark.parametrize(
    "value", [sys.modules, globals, weakref.proxy(gain), memoryview(b"1"), open]
)
def test_what_cannot_be_read_is_refused(value):
    with pytest.raises(Unstorable):
        digest(value)


def test_what_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(kin, "_MOST", 10)
    with pytest.raises(Unstorable, match="more than 10 objects"):
        digest([[] for _ in range(11)])


def test_modules_that_an_overload_imports_are_looked_at(monkeypatch):
    module = python_types.ModuleType("imported_by_nobody")
    module.flag = 0
    monkeypatch.setitem(sys.modules, "imported_by_nobody", module)

    def overload():
        from imported_by_nobody import flag

        return flag

    found = []
    for identity in (KinIdentity, Identity):
        for module.flag in (0, 0, 1):
            one = identity()
            one.function(overload)
            found.append(one.digest())
    assert found[0] == found[1] != found[2]
    assert found[3] == found[4] != found[5]


def test_an_object_that_raises_when_it_is_looked_at_makes_no_question():
    class Target:
        pass

    target = Target()
    proxy = weakref.proxy(target)

    @njit
    def captures_it(x, wanted=False):
        if wanted:
            return proxy
        return x

    one = Compiled("function", captures_it, captures_it.py_func, (types.int64,), None)
    del target
    assert Letters().question(one) is None


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

CHANGING_INSIDE = """
    import numpy as np
    from numba import njit, types, vectorize
    from numba.experimental import jitclass, structref
    from numba.extending import overload, overload_method

    @njit
    def clean(x):
        return x[0]

    @njit
    def dirty(x):
        return (x + 1.0)[0]

    @njit
    def early(x):
        return x[0]

    class Settings:
        flag = False

    chosen = clean
    number = 0

    @jitclass([("v", types.float64)])
    class Point:
        def __init__(self):
            self.v = 1.0
        def of(self, x):
            return chosen(x)

    @structref.register
    class PairType(types.StructRef):
        pass

    class Pair(structref.StructRefProxy):
        def __new__(cls, v):
            return structref.StructRefProxy.__new__(cls, v)

    structref.define_proxy(Pair, PairType, ["v"])

    @overload_method(PairType, "of")
    def _of(self, x):
        return lambda self, x: chosen(x)

    @vectorize
    def kernel(v):
        return np.ones(2)[0] if number else v

    def hook(x):
        pass

    @overload(hook)
    def _hook(x):
        return (lambda x: (x + 1.0)[0]) if Settings.flag else (lambda x: x[0])

    @njit
    def late_class(p, x):
        return p.of(x)

    @njit
    def late_structure(p, x):
        return p.of(x)

    @njit
    def late_kernel(x):
        return kernel(x[0])

    @njit
    def late_overload(x):
        return hook(x)

    @njit
    def late_array(x):
        return (x + 1.0)[0] if table[0] else x[0]

    table = np.zeros(1).view(type("Own", (np.ndarray,), {}))
    x = np.ones(3)
    early(x)          # here the first copy is made
    chosen, number, Settings.flag, table[0] = dirty, 1, True, 1
    late_class(Point(), x)
    late_structure(Pair(1.0), x)
    late_kernel(x)
    late_overload(x)
    late_array(x)
"""


def test_what_changes_inside_of_what_is_captured_is_seen(tmp_path):
    (tmp_path / "prog.py").write_text(textwrap.dedent(CHANGING_INSIDE))
    done = audit("--format", "json", "--processes", "2", "prog.py", cwd=tmp_path)
    rows = {one["function"]: one["verdict"] for one in document(done)["functions"]}
    late = {name: verdict for name, verdict in rows.items() if ":late_" in name}
    assert len(late) == 5
    assert set(late.values()) == {"allocates"}


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

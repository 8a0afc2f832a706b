"""`alloccheck audit --confirm`: every proof is run under the counter, or it is said why not.

Needs the oracle, so a C compiler; the fixture says so where there is none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import float64, int64, types

from alloccheck.audit.counter import Count, OwnCalls, counted
from alloccheck.audit.judge import Counted, judge
from alloccheck.audit.program import Command, Late, run
from alloccheck.audit.replay import Program, names_of
from alloccheck.audit.report import Audit, audit_to_json, audit_to_text
from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError
from alloccheck.oracle import native
from alloccheck.oracle.references import Parts

pytestmark = pytest.mark.usefixtures("alloccheck_oracle")

PROGRAM = """
import collections
import numpy as np
from numba import guvectorize, njit, types, vectorize
from numba.experimental import jitclass, structref

@structref.register
class PairType(types.StructRef):
    def preprocess_fields(self, fields):
        return tuple((name, types.unliteral(kind)) for name, kind in fields)

class Pair(structref.StructRefProxy):
    pass

structref.define_proxy(Pair, PairType, ["a", "b"])

@njit
def of_pair(p, i):
    return p.a[i % 1] + p.b

@njit
def pair_from_python(p, i):
    return of_pair(p, i) * 2.0

Point = collections.namedtuple("Point", "x y")

@njit
def named(p):
    return Point(p.x + 1, p.y)

@njit
def named_inside(p):
    return p.x + p.y

@njit
def naming(x):
    return named_inside(Point(x, x))

@njit
def callee(x):
    return x + 1.0

@njit
def higher(f, x, *rest):
    return f(x) + rest[0]

@njit
def defaults(x, a=2, b=3.0):
    return x * a + b

@jitclass([("v", types.float64[::1]), ("n", types.int64)])
class Sum:
    def __init__(self, v):
        self.v = v
        self.n = 0

    def add(self, x):
        self.n += 1
        self.v[0] += x
        return self.n

@njit
def mode(x, flag):
    return x + 1 if flag else x

@njit
def modes(x):
    return mode(x, True) + mode(x, False)

@njit
def second(items):
    return items[1]

@njit
def of_literals(x):
    return second((x, 2, "text"))

@njit
def total(numbers):
    found = 0
    for one in numbers:
        found += one
    return found

@njit
def of_range(n):
    return total(range(n))

@njit
def rest_of(numbers):
    count = 0
    for one in numbers:
        count += one
    return count

@njit
def of_iterator(n):
    return rest_of(iter(range(n)))

@vectorize
def kernel(a, b):
    return a + b

@njit(cache=True)
def cached(x):
    return 2 * x

@guvectorize(["(float64[:], float64[:])"], "(n)->(n)", cache=True)
def core(a, out):
    for i in range(a.size):
        out[i] = cached(a[i])

@njit
def of_record(r):
    return r.a + r.b

@njit
def overlapping(x, y):
    for i in range(x.size):
        x[i] = y[i]

records = np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])
pair_from_python(Pair(np.ones(3), 2.0), 1)
named(Point(1, 2.0)), naming(1.0), higher(callee, 1.0, 2.0)
defaults(1.0), defaults(1.0, b=2.5)
Sum(np.zeros(2)).add(2.0)
modes(3), of_literals(3), of_range(4), of_iterator(4), kernel(np.ones(3), 1.0), core(np.ones(3))
of_record(records[0])
memory = np.arange(8.0)
overlapping(memory[:6:2], memory[1:7:2])
print("the program speaks")
"""

ALLOCATING = """
import numpy as np
from numba import njit

@njit
def temporary(n):
    return np.ones(n).sum()

temporary(3)
"""


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("confirmed")
    (folder / "prog.py").write_text(PROGRAM)
    words = ("audit", "--confirm", "--format", "json", "--output", "found.json", "prog.py")
    done = subprocess.run(
        [sys.executable, "-m", "alloccheck", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    return done, json.loads((folder / "found.json").read_text())


def test_each_proof_is_run_or_it_is_said_why_not(confirmed):
    _, found = confirmed
    assert found["problems"] == []
    proved = [one for one in found["functions"] if one["verdict"] == "proved"]
    assert all(one["counted"] is None for one in found["functions"] if one not in proved)
    not_run = {
        one["function"].partition(":")[2]: one["counted"]["note"]
        for one in proved
        if not one["counted"]["returned"]
    }
    assert list(not_run) == ["rest_of"]
    assert "range_iter_int64" in not_run["rest_of"]
    assert not any(one["counted"]["refuted"] for one in proved)
    names = {one["function"].partition(":")[2] for one in proved}
    assert names >= {
        *("of_pair", "pair_from_python", "named", "named_inside", "callee", "higher", "defaults"),
        *(
            "Sum.add",
            "mode",
            "modes",
            "second",
            "of_literals",
            "of_range",
            "total",
            "of_iterator",
            "kernel",
            "core",
            "cached",
        ),
        *("of_record", "overlapping"),
    }


def test_the_programs_own_calls_are_among_the_inputs(confirmed):
    _, found = confirmed
    own = [
        one["function"].partition(":")[2]
        for one in found["functions"]
        if one["counted"] is not None and one["counted"]["own"]
    ]
    assert sorted(own) == sorted(
        [
            *("pair_from_python", "named", "naming", "higher", "defaults", "defaults", "modes"),
            *("of_literals", "of_range", "of_iterator", "of_record", "overlapping"),
        ]
    )


def test_the_program_speaks_once(confirmed):
    done, _ = confirmed
    assert done.stdout == "the program speaks\n"


def test_a_false_proof_is_loud(tmp_path, alloccheck_oracle, monkeypatch):
    """As if the analysis had missed an allocation: the row says proved, and the counter refutes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.py").write_text(ALLOCATING)
    command = Command("script", "prog.py")
    own = OwnCalls()
    outcome = run(command, Late(first_call=own.note))
    (one,) = outcome.compiled
    row = judge(one, Guarantee.NONALLOCATING)
    assert row.verdict == "allocates"
    false = dataclasses.replace(row, verdict="proved", reason="")
    question = Count(Program(command, str(tmp_path)), Guarantee.NONALLOCATING, "prepare", 120.0)
    (found,) = counted(question, [one], names_of([one]), [false], own)
    assert found.counted.own == 1
    assert "call 1: allocate by malloc x 1" in found.counted.refuted[0]
    shown = Audit("prog.py", "nonallocating", (found,), ())
    assert "REFUTED: call 1: allocate by malloc" in " ".join(
        audit_to_text(shown, width=400).split()
    )
    assert "0 kept their proof, 0 could not be run, 1 refuted" in audit_to_text(shown)
    assert json.loads(audit_to_json(shown))["functions"][0]["counted"]["refuted"]


def test_functions_that_look_the_same_are_told_apart_by_order():
    from numba import njit

    from alloccheck.compile.recording import Recorder

    def made(k):
        @njit
        def inner(x):
            return x + k

        return inner

    with Recorder() as recorder:
        for k in (1, 2):
            made(k)(1)
    names = names_of(recorder.compiled)
    assert [one.rpartition(" ")[2] for one in names] == ["#1", "#2"]
    assert "0x" not in "".join(names)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (float64[::1], np.ones(3, np.float32)),
        (float64[::1], np.ones((2, 2))),
        (float64[::1], np.ones(6)[::2]),
        (types.Array(float64, 1, "C"), np.frombuffer(bytes(24))),
        (int64, "text"),
        (float64, 1j),
        (types.Tuple((int64, float64)), (1,)),
        (types.unicode_type, 1),
        (types.range_iter64_type, range(3)),
        (types.range_state64_type, Parts((1, 2))),
        (int64, Parts((1,))),
    ],
    ids=str,
)
def test_values_of_other_types_are_refused_before_they_are_unboxed(kind, value):
    with pytest.raises(UsageError):
        native.flatten([kind], [value])


def test_values_that_fit_are_taken_as_numba_takes_them():
    layouts = [
        (types.Array(float64, 1, "A"), np.ones(3)),
        (types.Array(float64, 2, "F"), np.ones((1, 3))),
        (types.Array(float64, 1, "C", readonly=True), np.ones(3)),
        (types.Optional(int64), None),
        (types.Optional(int64), 3),
        (float64, 2),
    ]
    forms, leaves = native.flatten(*zip(*layouts, strict=True))
    assert [one.how for one in forms] == ["value"] * len(layouts)
    assert len(leaves) == len(layouts)


def test_what_was_counted_reads_as_a_sentence():
    assert str(Counted(note="why")) == "not counted: why"
    assert str(Counted(inputs=2, raised=2)) == "not counted: no input returned"
    assert str(Counted(own=1, inputs=3, returned=3)) == (
        "kept in 3 counted calls, the program's own among them"
    )

"""What choosers of overloads answer decides what an audit says, not what they may look at."""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit
from numba.core import types
from numba.extending import overload

from alloccheck.compile.overloads import FAILED, NOTHING, Choices, implementation_digest

BEFORE = """
import re, sys
import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

def picked(x): pass
def other(x): pass

SLOW = True
"""
SLOW_FIRST = """
@njit
def first(x): return picked(x)
@njit
def second(x): return picked(x) + 1
first(1)
change()
second(1)
"""
BY_GLOBAL = """
def change():
    global SLOW
    SLOW = False
"""
TWO_ANSWERS = """
def slow(x): return x + int(np.zeros(3).sum())
def fast(x): return x
"""

STALE = {
    "a global": BY_GLOBAL
    + TWO_ANSWERS
    + """
@overload(picked)
def choose(x): return slow if SLOW else fast
""",
    "the state of the process": """
sys.setrecursionlimit(2000)
def change(): sys.setrecursionlimit(1500)
"""
    + TWO_ANSWERS
    + """
@overload(picked)
def choose(x): return slow if sys.getrecursionlimit() == 2000 else fast
""",
    "a file": """
def change(): open("fast", "w").close()
"""
    + TWO_ANSWERS
    + """
import os
@overload(picked)
def choose(x): return fast if os.path.exists("fast") else slow
""",
    "what a closure holds": """
class Settings: pass
settings = Settings()
settings.size = 3
def change(): settings.size = 0
@overload(picked)
def choose(x):
    size = settings.size
    def chosen(x): return x + int(np.zeros(size).sum()) if size else x
    return chosen
""",
    "a chooser that has no answer later": BY_GLOBAL
    + TWO_ANSWERS
    + """
@overload(picked)
def choose_slow(x):
    if SLOW: return slow
@overload(picked)
def choose(x):
    return fast
""",
    "one that is inlined": BY_GLOBAL
    + TWO_ANSWERS
    + """
@overload(picked, inline="always")
def choose(x): return slow if SLOW else fast
""",
    "what an inlined one refers to": BY_GLOBAL
    + """
@overload(picked, inline="always")
def choose(x):
    def chosen(x): return x + int(np.zeros(3).sum()) if SLOW else x
    return chosen
change_after = True
""",
    "names of its own": """
size = 3
def change():
    global size
    size = 0
@overload(picked)
def choose(x):
    scope = {"np": np, "size": size}
    exec("def made(x): return x + int(np.zeros(size).sum()) if size else x", scope)
    return scope["made"]
""",
    "a call that only made text names": BY_GLOBAL
    + TWO_ANSWERS
    + """
@overload(picked)
def choose(x):
    exec("def made(x): return other(x)", globals())
    return globals()["made"]
@overload(other)
def choose_other(x): return slow if SLOW else fast
""",
    "a call further down": BY_GLOBAL
    + TWO_ANSWERS
    + """
@overload(picked)
def choose(x):
    def chosen(x): return other(x)
    return chosen
@overload(other)
def choose_other(x): return slow if SLOW else fast
""",
}
"""Numba chooses something that allocates, and keeps it; who asks later is told something else."""

STILL_SO = {
    "text that is executed among its own globals": """
def change(): first(1.5)
@overload(picked)
def choose(x):
    text = f"def made(x): return x + {1 if str(x) == 'int64' else 2}"
    exec(text, globals())
    return made
""",
    "a counter": """
asked = 0
def change(): first(1.5)
@overload(picked)
def choose(x):
    global asked
    asked += 1
    return lambda x: x + 1
""",
    "a cache of the standard library": """
def change(): re.compile("something [e]lse")
@overload(picked)
def choose(x):
    return (lambda x: x + 1) if re.match("int", str(x)) else None
""",
    "a cache of its own": """
known = {}
def change(): first(1.5)
@overload(picked)
def choose(x):
    known.setdefault(str(x), len(known))
    return lambda x: x + 1
""",
    "a global that tells the same": """
LEVEL = 3
def change():
    global LEVEL
    LEVEL = 5
@overload(picked)
def choose(x):
    if LEVEL > 1: return lambda x: x + 1
    return lambda x: x
""",
}
"""What choosers look at changes, and not what they choose."""


def verdicts(tmp_path, program, processes):
    (tmp_path / "program.py").write_text(program)
    words = ["--format", "json", "--output", "table.json", "--processes", str(processes)]
    done = subprocess.run(
        [sys.executable, "-m", "alloccheck", "audit", *words, "program.py"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (tmp_path / "table.json").exists(), done.stderr + done.stdout
    rows = json.loads((tmp_path / "table.json").read_text())["functions"]
    assert rows, done.stderr
    return {f"{row['function'].partition(':')[2]}{row['signature']}": row for row in rows}


def of(rows, name):
    (found,) = [row for row in rows.values() if row["function"] == f"__main__:{name}"]
    return found


@pytest.mark.parametrize("program", STALE.values(), ids=STALE)
def test_a_proof_is_not_of_a_choice_that_the_program_was_not_given(tmp_path, program):
    rows = verdicts(tmp_path, BEFORE + program + SLOW_FIRST, 0)
    # What is inlined is made anew for each caller.
    name = "first" if "change_after" in program else "second"
    assert of(rows, name)["verdict"] != "proved"


@pytest.mark.parametrize(
    ("program", "processes"),
    [(one, 2) for one in STILL_SO.values()] + [(STILL_SO["a counter"], 0)],
    ids=[*STILL_SO, "a counter, in one process"],
)
def test_what_choosers_looked_at_may_change(tmp_path, program, processes):
    rows = verdicts(tmp_path, BEFORE + program + SLOW_FIRST, processes)
    assert {row["verdict"] for row in rows.values()} == {"proved"}, rows


INTRINSIC = (
    BY_GLOBAL
    + """
def sizes(): return 3 if SLOW else 0
@intrinsic
def size(typing_context):
    told = sizes()
    def generate(context, builder, signature, arguments):
        return context.get_constant(types.int64, told)
    return types.int64(), generate
@njit
def first(x): return x + int(np.zeros(size()).sum()) if size() else x
@njit
def second(x): return x - int(np.zeros(size()).sum()) if size() else x
first(1)
change()
second(1)
"""
)


def test_an_intrinsic_is_what_it_was_when_it_was_first_typed(tmp_path):
    rows = verdicts(tmp_path, BEFORE + INTRINSIC, 0)
    for name in ("first", "second"):
        assert "global SLOW of __main__:sizes" in of(rows, name)["reason"]
    rows = verdicts(tmp_path, BEFORE + INTRINSIC.replace("change()\n", ""), 0)
    assert [of(rows, name)["verdict"] for name in ("first", "second")] == ["allocates"] * 2


KEPT_APART = (
    BY_GLOBAL
    + """
seen = []
def change():
    global SLOW
    SLOW = False
@overload(picked)
def choose(x):
    kept = seen
    def slow(x): return x + int(np.zeros(3).sum()) + len("" if True else kept)
    def fast(x): return x + len("" if True else kept)
    return slow if SLOW else fast
"""
)


def test_what_cannot_be_compared_must_have_been_asked_of_the_same(tmp_path):
    rows = verdicts(tmp_path, BEFORE + KEPT_APART + SLOW_FIRST, 0)
    for name in ("first", "second"):
        assert "global SLOW" in of(rows, name)["reason"]


def _bent(x):
    raise NotImplementedError


@overload(_bent)
def _choose(x):
    if isinstance(x, types.Integer):
        return lambda x: x + 1
    if isinstance(x, types.Float):
        return lambda x: x.nothing_of_the_kind
    return None


def test_answers_are_noted_for_the_program_and_for_checks():
    def asks(x):
        return _bent(x)

    choices = Choices()
    with choices.seen():
        njit(asks)(1)
        for wrong in (1.5, 1j):
            with pytest.raises(Exception, match=r"nothing_of_the_kind|No implementation"):
                njit(asks)(wrong)
    answers = {types: told for (_, types), told in choices.program.items()}
    assert answers["complex128"] == {NOTHING}
    assert answers["float64"] == {FAILED}
    assert len(answers["int64"]) == 1
    assert not choices.checks


def test_nobody_looks_afterwards():
    choices = Choices()
    with choices.seen(), choices.seen():
        pass
    njit(lambda x: _bent(x))(3)
    assert not choices.program


def test_implementations_are_told_apart_by_what_they_hold():
    def made(value):
        return lambda x: (value, x)

    same = [2, 2.0, (1, "a"), None, types.int64, os, made(3), njit(_bent)]
    digests = [implementation_digest(made(one)) for one in same]
    assert digests == [implementation_digest(made(one)) for one in same]
    assert None not in digests
    assert len({*digests}) == len(same)
    assert implementation_digest(made([1])) is None
    assert implementation_digest(made(njit(fastmath=True)(_bent))) != digests[-1]


def test_functions_behind_pointers_are_not_told_by_their_names():
    def made(function):
        return lambda x: function(x)

    library = ctypes.CDLL(None)
    assert implementation_digest(made(library.abs)) is None
    assert implementation_digest(made(math.sin)) != implementation_digest(made(math.cos))
    assert None not in map(implementation_digest, map(made, (math.sin, np.sum, np.add, len)))


def test_dispatchers_are_told_apart_by_options_and_declarations():
    def made(**options):
        held = njit(**options)(_bent)
        return lambda x: held(x)

    options = [{}, {"fastmath": True}, {"locals": {"x": types.float64}}]
    assert len({implementation_digest(made(**one)) for one in options}) == 3


def test_an_implementation_that_holds_itself_has_a_digest():
    def outer():
        def inner(x):
            return inner(x - 1) if x > 0 else x

        return inner

    assert implementation_digest(outer()) == implementation_digest(outer())

"""A function that has changed since it was compiled is not judged as what ran."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from numba import njit

from alloccheck.compile.frozen import frozen_by
from test_audit import audit, document

PROGRAM = """
    import numpy as np
    from numba import float64, int64, njit, types
    import settings

    SCALE = 2.0
    TABLE = np.arange(4.0)
    UNUSED = 1

    def dirty(x):
        return (x + 1.0).sum()

    def clean(x):
        return x[0]

    chosen = njit(dirty)

    @njit
    def of_number(x):
        return x[0] * SCALE

    @njit
    def of_table(x, i):
        return x[0] * TABLE[i]

    @njit
    def of_function(x):
        return chosen(x)

    @njit
    def of_caller(x):
        return of_function(x)

    @njit
    def of_module(x):
        return x[0] * settings.gain

    @njit
    def untouched(x):
        return x.size + x.shape[0]

    def made():
        k = 1.0

        @njit
        def inner(x):
            return x[0] * k

        def change():
            nonlocal k
            k = 2.0

        return inner, change

    inner, change = made()

    @njit(int64(int64))
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    x = np.ones(4)
    of_number(x), of_table(x, 1), of_caller(x), of_module(x), untouched(x), inner(x), factorial(4)
    {}
"""
CHANGES = {
    "SCALE = 3.0": {"of_number": "global SCALE of __main__:of_number"},
    "TABLE[0] = 9.0": {"of_table": "global TABLE of __main__:of_table"},
    "chosen = njit(clean)": {
        "of_function": "global chosen of __main__:of_function",
        "of_caller": "global chosen of __main__:of_function",
    },
    "settings.gain = 1.0": {"of_module": "global settings.gain of __main__:of_module"},
    "change()": {"made.<locals>.inner": "closure k of __main__:made.<locals>.inner"},
    "UNUSED = 2; size = 3; shape = ()": {},
    "x[0] = 2.0": {},
}


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_has_changed_is_left_undecided(tmp_path, processes):
    (tmp_path / "settings.py").write_text("gain = 0.5\n")
    changes = "\n    ".join(CHANGES)
    (tmp_path / "prog.py").write_text(textwrap.dedent(PROGRAM.format(changes)))
    done = audit("--format", "json", "--processes", processes, "prog.py", cwd=tmp_path)
    rows = {one["function"].partition(":")[2]: one for one in document(done)["functions"]}
    expected = {name: why for one in CHANGES.values() for name, why in one.items()}
    undecided = {name: row for name, row in rows.items() if row["verdict"] == "undecided"}
    assert undecided.keys() == expected.keys()
    for name, why in expected.items():
        assert rows[name]["reason"].startswith(f"{why} has changed since Numba compiled")
        assert rows[name]["report"] is None
    assert rows["dirty"]["verdict"] == "allocates"
    assert {rows[name]["verdict"] for name in ("untouched", "factorial")} == {"proved"}
    assert done.returncode == 2


def test_what_has_not_changed_is_judged(tmp_path):
    (tmp_path / "settings.py").write_text("gain = 0.5\n")
    (tmp_path / "prog.py").write_text(textwrap.dedent(PROGRAM.format("")))
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    assert document(done)["counts"]["undecided"] == 0
    assert done.returncode == 1


def test_only_functions_that_matter_count():
    limits = [1, 2]

    def other(x, by=1.0):
        return x * by

    def asked(x):
        return other(x) + len(limits)

    before = frozen_by(asked)
    both = ["test_frozen:" + one.__qualname__ for one in (asked, other)]
    limits.append(3)
    assert before.changed(both) is None
    other.__defaults__ = (2.0,)
    assert before.changed(both[:1]) is None
    assert before.changed(both).startswith("default 0 of ")
    other.__defaults__ = (1.0,)
    assert before.changed(both) is None
    other.__code__ = (lambda x, by: x).__code__
    assert before.changed(both).startswith("the code of ")


def test_what_is_inlined_counts_without_a_trace():
    by = 1.0

    @njit(inline="always")
    def part(x):
        return x * by

    def asked(x):
        return part(x)

    before = frozen_by(asked)
    by = 2.0
    assert before.changed([]) == f"closure by of test_frozen:{part.py_func.__qualname__}"


def test_a_name_that_meant_a_builtin_counts_and_one_that_was_missing_does_not():
    scope = {"__name__": "somewhere", "__builtins__": __builtins__}
    exec("def asked(x, *, by=1):\n    return abs(x) + later(x) if x else by", scope)
    asked = scope["asked"]
    before = frozen_by(asked)
    scope["later"] = len
    assert before.changed(["somewhere:asked"]) is None
    scope["abs"] = float
    assert before.changed(["somewhere:asked"]) == "global abs of somewhere:asked"
    del scope["abs"]
    asked.__kwdefaults__ = {"by": 2}
    assert before.changed(["somewhere:asked"]) == "default of by of somewhere:asked"


def test_the_content_of_arrays_counts():
    table = np.zeros(3)

    def asked(i):
        return table[i]

    before = frozen_by(asked)
    name = f"test_frozen:{asked.__qualname__}"
    table[1] = 1.0
    assert before.changed([name]) == f"closure table of {name}"

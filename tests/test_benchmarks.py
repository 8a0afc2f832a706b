"""The benchmarks: tables from figures, and that the measured functions are what they say."""

import pytest
from benchmarks import function_effects
from benchmarks.__main__ import SECTIONS, summary, tables, write_into
from benchmarks.functions import CASES

from documents import ROOT
from truth_builds import expectations

FIGURES = {
    "first-call": {
        "one": {"numba cpu": 1.0, "checked cpu": 0.8, "cpu ratio": 0.8, "wall ratio": 0.9,
                "share": 0.01, "share walk": 0.02},
        "two": {"numba cpu": 1.0, "checked cpu": 1.3, "cpu ratio": 1.3, "wall ratio": 1.3,
                "share": 0.03, "share walk": 0.10},
    },
    "calls": {"scalar": {"numba": 2e-7, "checked": 2.02e-7, "ratio": 1.01}},
    "c-calls": {
        "C call": {"compared with": 2e-3, "checked": 2e-3, "ratio": 1.004},
        "jitted call": {"compared with": 1e-3, "checked": 1.3e-3, "ratio": 1.3},
    },
    "memory": {
        "numba, loop": {"each": 0.3, "median of batches": 0.3},
        "checked, loop": {"each": 0.4, "median of batches": 0.3, "artifact": 0.1, "cache": 0.1},
        "checked, mixed": {"each": 0.6, "median of batches": 0.7, "artifact": 0.2, "cache": 0.0},
    },
    "store": {"loop": {"numba cpu": 0.3, "stored cpu": 0.36, "cpu ratio": 1.2, "wall ratio": 1.1}},
    "native": {"library": 0.5, "functions": 1000.0, "smda": 1.5, "smda functions": 900.0,
               "cold": 0.015, "warm": 0.00006, "file": 0.0003},
    "packages": {
        "small": {"pairs": 3, "outcomes": {"proved": 1, "not proved": 1, "Refused": 1},
                  "numba cpu": 2.0, "checked cpu": 3.0, "cold cpu": 5.0, "ratio": 1.5,
                  "ratio without cache": 2.5,
                  "stages": {"read": 0.01, "solve": 0.01, "compile": 0.8, "close": 0.2}},
    },
}  # fmt: skip


def test_each_section_has_a_table_that_says_which_goals_are_missed():
    found = tables(FIGURES)
    assert list(found) == list(SECTIONS)
    assert "6.0 % (**missed**: goal 5)" in found["first-call"]
    assert "3.0 (**missed**: goal 4)" in found["native"]
    assert "250.0 (met: goal 200)" in found["native"]
    assert "1.30 (**missed**: goal 1.2)" in found["first-call"]
    assert "1.010 (met: goal 1.02)" in found["calls"]
    assert "1.00 (met: goal 1)" in found["c-calls"]
    assert "1.30 (**missed**: goal 1.2)" in found["c-calls"]
    assert "0.40 (met: goal 0.5) | 0.30 | 0.10 | 0.10 |" in found["memory"]
    assert "0.60 (**missed**: goal 0.5)" in found["memory"]
    assert "0.60 MB (**missed**: goal 0.5)" in summary(FIGURES)
    assert "| loop | 0.300 | 0.360 | 1.20 (**missed**: goal 1) | 1.10 |" in found["store"]
    assert "| small | 3 | 1 / 1 / 1 | 2.0 | 3.0 | 1.50 | 2.50 | 2.0 % |" in found["packages"]
    assert "| 1.05 (**missed**: goal 0.9) |" in summary(FIGURES)


def test_tables_go_between_the_markers_of_the_documents(tmp_path):
    copy = tmp_path / "performance.md"
    copy.write_text((ROOT / "docs" / "performance.md").read_text())
    write_into(copy, tables(FIGURES))
    for table in tables(FIGURES).values():
        assert table in copy.read_text()
    with pytest.raises(SystemExit, match="no place for"):
        write_into(copy, {"elsewhere": ""})


def test_the_documents_hold_measured_tables():
    text = (ROOT / "docs" / "performance.md").read_text()
    for name in SECTIONS:
        inside = text.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]
        assert inside.count("\n|") >= 4, name
    readme = (ROOT / "README.md").read_text()
    assert readme.split("<!-- begin figures -->")[1].count("goal") >= 6


@pytest.mark.parametrize(
    ("case", "expected"),
    [("trivial", 2.0), ("loop", 140.0), ("array expression", 148.0), ("recursion", 55),
     ("dict", 7), ("string", "ABC!"), ("exceptions", 1.0)],
)  # fmt: skip
def test_measured_functions_compute_what_they_say(case, expected):
    function, arguments = CASES[case]
    assert function(*arguments()) == expected


def test_at_least_twelve_functions_are_measured():
    assert len(CASES) >= 12


CLANG = """\
truth.c:2:5: warning: function with 'nonallocating' attribute must not call non-'nonallocating' \
function 'malloc' [-Wfunction-effects]
truth.c:3:5: warning: function with 'nonallocating' attribute must not call non-'nonallocating' \
function 'far' [-Wfunction-effects]
/usr/include/far.h:1:1: note: declaration cannot be inferred 'nonallocating' because it has no \
definition in this translation unit
/usr/include/other.h:1:1: warning: something else in a header [-Wfunction-effects]
"""


def test_what_clang_says_is_read_by_function():
    source = "EXPECT(clean) int one(void);\nEXPECT(raise, raise:allocate) int two(void);\n"
    known = function_effects.functions(source + "EXPECT(dispatch) int three(void);\n")
    assert [one.truth for one in known] == ["clean", "allocates", "undecided"]
    found = function_effects.by_clang(known, "truth.c", CLANG)
    assert found == {"one": "clean", "two": "allocates", "three": "undecided"}
    assert function_effects.row("clang", known, found) == ["clang", "3", "2", "0 of 1", "0 of 1"]
    wrong = {"one": "allocates", "two": "clean", "three": "clean"}
    assert function_effects.row("wrong", known, wrong)[2:] == ["3", "1 of 1", "1 of 1"]


def test_every_function_with_known_effects_is_compared():
    for file in function_effects.LANGUAGES:
        known = function_effects.functions((function_effects.SOURCES / file).read_text())
        assert {one.name for one in known} == set(expectations(file))

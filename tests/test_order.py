"""`alloccheck order` finds the programs that stock Numba answers differently in another order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from alloccheck.cli import main
from alloccheck.order.compare import Row, compare, row_of
from alloccheck.order.run import Observation
from alloccheck.order.scenarios import KINDS, Function, Scenario, UsedTypes, scenarios

CASES = Path(__file__).parent / "cases"


def order(target: str, signature: str, *options: str) -> Result:
    arguments = ["order", target, "--signature", signature, "--format", "json"]
    arguments += ["--timeout", "300", *options]
    return CliRunner().invoke(main, arguments)


def answer(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["schema"] == "alloccheck.order/1"
    assert document["exit_code"] == result.exit_code
    found: dict[str, Any] = document["comparisons"][0]
    return found


# Case, function, signature, kind of history, and facts that are known to change with it.
DEPENDENT = [
    ("helper_shared_with_fast_caller", "ENTRY", "(float64, float64)", "others", {"values", "code"}),
    ("helper_shared_by_racing_threads", "ENTRY", "(float64, float64)", "others", {"values"}),
    (
        "callback_helper_shared_with_fast_caller",
        "ENTRY",
        "float64(float64, float64)",
        "others",
        {"values"},
    ),
    ("division_shared_with_ufunc", "ENTRY", "(float64, float64)", "ufunc", {"values", "raises"}),
    ("slice_helper_with_declared_layout", "ENTRY", "(float64[::1],)", "declared", {"effects"}),
    ("mutual_recursion_int_float", "f", "(int64,)", "others", {"values"}),
    ("mutual_recursion_int_complex", "f", "(int64,)", "others", set()),
    ("mutual_recursion_without_base", "f", "(int64,)", "others", {"outcome"}),
]


@pytest.mark.parametrize(
    ("case", "function", "signature", "kind", "facts"), DEPENDENT, ids=[one[0] for one in DEPENDENT]
)
def test_order_dependent_programs_are_found(
    case: str, function: str, signature: str, kind: str, facts: set[str]
) -> None:
    result = order(f"{CASES / case}.py:{function}", signature, "--history", kind)
    assert result.exit_code == 1, result.output
    found = answer(result)
    assert found["verdict"] == "order-dependent"
    assert facts <= {one["fact"] for one in found["differences"]}


@pytest.mark.parametrize(
    ("case", "signature"),
    [
        ("self_recursion_that_widens", "(int64,)"),
        ("helper_with_declared_signatures", "(float64, float64)"),
    ],
)
def test_programs_that_do_not_depend_on_order_pass(case: str, signature: str) -> None:
    result = order(f"{CASES / case}.py:ENTRY", signature, "--history", "others")
    assert result.exit_code == 0, result.output
    found = answer(result)
    assert found["verdict"] == "stable"
    assert found["stock"][0]["types"] == found["hermetic"]["types"]


def test_hermetic_and_interpreted_values_stand_beside_stock_ones() -> None:
    target = f"{CASES / 'mutual_recursion_int_float.py'}:f"
    result = order(target, "(int64,)", "--history", "others", "--args", "(3,)")
    found = answer(result)
    assert found["samples"] == {"0": "(3)"}
    assert found["python"]["values"] == found["hermetic"]["values"] == {"0": "2.5"}
    # Entered first, f reads the bits of an int as a float.
    assert found["stock"][0]["values"]["0"] != "2.5"
    assert found["stock"][0]["wrong"] == [0]


@pytest.mark.parametrize(
    ("signature", "arguments", "message"),
    [
        ("(int64", "(3,)", "cannot understand the signature '(int64': '(' was never closed"),
        ("(int64,)", "(3", "--args '(3': SyntaxError: '(' was never closed"),
        ("(int64,)", "nought", "--args 'nought': NameError: name 'nought' is not defined"),
        ("(int64,)", "(3, 4)", "--args '(3, 4)': 1 arguments expected, found 2"),
    ],
)
def test_wrong_questions_are_told_apart(signature: str, arguments: str, message: str) -> None:
    target = f"{CASES / 'mutual_recursion_int_float.py'}:f"
    result = order(target, signature, "--history", "others", "--args", arguments)
    assert result.exit_code == 2
    assert f"{signature}: {message}" in result.stderr


def test_decorated_functions_are_given_to_stock_numba(tmp_path: Path) -> None:
    text = (CASES / "mutual_recursion_int_float.py").read_text()
    program = tmp_path / "decorated.py"
    program.write_text(text.replace("numba import njit", "alloccheck import hermetic as njit"))
    result = order(f"{program}:f", "(int64,)", "--history", "others")
    assert result.exit_code == 1, result.output


def test_the_disk_cache_breaks_recursion(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text((CASES / "self_recursion_that_widens.py").read_text())
    result = order(f"{program}:ENTRY", "(int64,)", "--history", "cache")
    found = answer(result)
    warm = next(one for one in found["stock"] if one["order"] == "disk cache, warm")
    assert result.exit_code == (1 if warm["outcome"] != "compiles" else 0)
    assert list(tmp_path.glob("**/*.nbi")) == []


@pytest.mark.parametrize(
    ("target", "signature", "word"),
    [
        ("nowhere.py:f", "(int64,)", "no such file"),
        (f"{CASES / 'fill_with_number.py'}:nothing", "(int64,)", "nothing"),
        (f"{CASES / 'fill_with_number.py'}:ENTRY", "(int65,)", "int65"),
    ],
)
def test_wrong_questions_end_with_two(target: str, signature: str, word: str) -> None:
    result = order(target, signature)
    assert result.exit_code == 2
    assert word in result.stderr


def test_a_target_without_a_function_is_refused() -> None:
    result = order(str(CASES / "fill_with_number.py"), "(int64,)")
    assert result.exit_code == 2
    assert "names no function" in result.stderr


# --- without processes --------------------------------------------------------------------------

COLD = Row("cold", "cold", "compiles", types="int64(int64)", digest="1", values={0: "1"})


def test_a_difference_makes_it_order_dependent() -> None:
    other = Row("others", "g first", "compiles", types="float64(int64)", digest="1")
    found = compare("m:f", "(int64,)", {}, [COLD, COLD, other], None, None)
    assert [(one.row, one.fact, one.cold, one.found) for one in found.differences] == [
        ("g first", "types", "int64(int64)", "float64(int64)")
    ]
    assert found.exit_code == 1


def test_what_varies_by_itself_is_not_compared() -> None:
    again = Row("cold", "cold, again", "compiles", types="int64(int64)", digest="2")
    other = Row("others", "g first", "compiles", types="int64(int64)", digest="3")
    found = compare("m:f", "(int64,)", {}, [COLD, again, other], None, None)
    assert (found.verdict, found.unstable) == ("stable", ("values", "code"))


def test_an_order_without_an_answer_leaves_it_undecided() -> None:
    seen = Observation("timeout", "60 s", ({"event": "sample", "index": 0, "shown": "(1)"},))
    late = row_of(Scenario("others", "g first"), seen)
    found = compare("m:f", "(int64,)", {}, [COLD, COLD, late], None, None)
    assert found.exit_code == 2
    assert found.undecided == ("g first: no end after 60 s while compiling",)


def test_a_crash_is_an_answer_and_names_the_call() -> None:
    events = (
        {"event": "sample", "index": 0, "shown": "(1)"},
        {"event": "compiled", "types": "int64(int64)", "digest": None},
        {"event": "calling", "index": 0},
    )
    crashed = row_of(Scenario("others", "g first"), Observation("crash", "SIGSEGV", events))
    found = compare("m:f", "(int64,)", {}, [COLD, COLD, crashed], None, None)
    assert crashed.outcome == "crash SIGSEGV when called with (1)"
    assert found.exit_code == 1


def test_every_kind_has_its_histories() -> None:
    used = UsedTypes("t", "(int64,)", True, "r", "w", "float64", False)
    functions = [Function("m:f", True, (used,)), Function("m:g", False, (used,))]
    found = scenarios(functions, list(KINDS))
    assert {one.kind for one in found} == {"cold", *KINDS}
    assert [one.name for one in found[:2]] == ["cold", "cold, again"]
    # Declared return types of the target itself are the user's own wish, not a history.
    declared = [one for one in found if one.kind == "declared"]
    assert [one.steps[0]["function"] for one in declared] == ["m:g"]

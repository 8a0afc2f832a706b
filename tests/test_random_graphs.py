"""Random call graphs keep their one answer: types of the equations, values of the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from graphs import BOTTOM, CONFLICT, Call, Function, Graph, Leaf, graphs, join
from random_graphs import check

HERE = Path(__file__).parent


@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(graphs(most=4), st.integers(0, 2**32))
def test_every_entry_has_the_types_and_values_of_its_graph(graph: Graph, seed: int) -> None:
    check(graph, seed)


def function(base: str | None, last: Leaf | Call, early: Leaf | Call | None = None) -> Function:
    return Function(None if base is None else Leaf(base), early, last, "njit")


# Found by random graphs, and shrunk.
FOUND = {
    # The module was not importable by name: the recursive call went to a name that nobody defines.
    "self-recursion that changes its argument's type": Graph(
        (function("(n > 2, 1.5)", Call(0, "half", "same")),)
    ),
    # The result is optional: its C entry returned a value of another type than it had declared.
    "an array or None through a second function": Graph(
        (
            function(None, Call(1, "half", "same")),
            function("np.arange(4.0) + n", Leaf("None"), Leaf("None")),
        )
    ),
    # Two dispatchers of one function: Numba took the inner for a repetition of the outer one.
    "a copy of a dispatcher calls the original": Graph(
        (
            function("2.5", Call(1, "half", "same"), Call(0, "x", "same")),
            function(None, Leaf("n + 0.25"), Call(1, "n", "same")),
        )
    ),
    "a cycle of three with a base in one": Graph(
        (
            function(None, Call(1, "x", "same")),
            function(None, Call(2, "x", "same")),
            function("2.5j", Call(0, "x", "same")),
        )
    ),
    "layouts that meet in a cycle": Graph(
        (
            function("np.ones((3, 2))", Call(1, "x", "same")),
            function("np.full((2, 3), 2.0).T", Call(0, "x", "same")),
        )
    ),
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_graphs_that_once_failed(name: str) -> None:
    assert len(check(FOUND[name], 0, disturbed=False)) == 2 * len(FOUND[name].functions)


def test_graphs_without_types_are_refused() -> None:
    baseless = Graph((function(None, Call(1, "x", "same")), function(None, Call(0, "x", "same"))))
    clashing = Graph(
        (function("(n, n)", Call(1, "x", "same")), function("1", Call(0, "x", "same")))
    )
    assert baseless.types(("int",))[0, ("int",)] == BOTTOM
    assert clashing.types(("int",))[0, ("int",)] == CONFLICT
    # `check` demands a refusal of each entry.
    assert check(baseless, 0) == check(clashing, 0) == {}


def test_digests_are_the_same_in_fresh_processes() -> None:
    graph = FOUND["a copy of a dispatcher calls the original"]
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from random_graphs import check\n"
        "from test_random_graphs import FOUND\n"
        "graph = FOUND['a copy of a dispatcher calls the original']\n"
        "print(json.dumps(check(graph, int(sys.argv[2]))))"
    )
    answers = [check(graph, 0, disturbed=False)]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(HERE), seed],
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1] == answers[2] != {}


def test_the_lattice_joins_as_python_widens() -> None:
    assert join(("bool",), ("complex",)) == ("complex",)
    assert join(("none",), ("int",)) == ("optional", ("int",))
    assert join(("optional", ("int",)), ("float",)) == ("optional", ("float",))
    assert join(("array", 2, "C"), ("array", 2, "F")) == ("array", 2, "A")
    assert join(("tuple", ("int",)), ("int",)) == CONFLICT

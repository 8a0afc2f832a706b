"""What must hold for every random call graph; used by the tests and by the soak run.

Each entry of a graph is compiled in a module of its own copy, after a random history of stock
Numba, and must have the types that the graph's equations give and the values of the interpreter.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import random
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit, types, vectorize
from numba.core.errors import NumbaError

from alloccheck import hermetic
from alloccheck.compile.recursion import RecursionFault
from alloccheck.errors import CompileError
from graphs import BOTTOM, CONFLICT, Graph, Kind, kind_of, same_value

X_TYPES: dict[Kind, Any] = {("int",): types.int64, ("float",): types.float64}
SAMPLES: dict[Kind, tuple[tuple[Any, ...], ...]] = {
    ("int",): ((0, 3), (1, -2), (3, 5), (5, 2)),
    ("float",): ((0, 3.5), (1, -2.0), (4, 0.25), (6, 1.0)),
}
_REFUSALS = (RecursionFault, CompileError, NumbaError)


def load(text: str, directory: Path) -> ModuleType:
    """Write a module and import it under a name that its text decides."""
    name = f"graph_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = directory / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def disturb(module: ModuleType, size: int, chance: random.Random) -> None:
    """Use a graph's functions with stock Numba, in ways that it remembers."""
    for _ in range(chance.randint(0, 3)):
        function = getattr(module, f"f{chance.randrange(size)}")
        if getattr(function, "policy", None) is not None:
            continue  # compiling it now would be our own work, not a history
        x = chance.choice(list(X_TYPES.values()))
        declared = chance.choice([types.float64, types.complex128, types.int8])
        steps = (
            lambda f=function, x=x: njit(fastmath=True)(lambda n, x: f(n, x)).compile(
                (types.int64, x)
            ),
            lambda f=function, x=x: njit(error_model="numpy")(lambda n, x: f(n, x)).compile(
                (types.int64, x)
            ),
            lambda f=function, x=x, d=declared: f.compile(d(types.int64, x)),
            lambda f=function, x=x: f.compile((types.int64, x)),
            lambda f=function: f.compile((types.none, types.none)),
            lambda f=function, x=x: vectorize([types.float64(types.int64, x)])(
                lambda n, x: f(n, x)
            ),
        )
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            # Stock Numba may fail in any way here; that it remembers is what matters.
            warnings.simplefilter("ignore")
            chance.choice(steps)()


def check(graph: Graph, seed: int, *, disturbed: bool = True) -> dict[str, str]:
    """Compile every entry of a graph; raise AssertionError for a wrong type, value or refusal.

    Returns
    -------
    dict
        The digest of each entry that compiled, by ``function(x type)``.
    """
    chance = random.Random(seed)
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        python = load(graph.source(interpreted=True), directory)
        entries = [(i, x) for i in range(len(graph.functions)) for x in X_TYPES]
        chance.shuffle(entries)
        module = load(graph.source(), directory)
        for index, x in entries:
            if disturbed:
                disturb(module, len(graph.functions), chance)
            shown = f"f{index}({x[0]})"
            digest = _check_entry(graph, module, python, index, x, f"{shown}\n{graph.source()}")
            if digest is not None:
                digests[shown] = digest
    return digests


def _check_entry(
    graph: Graph, module: ModuleType, python: ModuleType, index: int, x: Kind, where: str
) -> str | None:
    solution = graph.types(x)
    needed = {solution[node] for node in graph.reachable(index, x)}
    possible = BOTTOM not in needed and CONFLICT not in needed
    function = getattr(module, f"f{index}")
    entry = hermetic(function.py_func)
    signature = (types.int64, X_TYPES[x])
    try:
        entry.compile(signature)
    except _REFUSALS as error:
        assert not possible, f"refused, although types exist: {error}\nentry {where}"
        return None
    artifact = entry.artifacts[signature]
    found = artifact.signature.return_type
    assert possible, f"compiled to {found}, although there are no types\nentry {where}"
    expected = solution[index, x]
    assert kind_of(found) == expected, f"type {found}, expected {expected}\nentry {where}"
    for arguments in SAMPLES[x]:
        want = getattr(python, f"f{index}")(*arguments)
        got = entry(*arguments)
        assert same_value(got, want, expected), (
            f"{arguments}: {got!r}, expected {want!r} as {expected}\nentry {where}"
        )
    return str(artifact.digest)

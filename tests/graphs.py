"""Random call graphs: programs with cycles, what they must return, and which types they must have.

A *graph* is one to eight functions ``f0 ... f7`` of ``(n, x)`` that return leaves or call each
other with a smaller ``n``. It is written as a module that can be compiled, or run by the
interpreter. The types it must have are computed here from the equations of the graph, by iteration
from bottom over a small lattice of kinds; nothing of the package is used for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numba import types

Kind = tuple[Any, ...]
"""A type: its name first, then its parts. Numbers are ``("bool",)`` and so on."""

BOTTOM: Kind = ("bottom",)
CONFLICT: Kind = ("conflict",)
_NUMBERS = ("bool", "int", "float", "complex")

LEAVES: dict[str, Kind] = {
    "True": ("bool",),
    "n > 1": ("bool",),
    "1": ("int",),
    "n + 7": ("int",),
    "2.5": ("float",),
    "n + 0.25": ("float",),
    "2.5j": ("complex",),
    "complex(n, 1.5)": ("complex",),
    "None": ("none",),
    "(n, n)": ("tuple", ("int",), ("int",)),
    "(n, 0.5)": ("tuple", ("int",), ("float",)),
    "(2.5, n + 0.5)": ("tuple", ("float",), ("float",)),
    "(n > 2, 1.5)": ("tuple", ("bool",), ("float",)),
    "np.arange(4.0) + n": ("array", 1, "C"),
    "np.arange(8.0)[::2]": ("array", 1, "A"),
    "np.ones((3, 2))": ("array", 2, "C"),
    "np.full((2, 3), 2.0).T": ("array", 2, "F"),
    "np.arange(24.0).reshape((6, 4))[::2, ::2]": ("array", 2, "A"),
}
"""Expressions without a call, with their types."""

WRAPS: dict[str, str] = {"same": "{}", "plus": "{} + 1", "half": "0.5 * {}"}
"""What is done to the result of a call."""

ARGUMENTS: dict[str, str] = {"x": "x", "half": "0.5 * x", "n": "n"}
"""What a call passes for ``x``: its type may change round a cycle."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "numbers": (*(leaf for leaf, kind in LEAVES.items() if kind[0] in _NUMBERS), "x"),
    "numbers or None": (*(leaf for leaf, kind in LEAVES.items() if kind[0] in _NUMBERS), "None"),
    "tuples": tuple(leaf for leaf, kind in LEAVES.items() if kind[0] == "tuple"),
    "vectors": tuple(leaf for leaf, kind in LEAVES.items() if kind[:2] == ("array", 1)),
    "matrices": tuple(leaf for leaf, kind in LEAVES.items() if kind[:2] == ("array", 2)),
    "vectors or None": (
        *(leaf for leaf, kind in LEAVES.items() if kind[:2] == ("array", 1)),
        "None",
    ),
    "anything": (*LEAVES, "x"),
}
"""Leaves that are drawn together; only in the last do types without a join meet often."""

DECORATORS = ("njit", "hermetic", 'check_allocs(on_failure="report")')


@dataclass(frozen=True)
class Leaf:
    """A returned expression without a call."""

    text: str


@dataclass(frozen=True)
class Call:
    """A returned call of another function, or of one of two, with ``n - 1``."""

    target: int
    argument: str
    wrap: str
    other: int | None = None

    @property
    def targets(self) -> tuple[int, ...]:
        """The functions that may be called."""
        return (self.target,) if self.other is None else (self.target, self.other)


@dataclass(frozen=True)
class Function:
    """Up to three return statements: for ``n <= 0``, for ``n % 3 == 0``, and otherwise."""

    base: Leaf | None
    early: Leaf | Call | None
    last: Leaf | Call
    decorator: str

    @property
    def returns(self) -> tuple[Leaf | Call, ...]:
        """The returned expressions."""
        return tuple(one for one in (self.base, self.early, self.last) if one is not None)


@dataclass(frozen=True)
class Graph:
    """Functions that call each other."""

    functions: tuple[Function, ...]

    def source(self, *, interpreted: bool = False) -> str:
        """Return the module's text; `interpreted` leaves the decorators out."""
        lines = ["import numpy as np"]
        if not interpreted:
            lines += ["from numba import njit", "from alloccheck import check_allocs, hermetic"]
        for index, function in enumerate(self.functions):
            lines += ["", ""]
            if not interpreted:
                lines.append(f"@{function.decorator}")
            lines.append(f"def f{index}(n, x):")
            if function.base is not None:
                lines += ["    if n <= 0:", f"        return {_text(function.base)}"]
            if function.early is not None:
                lines += ["    if n % 3 == 0:", f"        return {_text(function.early)}"]
            lines.append(f"    return {_text(function.last)}")
        return "\n".join(lines) + "\n"

    def types(self, x: Kind) -> dict[tuple[int, Kind], Kind]:
        """Solve the graph's equations for every function and type of ``x``.

        Parameters
        ----------
        x : Kind
            Not used to restrict: all specialisations that any entry reaches are in the result.
        """
        nodes = [
            (i, kind) for i in range(len(self.functions)) for kind in (x, ("int",), ("float",))
        ]
        solution = dict.fromkeys(nodes, BOTTOM)
        while True:
            new = {
                (i, kind): _joined(
                    [_kind(one, kind, solution) for one in self.functions[i].returns]
                )
                for i, kind in nodes
            }
            if new == solution:
                return solution
            solution = new

    def reachable(self, entry: int, x: Kind) -> set[tuple[int, Kind]]:
        """Return the specialisations that `entry` needs, itself included."""
        found: set[tuple[int, Kind]] = set()
        pending = [(entry, x)]
        while pending:
            node = pending.pop()
            if node in found:
                continue
            found.add(node)
            for one in self.functions[node[0]].returns:
                if isinstance(one, Call):
                    pending += [(target, _argument(one, node[1])) for target in one.targets]
        return found


def _text(site: Leaf | Call) -> str:
    if isinstance(site, Leaf):
        return site.text
    callee = f"f{site.target}"
    if site.other is not None:
        callee = f"({callee} if n % 2 else f{site.other})"
    return WRAPS[site.wrap].format(f"{callee}(n - 1, {ARGUMENTS[site.argument]})")


def _argument(call: Call, x: Kind) -> Kind:
    return {"x": x, "half": ("float",), "n": ("int",)}[call.argument]


def _kind(site: Leaf | Call, x: Kind, solution: dict[tuple[int, Kind], Kind]) -> Kind:
    if isinstance(site, Leaf):
        return x if site.text == "x" else LEAVES[site.text]
    found = _joined([solution[target, _argument(site, x)] for target in site.targets])
    if site.wrap == "same" or found in (BOTTOM, CONFLICT):
        return found
    if found[0] not in _NUMBERS:
        return CONFLICT
    return join(found, ("int",) if site.wrap == "plus" else ("float",))


def _joined(kinds: list[Kind]) -> Kind:
    found = BOTTOM
    for kind in kinds:
        found = join(found, kind)
    return found


def join(one: Kind, other: Kind) -> Kind:
    """Return the least kind that holds both."""
    if one == other or other == BOTTOM:
        return one
    if one == BOTTOM:
        return other
    if CONFLICT in (one, other):
        return CONFLICT
    if "optional" in (one[0], other[0]) or "none" in (one[0], other[0]):
        parts = [kind[1] if kind[0] == "optional" else kind for kind in (one, other)]
        inner = _joined([kind for kind in parts if kind[0] != "none"])
        return CONFLICT if inner == CONFLICT else ("optional", inner)
    if one[0] in _NUMBERS and other[0] in _NUMBERS:
        return max(one, other, key=lambda kind: _NUMBERS.index(kind[0]))
    if one[0] == other[0] == "tuple" and len(one) == len(other):
        parts = [join(a, b) for a, b in zip(one[1:], other[1:], strict=True)]
        return CONFLICT if CONFLICT in parts else ("tuple", *parts)
    if one[0] == other[0] == "array" and one[1] == other[1]:
        return ("array", one[1], "A")
    return CONFLICT


def kind_of(numba_type: Any) -> Kind:
    """Return the kind of one of Numba's types."""
    numba_type = types.unliteral(numba_type)
    name = type(numba_type).__name__
    if name in ("Tuple", "UniTuple"):
        return ("tuple", *map(kind_of, numba_type.types))
    if name == "Array":
        return ("array", numba_type.ndim, numba_type.layout)
    if name == "Optional":
        return ("optional", kind_of(numba_type.type))
    known = {"bool": "bool", "int64": "int", "float64": "float", "complex128": "complex"}
    return (known.get(str(numba_type), str(numba_type)),)


def same_value(found: Any, expected: Any, kind: Kind) -> bool:
    """Whether a compiled result is the interpreter's, after conversion to the inferred type."""
    if kind[0] == "optional":
        return found is None if expected is None else same_value(found, expected, kind[1])
    if kind[0] == "none":
        return found is None and expected is None
    if kind[0] == "tuple":
        return (
            isinstance(found, tuple)
            and len(found) == len(kind) - 1
            and all(map(same_value, found, expected, kind[1:]))
        )
    if kind[0] == "array":
        return isinstance(found, np.ndarray) and np.array_equal(found, expected)
    to_kind: Any = {"bool": bool, "int": int, "float": float, "complex": complex}[kind[0]]
    return type(found) is to_kind and found == to_kind(expected)


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> Graph:
    """Draw a graph of one to `most` functions."""
    family = draw(st.sampled_from(sorted(FAMILIES)))
    leaves = st.sampled_from(FAMILIES[family]).map(Leaf)
    size = draw(st.integers(1, most))
    wraps = sorted(WRAPS) if family == "numbers" else ["same"]
    calls = st.builds(
        Call,
        st.integers(0, size - 1),
        st.sampled_from(sorted(ARGUMENTS)),
        st.sampled_from(wraps),
        st.none() | st.none() | st.none() | st.integers(0, size - 1),
    )
    site = st.one_of(calls, calls, leaves)
    function = st.builds(
        Function,
        st.one_of(leaves, leaves, leaves, st.none()),
        st.one_of(st.none(), site),
        site,
        st.sampled_from(DECORATORS),
    )
    return Graph(tuple(draw(st.lists(function, min_size=size, max_size=size))))

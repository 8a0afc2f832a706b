"""The floors of ARCHITECTURE.md, read from the imports: a floor imports only from those above it.

Nothing is imported here; modules are parsed. A module that belongs to no floor fails: whoever adds
one says which floor it is on.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "alloccheck"

FLOORS = {
    "words": ("effects", "source", "errors", "container", "modules", "storage"),
    "program": ("program",),
    "analysis": ("analysis",),
    "compile": ("compile", "cforms"),
    "verdict": (
        "assumptions",
        "certificate",
        "check",
        "crosscheck",
        "expressions",
        "findings",
        "help",
        "native_answers",
        "native_cache",
        "native_evidence",
        "policy",
        "store",
        "symbols",
        "verification",
    ),
    "use": (
        "__main__",
        "alloccheck",
        "audit",
        "binding",
        "cli",
        "config",
        "confirm",
        "decorators",
        "dispatcher",
        "oracle",
        "order",
        "pytest_plugin",
        "report",
    ),
}
"""Floors from the top down, with their rooms: modules and packages of `alloccheck`."""

NEVER_IMPORTS = {
    "program": ("numba", "llvmlite", "analysis"),
    "analysis": ("numba", "llvmlite", "compile"),
    "compile": ("analysis", "report", "findings", "assumptions"),
    "report": ("numba", "compile", "analysis", "check", "dispatcher"),
    "config": ("numba", "compile", "cli"),
    "cli": ("numba",),
}
"""What a room may not import, whatever its floor allows."""

NUMBA_OUTSIDE_COMPILE = {
    "audit": "types of recorded calls, found again where they are counted",
    "check": "Numba's exceptions, to put the question in front of them",
    "cforms": "Numba's scalar types, to write them in C",
    "confirm": "which values are of a type, and how a type is written",
    "decorators": "what counts as a signature, a dispatcher, a jitclass",
    "dispatcher": "the class that Numba's C fast path calls",
    "oracle": "drives stock Numba",
    "order": "drives stock Numba",
}
"""Rooms that may import Numba or llvmlite although they are not `compile`, and for what."""

LLVMLITE_OUTSIDE_COMPILE = {"verification": "where LLVM finds an external symbol now"}

ASKS_THE_WITNESS = {("check", "confirm")}
"""`analyze(..., confirm=...)` runs the code after the verdict; at the moment of the call only."""

RENDERS_ITSELF = {
    ("findings", "report.json"),
    ("findings", "report.text"),
    ("findings", "report.html"),
}
"""`Report.__str__`, `to_json` and `_repr_html_` reach down, at the moment of the call only."""


@dataclass(frozen=True)
class Import:
    """One import: from which module, of which, and whether it runs when the module is loaded."""

    source: str
    target: str
    line: int
    lazy: bool

    def __str__(self):
        return f"{self.source}:{self.line} imports {self.target}"


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        yield ".".join(parts) or "alloccheck", path


def imports_of(name, text):
    """Every import of a module but those for types, ours without the leading ``alloccheck.``."""
    found = []

    def visit(node, lazy):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child, lazy)
            return
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            targets = []
        for target in targets:
            target = target.removeprefix("alloccheck.")
            found.append(Import(name, target, node.lineno, lazy))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(text), False)
    return found


def within(name, room):
    return name == room or name.startswith(room + ".")


def floor_of(name):
    """The number of a module's floor, None for what is not ours."""
    for number, rooms in enumerate(FLOORS.values()):
        if any(within(name, room) for room in rooms):
            return number
    return None


ALL = dict(modules())
IMPORTS = [one for name, path in ALL.items() for one in imports_of(name, path.read_text())]
OURS = {name.split(".")[0] for name in ALL}


def is_ours(target):
    return target.split(".")[0] in OURS


def floor_faults(imports):
    for one in imports:
        if not is_ours(one.target) or one.target.split(".")[-1] == "__version__":
            continue
        here, there = floor_of(one.source), floor_of(one.target)
        if there is None or there <= here:
            continue
        if one.lazy and any(
            one.source == source and within(one.target, target)
            for source, target in RENDERS_ITSELF | ASKS_THE_WITNESS
        ):
            continue
        yield str(one)


def never_faults(imports):
    for one in imports:
        for room, forbidden in NEVER_IMPORTS.items():
            if within(one.source, room) and any(within(one.target, other) for other in forbidden):
                yield str(one)


def numba_faults(imports):
    for one in imports:
        top = one.target.split(".")[0]
        if top not in ("numba", "llvmlite") or within(one.source, "compile"):
            continue
        allowed = set(NUMBA_OUTSIDE_COMPILE)
        if top == "llvmlite":
            allowed |= set(LLVMLITE_OUTSIDE_COMPILE)
        if not any(within(one.source, room) for room in allowed):
            yield str(one)


def test_every_module_is_on_a_floor():
    homeless = [name for name in ALL if floor_of(name) is None]
    assert not homeless, f"add them to FLOORS and to ARCHITECTURE.md: {homeless}"


def test_imports_run_up():
    assert list(floor_faults(IMPORTS)) == []


def test_rooms_do_not_know_what_they_must_not():
    assert list(never_faults(IMPORTS)) == []


def test_only_named_rooms_touch_numba():
    assert list(numba_faults(IMPORTS)) == []


@pytest.mark.parametrize("room", sorted({**NUMBA_OUTSIDE_COMPILE, **LLVMLITE_OUTSIDE_COMPILE}))
def test_no_permission_is_stale(room):
    present = [name for name in ALL if within(name, room)]
    used = [o for o in IMPORTS if within(o.source, room) and o.target.startswith(("numba", "llvm"))]
    assert used or not present, f"{room} no longer needs its permission"


@pytest.mark.parametrize(
    ("check", "source", "text"),
    [
        (floor_faults, "effects", "from alloccheck.program.model import Program"),
        (floor_faults, "compile.job", "from alloccheck.check import prove"),
        (floor_faults, "findings", "from alloccheck.report.text import render_text"),
        (floor_faults, "check", "def f():\n    from alloccheck import decorators"),
        (never_faults, "program.llvm", "import numba"),
        (never_faults, "analysis.solve", "from alloccheck.compile.job import CompileJob"),
        (never_faults, "compile.artifact", "from alloccheck.analysis.solve import solve"),
        (numba_faults, "findings", "from numba.core import types"),
        (numba_faults, "certificate", "import llvmlite.binding as ll"),
    ],
)
def test_the_test_sees_a_broken_rule(check, source, text):
    assert list(check(imports_of(source, text)))


def test_every_module_says_what_it_is():
    silent = [
        name for name, path in ALL.items() if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_architecture_names_every_floor_and_room():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {name.split(".")[0] for name in ALL} - {"alloccheck", "__main__"}
    missing = [room for room in rooms if not re.search(rf"`{room}(/|\.py|`)", text)]
    assert not missing
    for floor in FLOORS:
        assert f"### {floor}" in text.lower(), floor


def test_architecture_names_tests_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) >= 6
    for path, function in named:
        assert (ROOT / path).is_file(), path
        if function:
            assert f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"


def test_names_that_are_loaded_late_are_listed():
    import alloccheck

    assert set(alloccheck.__all__) <= set(dir(alloccheck))

"""Named rules, each deleted once: a case that rests on the rule must then get another answer.

A *must-fail* case would pass without its rule (the checker would be unsound); a *must-pass* case
would fail (a false alarm). A rule whose deletion nobody notices is not tested, or not needed.
"""

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numba import cfunc, njit, types
from numba.core.errors import NumbaError

from alloccheck import Effect, Path, Refused, analyze, check, hermetic
from alloccheck.analysis import contracts as table
from alloccheck.analysis import paths, solve
from alloccheck.compile import artifact, containers, isolation, recursion, views, world
from alloccheck.crosscheck import Comparison
from alloccheck.errors import AllocCheckException, CompileError
from alloccheck.findings import findings_from
from alloccheck.program.llvm import read_module
from analysis_samples import contract, ir
from harness import CASES, load_case

# --- questions ----------------------------------------------------------------------------------

EXTERNALS = """
declare i32 @status()
declare void @site()
declare void @calls_back(ptr)
declare void @abort()
declare void @clean()
declare void @mystery()
declare ptr @object()
declare void @NRT_MemInfo_call_dtor(ptr)
define linkonce_odr void @NRT_incref(ptr %p) {
  %x = atomicrmw add ptr %p, i64 1 monotonic, align 8
  ret void
}
define linkonce_odr void @NRT_decref(ptr %p) {
  call void @NRT_MemInfo_call_dtor(ptr %p)
  ret void
}
"""


def contract_of(symbol):
    return {
        "site": contract(symbol, Effect.ALLOCATE),
        "calls_back": contract(symbol, calls_back=True),
        "abort": contract(symbol, path=Path.DIVERGE),
        "NRT_MemInfo_call_dtor": contract(symbol, Effect.FREE),
        "mystery": None,
    }.get(symbol, contract(symbol))


def proved(body: str, more: str = "", guarantee: str = "nonblocking") -> bool:
    """The verdict on a function in IR, with Numba's convention of statuses."""
    head = "define i32 @f(ptr %retptr, ptr %excinfo, ptr %arg, i1 %c) {\n"
    program = read_module(f"{head}{body.lstrip(chr(10))}}}\n{EXTERNALS}\n{ir(more)}", "f")
    solution = solve.solve(program, contract_of)
    return not findings_from(
        solution.witnesses,
        guarantee=check.Guarantee(guarantee),
        ignore_throw=True,
        first_call="prepare",
    )


def verdict(function: Any, signature: Any, **options: Any) -> bool:
    return analyze(function, signature, **options).ok


# --- cases --------------------------------------------------------------------------------------

SITE_BEFORE_A_NORMAL_RETURN = """
  call void @site()
  %s = call i32 @status()
  ret i32 %s
"""

MERGED_RETURN = """
  br i1 %c, label %bad, label %good
bad:
  call void @site()
  br label %out
good:
  br label %out
out:
  %r = phi i32 [ 1, %bad ], [ 0, %good ]
  ret i32 %r
"""

LOOP_THAT_ONLY_RAISING_ENDS = """
  br label %loop
loop:
  call void @site()
  %s = call i32 @status()
  %z = icmp eq i32 %s, 0
  br i1 %z, label %bad, label %loop
bad:
  ret i32 1
"""

SITE_BEFORE_AN_ENDLESS_LOOP = """
  br i1 %c, label %here, label %ok
here:
  call void @site()
  %s = call i32 @status()
  %z = icmp eq i32 %s, 0
  br i1 %z, label %forever, label %bad
forever:
  call void @clean()
  br label %forever
bad:
  ret i32 1
ok:
  ret i32 0
"""

CAUGHT = """
  %s = call i32 @g(ptr %retptr, ptr %excinfo, i1 %c)
  ret i32 0
"""
RAISING_CALLEE = """
define i32 @g(ptr %retptr, ptr %excinfo, i1 %c) {
  br i1 %c, label %bad, label %ok
bad:
  call void @site()
  ret i32 1
ok:
  ret i32 0
}
"""

MATCHED_COUNTS = """
  %v = call ptr @object()
  call void @NRT_incref(ptr %v)
  call void @NRT_decref(ptr %v)
  ret i32 0
"""

ARGUMENT_COUNT = """
  call void @NRT_decref(ptr %arg)
  ret i32 0
"""

CALLED_BACK = """
  call void @calls_back(ptr @g)
  ret i32 0
"""
CALLBACK = """
define void @g() {
  call void @site()
  ret void
}
"""

UNKNOWN_EXTERNAL = """
  call void @mystery()
  ret i32 0
"""

UNKNOWN_POINTER = """
  %p = load ptr, ptr %arg, align 8
  call void %p()
  ret i32 0
"""

INLINE_ASSEMBLY = """
  call void asm sideeffect "syscall", ""()
  ret i32 0
"""

UNKNOWN_WHILE_DYING = """
  br i1 %c, label %die, label %ok
die:
  call void @mystery()
  call void @abort()
  unreachable
ok:
  ret i32 0
"""


FMOD_ALLOCATES = table.contracts_from_mapping(
    {"fmod": {"effects": ["allocate"], "reason": "a test", "source": "here:1", "override": True}},
    "test",
)


def remainder(x, y):
    return x % y


def added_by_code_generation() -> list[Any]:
    # The IR has an `frem` instruction and no call; the machine has no such instruction.
    report = analyze(
        remainder, "float64(float64, float64)", contracts=FMOD_ALLOCATES, error_model="numpy"
    )
    return [(one.effect, one.symbol) for one in report.findings]


RELEASE = re.compile(r"^  (?:tail )?call void @NRT_\w+\(.*\n", re.MULTILINE)
ALLOCATION = re.compile(r"^  (%\S+) = (?:tail )?call (?:\w+ )*ptr @NRT_\w+\(.*$", re.MULTILINE)


def seen_by_the_other_reader() -> bool:
    """The verdict on a function that allocates, where the IR reader overlooks it."""

    def blind(listing, entry):
        seen = RELEASE.sub("", ALLOCATION.sub(r"  \1 = inttoptr i64 8 to ptr", listing))
        assert seen != listing
        return read_module(seen, entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "read_module", blind)
        return verdict(lambda n: np.empty(n).size, "int64(int64)")


def unresolved() -> str:
    missing = types.ExternalFunction("alloccheck_missing_symbol", types.float64(types.float64))

    def call(x):
        return missing(x)

    return outcome(call, "float64(float64)")


def outcome(function: Any, signature: Any) -> str:
    """How a question ends: proved, not proved, refused, or an error of Numba's."""
    try:
        return "proved" if verdict(function, signature) else "not proved"
    except Refused:
        return "refused"
    except CompileError:
        return "does not compile"


@njit
def quotient(a, b):
    return a / b


@njit(error_model="numpy")
def unchecked(a, b):
    return quotient(a, b)


def both_models(a, b):
    return unchecked(a, b) + quotient(a, b)


def division_may_raise() -> bool:
    """Whether `both_models` may raise: its own use of `quotient` checks for zero."""
    return Effect.RAISE in analyze(both_models, "float64(float64, float64)").effects


def recursive_value() -> float:
    """Two functions that call each other, one with an int at its base, one with a float."""
    case = load_case(CASES / "mutual_recursion_int_float.py")
    return hermetic(case.entry)(3)


def object_mode() -> str:
    case = load_case(CASES / "linear_solve_in_object_mode.py")
    try:
        return outcome(case.entry, case.signature)
    except AttributeError:  # code that was never refused meets what is no dispatcher
        return "crashes"


# --- deletions ----------------------------------------------------------------------------------

Delete = Callable[[pytest.MonkeyPatch], None]


def instead(owner: Any, name: str, value: Any) -> Delete:
    return lambda patch: patch.setattr(owner, name, value)


def plain_normal_blocks(self):
    """Blocks that reach any return whose merged value may be normal: edges are not told apart."""
    function, states = self.shape.function, self.flow.states
    ends = [
        i
        for i, state in states.items()
        if function.blocks[i].exits
        and paths.evaluate(function, function.blocks[i].returns, state, self.returned)
        & self.convention.normal
    ]
    return paths.reachable(paths.predecessors(self.successors), ends)


def no_blocks(self):
    return set()


def externals_without(change: Callable[[Any, Any], Any]) -> Delete:
    original = solve._Solver._external

    def external(self, symbol, *rest):
        return change(self.contracts(symbol), original(self, symbol, *rest))

    return instead(solve._Solver, "_external", external)


def targets_pass(kind: Any) -> Delete:
    original = solve._Solver._reach

    def reach(self, site, call):
        if isinstance(call.target, kind):
            return solve._Reach(statuses=solve.FULL)
        return original(self, site, call)

    return instead(solve._Solver, "_reach", reach)


def one_variant_for_all(patch: pytest.MonkeyPatch) -> None:
    for module in (isolation, world):
        patch.setattr(module, "inherited_flags", lambda: ())


def accept_the_first_round(patch: pytest.MonkeyPatch) -> None:
    def keep(self, key, found):
        self._inferred[key] = types.unliteral(found)

    patch.setattr(recursion.RoundRecursion, "inferred", keep)
    patch.setattr(recursion.Outcome, "settled", True)


def nothing_refuses(self, message, *more):
    """Object mode goes on to whatever Numba makes of it."""


def shifted(x):
    x[1:] = x[:-1]


def halved(x):
    x[:4] = x[4:8]


@cfunc("float64(float64)")
def inverse(x):
    return 1.0 / x


def calls_back(x):
    return inverse(x)


def deleted_from(items):
    del items[0]


def of_a_list(items):
    question = (types.ListType(items),)
    return sorted({one.code for one in analyze(deleted_from, question).findings})


@dataclass(frozen=True)
class Rule:
    """A rule, how to delete it, and a case that rests on it."""

    name: str
    delete: Delete
    ask: Callable[[], Any]
    answer: Any


RULES = (
    Rule(
        "raise-only, condition 1: no end whose status may be normal",
        instead(paths._Analysis, "normal_blocks", property(no_blocks)),
        lambda: proved(SITE_BEFORE_A_NORMAL_RETURN),
        False,
    ),
    Rule(
        "raise-only, condition 2: edges into a merged return block are told apart",
        instead(paths._Analysis, "normal_blocks", property(plain_normal_blocks)),
        lambda: proved(MERGED_RETURN),
        True,
    ),
    Rule(
        "raise-only, condition 3: in no cycle",
        instead(paths._Analysis, "cycles", property(no_blocks)),
        lambda: proved(LOOP_THAT_ONLY_RAISING_ENDS),
        False,
    ),
    Rule(
        "raise-only, condition 4: reaches no loop without exit",
        instead(paths._Analysis, "trapped", property(no_blocks)),
        lambda: proved(SITE_BEFORE_AN_ENDLESS_LOOP),
        False,
    ),
    Rule(
        "raise-only across calls: what is caught counts",
        instead(paths.FunctionPaths, "after_error", lambda self, call: Path.RAISE),
        lambda: proved(CAUGHT, RAISING_CALLEE),
        False,
    ),
    Rule(
        "a release that undoes an increment frees nothing",
        instead(solve, "decided_decrefs", lambda *arguments, **more: {}),
        lambda: proved(MATCHED_COUNTS),
        True,
    ),
    Rule(
        "an argument is held by the caller",
        instead(solve, "decided_decrefs", lambda *arguments, **more: {}),
        lambda: proved(ARGUMENT_COUNT),
        True,
    ),
    Rule(
        "an external that calls back runs what has its address taken",
        externals_without(lambda contract, reach: replace(reach, callbacks=())),
        lambda: proved(CALLED_BACK, CALLBACK),
        False,
    ),
    Rule(
        "an external without a contract is a finding",
        externals_without(
            lambda contract, reach: replace(reach, causes=()) if contract is None else reach
        ),
        lambda: proved(UNKNOWN_EXTERNAL),
        False,
    ),
    Rule(
        "a call through an unknown pointer is a finding",
        targets_pass(solve.Indirect),
        lambda: proved(UNKNOWN_POINTER),
        False,
    ),
    Rule(
        "what a reader could not read is a finding",
        targets_pass(solve.Unread),
        lambda: proved(INLINE_ASSEMBLY),
        False,
    ),
    Rule(
        "dying excuses what is known, not what is unknown",
        instead(solve, "_NEVER_DROPPED", frozenset()),
        lambda: proved(UNKNOWN_WHILE_DYING),
        False,
    ),
    Rule(
        "calls that code generation adds are classified",
        instead(check, "_undeclared", lambda built: []),
        added_by_code_generation,
        [(Effect.ALLOCATE, "fmod")],
    ),
    Rule(
        "what the machine code alone shows is a finding",
        instead(check, "compare", lambda *a: Comparison((), lambda symbol: (), 0, 0)),
        seen_by_the_other_reader,
        False,
    ),
    Rule(
        "an unresolved symbol is refused before anything is loaded",
        instead(artifact, "_resolve_externals", lambda object_file: {}),
        unresolved,
        "refused",
    ),
    Rule(
        "callees are compiled once for each set of inherited flags",
        one_variant_for_all,
        division_may_raise,
        True,
    ),
    Rule(
        "recursion is accepted only when every assumed type was inferred",
        accept_the_first_round,
        recursive_value,
        2.5,
    ),
    Rule(
        "an assignment within one array keeps its copy where the parts may meet",
        instead(views, "_ranges_apart", lambda one, other: True),
        lambda: verdict(shifted, "(float64[::1],)"),
        False,
    ),
    Rule(
        "an assignment within one array has no copy where the parts cannot meet",
        instead(views, "_ranges_apart", lambda one, other: False),
        lambda: verdict(halved, "(float64[::1],)"),
        True,
    ),
    Rule(
        "elements of an array that is not contiguous may lie in one place",
        instead(views._Values, "_is_plain_memory", lambda self, array: True),
        lambda: verdict(halved, "(float64[:],)"),
        False,
    ),
    Rule(
        "a C callback inherits no flags of who calls it",
        instead(isolation, "no_inherited_flags", contextlib.nullcontext),
        lambda: verdict(calls_back, "(float64,)", error_model="numpy"),
        False,
    ),
    Rule(
        "deleting an item that holds a reference drops it",
        instead(containers, "symbol_to_mark", lambda *question: "numba_list_delitem"),
        lambda: of_a_list(types.float64[::1]),
        ["AC103", "AC499"],
    ),
    Rule(
        "deleting an item that holds no reference drops none",
        instead(containers, "symbol_to_mark", lambda *question: None),
        lambda: of_a_list(types.float64),
        ["AC103"],
    ),
    Rule(
        "object mode is refused by name",
        instead(world.World, "refuse", nothing_refuses),
        object_mode,
        "refused",
    ),
)


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    """Every answer is that of a fresh world, so that no rule's work is remembered."""
    monkeypatch.setenv("ALLOCCHECK_CANONICAL_CACHE", "0")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_deleting_the_rule_changes_the_answer(rule, monkeypatch):
    assert rule.ask() == rule.answer
    with monkeypatch.context() as patch:
        rule.delete(patch)
        try:
            without = rule.ask()
        except (AllocCheckException, NumbaError) as error:
            without = error
    assert without != rule.answer
    assert rule.ask() == rule.answer

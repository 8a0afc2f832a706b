"""The solver: what reaches the entry, by which way, with which evidence, under which trust."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alloccheck.analysis.refcounts import RefcountNames
from alloccheck.analysis.solve import Assumed, solve
from alloccheck.analysis.summary import BOTTOM, Cause, Site, Summary, collect
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import ProgramError
from alloccheck.program.llvm import read_module
from alloccheck.program.model import (
    Block,
    Call,
    Direct,
    Function,
    Program,
    SystemCall,
)
from alloccheck.source import Frame
from analysis_samples import PROGRAMS, contract, contracts, ir, module_of


def solved(text, table=contracts, **options):
    return solve(read_module(ir(text), "f"), table, **options)


def effects(solution):
    return {(w.effect.value, w.symbol) for w in solution.witnesses}


SIMPLE = """
define void @f(ptr %p) {{
  {call}
  ret void
}}
declare ptr @malloc(i64)
declare void @mystery()
declare void @clean()
declare void @abort()
@slot = linkonce global ptr inttoptr (i64 4096 to ptr)
"""


@pytest.mark.parametrize(
    ("call", "found", "unclassified", "noted"),
    [
        ("call void @clean()", set(), (), ()),
        ("%x = call ptr @malloc(i64 48)", {("allocate", "malloc")}, (), ()),
        ("call void @mystery()", {("unknown", "mystery")}, ("mystery",), ()),
        ("call void @abort()", set(), (), ("abort",)),
        ("call void %p()", {("dispatch", "pointer %p")}, (), ()),
        ('call void asm "syscall", ""()', {("unknown", "inline assembly 'syscall'")}, (), ()),
        ("call void @llvm.foo()", {("unknown", "intrinsic llvm.foo")}, (), ()),
    ],
)
def test_one_call(call, found, unclassified, noted):
    solution = solved(SIMPLE.format(call=call))
    assert effects(solution) == found
    assert solution.unclassified == unclassified
    assert solution.noted == noted
    assert not solution.may_raise


def test_a_witness_carries_the_contract_and_the_size():
    (witness,) = solved(SIMPLE.format(call="%x = call ptr @malloc(i64 48)")).witnesses
    assert (witness.size, witness.reason, witness.source) == (48, "test", "test")
    assert (witness.path, witness.occasion) == (Path.RETURN, Occasion.EVERY_CALL)
    assert witness.backtrace == (Frame("", 0, None, "f"),)


@pytest.mark.parametrize(
    ("name", "found"),
    [("malloc", "allocate"), ("clean", None), ("mystery", "unknown"), (None, "unknown")],
)
def test_a_constant_address_is_what_stands_there(name, found):
    text = SIMPLE.format(call="%t = load ptr, ptr @slot, align 8\n  call void %t()")
    asked = []
    solution = solved(text, address_names=lambda a: asked.append(a) or name)
    assert {w.effect.value for w in solution.witnesses} == ({found} if found else set())
    assert asked == [4096]
    assert effects(solved(text)) == {("unknown", "slot")}


def test_candidates_are_all_called():
    text = """
    define void @f(i1 %c) {
      %t = select i1 %c, ptr @g, ptr @mystery
      call void %t()
      ret void
    }
    define void @g() {
      %x = call ptr @malloc(i64 1)
      ret void
    }
    declare ptr @malloc(i64)
    declare void @mystery()
    """
    assert effects(solved(text)) == {("allocate", "malloc"), ("unknown", "mystery")}


def test_system_calls_are_asked_for_by_number():
    def program(number):
        call = Call(0, 0, SystemCall(number))
        f = Function("f", (Block(0, "", (), (0,), exits=True),), (call,))
        return Program({"f": f}, frozenset(), frozenset(), lambda key: (), "f")

    table = lambda s: contract(s, Effect.ALLOCATE) if s == "syscall:9" else None
    assert effects(solve(program(9), table)) == {("allocate", "syscall:9")}
    assert effects(solve(program(1), table)) == {("unknown", "syscall:1")}
    assert effects(solve(program(None), table)) == {("unknown", "syscall")}


def test_a_missing_entry_is_refused():
    with pytest.raises(ProgramError, match="entry 'f'"):
        solve(Program({}, frozenset(), frozenset(), lambda key: (), "f"), contracts)


# --- the call graph ---------------------------------------------------------------------------

CHAIN = """
define void @f() {
  call void @g(), !dbg !10
  call void @h(), !dbg !11
  ret void
}
define internal void @g() {
  call void @h(), !dbg !12
  ret void
}
define internal void @h() {
  %x = call ptr @malloc(i64 8), !dbg !13
  ret void
}
define void @unreached() {
  call void @mystery()
  ret void
}
declare void @mystery()
declare ptr @malloc(i64)

!1 = !DIFile(filename: "u.py", directory: "")
!2 = distinct !DISubprogram(name: "f", file: !1, line: 1)
!3 = distinct !DISubprogram(name: "g", file: !1, line: 2)
!4 = distinct !DISubprogram(name: "h", file: !1, line: 3)
!5 = distinct !DISubprogram(name: "k", file: !1, line: 4)
!10 = !DILocation(line: 10, scope: !2)
!11 = !DILocation(line: 11, scope: !2)
!12 = !DILocation(line: 12, scope: !3)
!13 = !DILocation(line: 13, scope: !5, inlinedAt: !14)
!14 = distinct !DILocation(line: 14, scope: !4)
"""


def test_each_call_path_has_its_own_backtrace():
    solution = solved(CHAIN)
    traces = [[(f.line, f.function, f.inlined) for f in w.backtrace] for w in solution.witnesses]
    inner = [(13, "k", True), (14, "h", False)]
    assert traces == [
        [*inner, (11, "f", False)],
        [*inner, (12, "g", False), (10, "f", False)],
    ]
    assert {w.symbol for w in solution.witnesses} == {"malloc"}


def test_paths_that_look_alike_are_one_and_their_number_is_bounded():
    calls = "\n".join(f"  call void @g(), !dbg !{100 + i % 90}" for i in range(180))
    places = "\n".join(f"!{100 + i} = !DILocation(line: {i + 1}, scope: !2)" for i in range(90))
    text = f"define void @f() {{\n{calls}\n  ret void\n}}\n" + CHAIN.split("}\n", 1)[1] + places
    assert len(solved(text).witnesses) == 64
    assert len(solved(text, limit=500).witnesses) == 90
    assert len(solved(text, limit=1).witnesses) == 1


def test_recursion_reaches_its_fixpoint():
    text = """
    define void @f(i1 %c) {
      br i1 %c, label %a, label %b
    a:
      call void @g(i1 %c)
      br label %b
    b:
      ret void
    }
    define void @g(i1 %c) {
      br i1 %c, label %a, label %b
    a:
      call void @f(i1 %c)
      %x = call ptr @malloc(i64 8)
      br label %b
    b:
      call void @mystery()
      ret void
    }
    declare ptr @malloc(i64)
    declare void @mystery()
    """
    expected = {("allocate", "malloc"), ("unknown", "mystery")}
    assert effects(solved(text)) == expected
    assert effects(solve(read_module(ir(text), "g"), contracts)) == expected


def test_a_cause_that_only_a_repeated_function_shows_is_kept():
    # The site raises in f; only the outer f, reached again through g, catches the error.
    text = """
    define i32 @f(ptr %retptr, ptr %excinfo, i1 %c) {
      br i1 %c, label %a, label %b
    a:
      %x = call ptr @malloc(i64 8)
      ret i32 1
    b:
      %s = call i32 @g(ptr %retptr, ptr %excinfo, i1 %c)
      ret i32 %s
    }
    define i32 @g(ptr %retptr, ptr %excinfo, i1 %c) {
      %s = call i32 @f(ptr %retptr, ptr %excinfo, i1 true)
      ret i32 0
    }
    declare ptr @malloc(i64)
    """
    paths = {w.path for w in solved(text).witnesses if w.effect is Effect.ALLOCATE}
    assert paths == {Path.RETURN, Path.RAISE}


CALLBACK = """
define void @f(ptr %p) {
  call void @external(ptr @called_back)
  store ptr @never_mentioned_elsewhere, ptr %p, align 8
  ret void
}
define void @called_back() {
  %x = call ptr @malloc(i64 8)
  ret void
}
define void @never_mentioned_elsewhere() {
  ret void
}
define void @only_called() {
  call void @mystery()
  ret void
}
declare ptr @malloc(i64)
declare void @mystery()
declare void @external(ptr)
"""


@pytest.mark.parametrize("calls_back", [True, False])
def test_an_external_that_calls_back_runs_what_has_its_address_taken(calls_back):
    def table(symbol):
        if symbol == "external":
            return contract(symbol, calls_back=calls_back)
        return contracts(symbol)

    found = effects(solved(CALLBACK, table))
    assert found == ({("allocate", "malloc")} if calls_back else set())


# --- trust ------------------------------------------------------------------------------------


def test_assumptions_drop_what_they_name_and_are_recorded():
    text = """
    define void @f() {
      call void @g()
      call void @quiet()
      ret void
    }
    define void @g() {
      %x = call ptr @malloc(i64 8)
      call void @free(ptr %x)
      ret void
    }
    define void @quiet() {
      ret void
    }
    declare ptr @malloc(i64)
    declare void @free(ptr)
    """
    both = {("allocate", "malloc"), ("free", "free")}
    assert effects(solved(text)) == both
    trust = {
        "g": Assumed(Guarantee.NONALLOCATING, "tested"),
        "quiet": Assumed(Guarantee.NONALLOCATING, "needless"),
        "elsewhere": Assumed(Guarantee.NONALLOCATING, "never met"),
    }
    solution = solved(text, assumptions=trust)
    assert effects(solution) == {("free", "free")}
    assert solution.assumptions_used == ("g",)
    solution = solved(text, assumptions={"g": Assumed(frozenset({Effect.FREE}), "tested")})
    assert effects(solution) == {("allocate", "malloc")}
    solution = solved(text, assumptions={"malloc": Assumed(Guarantee.NONBLOCKING, "a pool")})
    assert effects(solution) == {("free", "free")}
    assert solution.assumptions_used == ("malloc",)


def test_an_unknown_symbol_that_is_trusted_is_not_unclassified():
    text = SIMPLE.format(call="call void @mystery()")
    trust = {"mystery": Assumed(Guarantee.NONALLOCATING, "read its source")}
    solution = solved(text, assumptions=trust)
    assert solution.witnesses == solution.unclassified == ()
    assert solution.assumptions_used == ("mystery",)
    less = {"mystery": Assumed(frozenset({Effect.FREE}), "read its source")}
    assert solved(text, assumptions=less).unclassified == ("mystery",)


def test_an_assumption_about_a_callee_does_not_cover_another_way():
    text = """
    define void @f() {
      call void @g()
      call void @h()
      ret void
    }
    define void @g() {
      call void @h()
      ret void
    }
    define void @h() {
      %x = call ptr @malloc(i64 8)
      ret void
    }
    declare ptr @malloc(i64)
    """
    solution = solved(text, assumptions={"g": Assumed(Guarantee.NONALLOCATING, "tested")})
    assert effects(solution) == {("allocate", "malloc")}


# --- reference counts -------------------------------------------------------------------------

COUNTING = """
define void @f(ptr %arg, ptr %other, i1 %c) {{
{body}
}}
{more}
define linkonce_odr void @NRT_incref(ptr %p) {{
  %x = atomicrmw add ptr %p, i64 1 monotonic, align 8
  ret void
}}
define linkonce_odr void @NRT_decref(ptr %p) {{
  call void @NRT_MemInfo_call_dtor(ptr %p)
  ret void
}}
define linkonce_odr void @NRT_decref.5(ptr %p) {{
  call void @NRT_MemInfo_call_dtor(ptr %p)
  ret void
}}
declare void @NRT_MemInfo_call_dtor(ptr)
declare ptr @clean()
"""


def frees(body, more="", **options):
    solution = solved(COUNTING.format(body=body.strip("\n"), more=ir(more)), **options)
    assert all(w.effect is Effect.FREE for w in solution.witnesses)
    return bool(solution.witnesses)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  call void @NRT_decref(ptr %arg)\n  ret void", False),
        ("  tail call void @NRT_decref.5(ptr nonnull %arg)\n  ret void", False),
        ("  %v = call ptr @clean()\n  call void @NRT_decref(ptr %v)\n  ret void", True),
        ("  %v = load ptr, ptr %arg, align 8\n  call void @NRT_decref(ptr %v)\n  ret void", True),
        ("  %v = select i1 %c, ptr %arg, ptr %other\n  call void @NRT_decref(ptr %v)\n  ret void",
         False),
        ("  %w = load ptr, ptr %other, align 8\n  %v = select i1 %c, ptr %arg, ptr %w\n"
         "  call void @NRT_decref(ptr %v)\n  ret void", True),
        ("  call void @NRT_MemInfo_call_dtor(ptr %arg)\n  ret void", True),  # inlined
    ],
)  # fmt: skip
def test_an_argument_of_the_entry_is_held_by_its_caller(body, expected):
    assert frees(body) == expected


PASSED = """
define void @g(ptr %x) {
  call void @NRT_decref(ptr %x)
  ret void
}
"""


def test_an_argument_passed_down_unchanged_is_held():
    assert not frees("  call void @g(ptr %arg)\n  ret void", PASSED)
    mixed = """
  %v = call ptr @clean()
  call void @g(ptr %arg)
  call void @g(ptr %v)
  ret void"""
    assert frees(mixed, PASSED)
    swapped = (
        PASSED
        + """
define void @k(ptr %a, ptr %b) {
  call void @g(ptr %b)
  ret void
}
"""
    )
    call = "  %v = call ptr @clean()\n  call void @k(ptr {}, ptr {})\n  ret void"
    assert not frees(call.format("%v", "%arg"), swapped)
    assert frees(call.format("%arg", "%v"), swapped)


def test_an_argument_of_a_function_that_others_may_call_is_not_held():
    body = "  store ptr @g, ptr %other, align 8\n  call void @g(ptr %arg)\n  ret void"
    assert frees(body, PASSED)


def test_arguments_that_a_wrapper_unpacks_are_held_when_it_says_so():
    body = "  %v = load ptr, ptr %arg, align 8\n  call void @g(ptr %v)\n  ret void"
    assert frees(body, PASSED)
    assert not frees(body, PASSED, refcounts=RefcountNames(held=frozenset({"g"})))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  call void @NRT_incref(ptr %v)\n  call void @NRT_decref(ptr %v)\n  ret void", False),
        ("  call void @NRT_decref(ptr %v)\n  call void @NRT_incref(ptr %v)\n  ret void", True),
        ("  call void @NRT_incref(ptr %v)\n  call void @NRT_decref(ptr %v)\n"
         "  call void @NRT_decref(ptr %v)\n  ret void", True),
        ("  call void @NRT_incref(ptr %w)\n  call void @NRT_decref(ptr %v)\n  ret void", True),
        # undone on both of two ways that exclude each other
        ("  call void @NRT_incref(ptr %v)\n  br i1 %c, label %a, label %b\na:\n"
         "  call void @NRT_decref(ptr %v)\n  ret void\nb:\n"
         "  call void @NRT_decref(ptr %v)\n  ret void", False),
        # undone once more after either
        ("  call void @NRT_incref(ptr %v)\n  br i1 %c, label %a, label %b\na:\n"
         "  call void @NRT_decref(ptr %v)\n  br label %b\nb:\n"
         "  call void @NRT_decref(ptr %v)\n  ret void", True),
        # the increment is on one way only
        ("  br i1 %c, label %a, label %b\na:\n  call void @NRT_incref(ptr %v)\n  br label %b\nb:\n"
         "  call void @NRT_decref(ptr %v)\n  ret void", True),
        # undone more often than done
        ("  call void @NRT_incref(ptr %v)\n  br label %a\na:\n"
         "  call void @NRT_decref(ptr %v)\n  br i1 %c, label %a, label %b\nb:\n  ret void", True),
        # as often, in one block of a loop
        ("  br label %a\na:\n  call void @NRT_incref(ptr %v)\n  call void @NRT_decref(ptr %v)\n"
         "  br i1 %c, label %a, label %b\nb:\n  ret void", False),
    ],
    ids="pair reversed twice other exclusive sequential one-way loop same-block".split(),
)  # fmt: skip
def test_a_decrement_that_undoes_an_increment_frees_nothing(body, expected):
    head = "  %v = load ptr, ptr %arg, align 8\n  %w = load ptr, ptr %other, align 8\n"
    assert frees(head + body) == expected


# --- real programs ----------------------------------------------------------------------------

ALLOCATE, FREE, RETURN, RAISE = Effect.ALLOCATE, Effect.FREE, Path.RETURN, Path.RAISE
EXPECTED = {
    # name: (effects and paths, may raise)
    "total": (set(), False),
    "checks": (set(), True),
    "dynamic": ({(ALLOCATE, RAISE)}, True),
    "caught": ({(ALLOCATE, RETURN)}, False),
    "finally": (
        {(ALLOCATE, RETURN), (FREE, RETURN), (ALLOCATE, RAISE), (FREE, RAISE)},
        True,
    ),
    "forever": (
        {(ALLOCATE, Path.DIVERGE), (FREE, Path.DIVERGE), (ALLOCATE, RAISE)},
        True,
    ),
    "generator": (set(), True),
    "temporary": ({(ALLOCATE, RETURN), (FREE, RETURN)}, True),
    "recursive": (set(), True),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_numba_programs(name):
    text, entry = module_of(name)
    solution = solve(read_module(text, entry), contracts)
    found = {(w.effect, w.path) for w in solution.witnesses if w.effect is not Effect.RAISE}
    expected, may_raise = EXPECTED[name]
    if name == "caught":
        # Whether the catching itself can raise is Numba's business; the allocation counts.
        assert (ALLOCATE, RETURN) in found
        assert (ALLOCATE, RAISE) not in found
        return
    assert found == expected
    assert solution.may_raise == may_raise
    assert (Effect.RAISE in {w.effect for w in solution.witnesses}) == may_raise


def test_no_program_is_left_unclassified_by_the_small_table():
    for name in ("string", "dictionary", "passes_on"):
        text, entry = module_of(name)
        solution = solve(read_module(text, entry), contracts)
        assert solution.unclassified == ()
        assert ALLOCATE in {w.effect for w in solution.witnesses if w.path is RETURN}


def test_the_same_question_has_the_same_answer():
    text, entry = module_of("string")
    first = solve(read_module(text, entry), contracts)
    assert solve(read_module(text, entry), contracts) == first
    keys = [(w.path, w.effect) for w in first.witnesses]
    order = {RETURN: 0, Path.DIVERGE: 1, RAISE: 2}
    assert keys == sorted(keys, key=lambda k: (order[k[0]], list(Effect).index(k[1])))


def test_an_argument_that_may_be_returned_is_not_freed():
    text, entry = module_of("passes_on")
    solution = solve(read_module(text, entry), contracts)
    assert FREE not in {w.effect for w in solution.witnesses if w.path is RETURN}


# --- the lattice ------------------------------------------------------------------------------

causes = st.sampled_from(
    [Cause(e, s, Occasion.EVERY_CALL, "", "") for e in (ALLOCATE, FREE) for s in ("a", "b")]
)
sites = st.builds(Site, st.sampled_from("fgh"), st.integers(0, 2))
trails = st.lists(sites, min_size=1, max_size=3).map(tuple)
summaries = st.lists(st.tuples(st.tuples(st.sampled_from(Path), causes), trails), max_size=5).map(
    collect
)


@given(summaries, summaries, summaries)
def test_join_is_a_least_upper_bound(a, b, c):
    same = lambda x, y: x.covers(y) and y.covers(x)
    assert a.join(b).covers(a) and a.join(b).covers(b)
    assert same(a.join(b), b.join(a))
    assert same(a.join(b).join(c), a.join(b.join(c)))
    assert same(a.join(a), a)
    assert a.join(BOTTOM) == a == BOTTOM.join(a)
    if c.covers(a) and c.covers(b):
        assert c.covers(a.join(b))


@given(summaries, sites)
def test_a_call_loses_no_cause(summary, site):
    ends = {Path.RETURN: RAISE, RAISE: RETURN, Path.DIVERGE: Path.DIVERGE}
    caller = summary.through(site, ends, ())
    assert caller.on(RAISE) == summary.on(RETURN)
    assert caller.on(RETURN) == summary.on(RAISE)
    assert caller.on(Path.DIVERGE) == summary.on(Path.DIVERGE)
    assert all(t[-1] == site for ts in caller.entries.values() for t in ts)
    assert all(caller.entries.values())
    assert not summary.through(site, ends, Effect).entries


def test_the_shortest_trails_are_kept():
    key = RETURN, Cause(ALLOCATE, "malloc", Occasion.EVERY_CALL, "", "")
    long = (Site("f", 0), Site("g", 0))
    short = (Site("h", 1),)
    assert collect([(key, long), (key, short)], 1) == Summary({key: (short,)})


def test_sample_programs_are_all_used():
    assert set(EXPECTED) | {"string", "dictionary", "passes_on"} == set(PROGRAMS)


def test_a_direct_call_of_a_program_function_needs_no_contract():
    asked = []
    solved(CHAIN, lambda s: asked.append(s) or contracts(s))
    assert set(asked) == {"malloc"}
    assert isinstance(read_module(CHAIN.lstrip(), "f").functions["f"].calls[0].target, Direct)

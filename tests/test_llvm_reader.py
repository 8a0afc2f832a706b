"""The LLVM reader: what it reads is what is there, and what it does not know it refuses."""

import random
import re
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alloccheck.analysis.solve import solve
from alloccheck.errors import ProgramError
from alloccheck.program.llvm import read_module
from alloccheck.program.llvm_intrinsics import is_harmless_intrinsic
from alloccheck.program.llvm_values import satisfying
from alloccheck.program.model import (
    Address,
    CallResult,
    Choice,
    Constant,
    Direct,
    Indirect,
    Phi,
    Unread,
)
from alloccheck.program.ranges import FULL, HIGHEST, LOWEST, Ranges
from analysis_samples import PROGRAMS, contracts, ir, module_of


def read(body, *, result="void", args="ptr %p", more="", returns=None):
    """Read a function `f` with the given body and return it."""
    text = f"define {result} @f({args}) {{\n{body.rstrip()}\n}}\n{more}"
    return read_module(text, "f").functions["f"]


def targets(function):
    return [call.target for call in function.calls]


# --- calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("call void @g()", Direct("g")),
        ("tail call fastcc void @g() #3", Direct("g")),
        ("musttail call void @g()", Direct("g")),
        ("notail call void @g()", Direct("g")),
        ("%x = call noalias range(i32 0, 2) ptr @g(ptr nonnull %p)", Direct("g")),
        ("%x = call nnan ninf double @g(double 0x7FF8000000000000)", Direct("g")),
        ("%x = call i32 (ptr, ptr, ...) @g(ptr %p)", Direct("g")),
        ("%x = call { ptr, i64 } @g(ptr byval({ i8, ptr }) %p)", Direct("g")),
        ('call void @"a b\\22c"()', Direct('a b"c')),
        ('call void @".numba <x>$3"(ptr @g)', Direct(".numba <x>$3")),
        ("call void inttoptr (i64 4096 to ptr)()", Address(4096, "inttoptr (i64 4096 to ptr)")),
        ("call void %p(i32 1)", Indirect(None, "pointer %p")),
        ('call void %"q r"()', Indirect(None, 'pointer %"q r"')),
        ("call i32 (ptr, ...) %p(ptr @g)", Indirect(None, "pointer %p")),
        ('call void asm sideeffect "nop", ""()', Unread("inline assembly 'nop'")),
        ('%x = call i32 asm "", "=r"()', Unread("inline assembly ''")),
        ("call void @llvm.coro.foo()", Unread("intrinsic llvm.coro.foo")),
    ],
)
def test_call_syntax(call, target):
    more = 'declare void @g()\ndeclare void @"a b\\22c"()\ndeclare void @".numba <x>$3"(ptr)\n'
    assert targets(read(f"  {call}\n  ret void", more=more)) == [target]


@pytest.mark.parametrize(
    "line",
    [
        "call void @llvm.lifetime.start.p0(ptr %p)",
        "call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %p, i64 8, i1 false)",
        "%x = call i64 @llvm.smax.i64(i64 1, i64 2)",
        'call void asm sideeffect "", "~{memory},~{dirflag}"()',
        "    #dbg_value(ptr %p, !1, !DIExpression(), !2)",
        "fence acquire",
    ],
)
def test_what_has_no_effect_is_no_call(line):
    line = line if line.startswith(" ") else f"  {line}"
    assert targets(read(f"{line}\n  ret void")) == []


def test_intrinsics_are_an_allow_list():
    assert is_harmless_intrinsic("llvm.sqrt.f64")
    assert not is_harmless_intrinsic("llvm.sqrtx.f64")
    assert not is_harmless_intrinsic("llvm.experimental.gc.statepoint.p0")
    assert not is_harmless_intrinsic("llvm.eh.unwind.init")


TARGETS = """
    aarch64 aie amdgcn arm arm64ec bpf dpp dx hexagon loongarch mips nvvm ppc r600 riscv s390 spv
    sme sve ve wasm x86 xcore
""".split()

NO_INTRINSICS = """
    access.group bitcode matrix cgdata cmdline codeview commandline compiler.used dbgf debugify
    embedded
    errno.tbaa global gcov ident licm loop mem.parallel_loop_access metadata mir.debugify
    module.flags nearbyin80f64 object offloading printf.fmts pseudo_probe_desc
    reloc.none sampleprof stats tysan.globals used vectorizer callbr.landingpad test.vectorelement
""".split()
"""Names of metadata, variables and the like, or beginnings of them."""

REFUSED = """
    addressofreturnaddress adjust.trampoline alloc.token.id allow asan call.preallocated clear_cache
    coro debugtrap eh experimental.convergence experimental.deoptimize experimental.gc
    experimental.guard experimental.patchpoint experimental.stackmap
    experimental.widenable.condition gcread gcroot gcwrite get.dynamic.area.offset get.fpenv
    get.fpmode hwasan icall.branch.funnel init.trampoline instrprof localaddress localescape
    localrecover objc pcmarker preserve protected.field.ptr ptrauth public.type.test read_register
    read_volatile_register reset set.fpenv set.fpmode set.loop.iterations seh stackaddress
    stackguard stackprotector start.loop.iterations swift test.set.loop.iterations
    test.start.loop.iterations type write_register xray
""".split()
"""What no Python function becomes, or what has effects; so each must be looked at first."""


def test_every_intrinsic_of_this_llvm_was_looked_at():
    (library,) = Path(llvm.__file__).parent.glob("libllvmlite.*")
    found = re.findall(rb"\0llvm\.([a-z0-9_.]+)(?=\0)", library.read_bytes())
    names = {one.decode() for one in found}
    assert len(names) > 5000

    def begins(name, among):
        return any(name == one or name.startswith((f"{one}.", f"{one}_")) for one in among)

    left = {
        one
        for one in names
        if not begins(one, TARGETS + NO_INTRINSICS + REFUSED)
        and not is_harmless_intrinsic(f"llvm.{one}")
        and not is_harmless_intrinsic(f"llvm.{one}.i64")
    }
    assert left == set()
    assert not any(is_harmless_intrinsic(f"llvm.{one}.i64") for one in REFUSED)


def test_operand_bundle_that_may_call_is_seen():
    body = '  call void @g() [ "clang.arc.attachedcall"(ptr @h) ]\n  ret void'
    found = targets(read(body, more="declare void @g()\ndeclare void @h()"))
    assert found == [Direct("g"), Unread("operand bundle 'clang.arc.attachedcall'")]


def test_arguments_size_and_location_of_a_call():
    body = """  %x = call ptr @alloc(ptr %p, i64 32, i32 16), !dbg !7
  %y = call ptr @alloc(ptr @g, i64 %n, i32 16)
  ret void"""
    function = read(body, args="ptr %p, i64 %n", more="@g = global i8 0\ndeclare ptr @alloc(...)")
    first, second = function.calls
    assert (first.size, first.location, first.operand) == (32, 7, "%p")
    assert first.arguments == ("%p", "32", "16")
    # A later constant is not the size when the first integer is not constant.
    assert (second.size, second.location, second.operand) == (None, None, "@g")
    assert function.parameters == ("%p", "%n")


def test_invoke_is_a_call_with_two_successors():
    function = read(
        """  invoke void @g(ptr %p)
          to label %ok unwind label %bad
ok:
  ret void
bad:
  %x = landingpad { ptr, i32 }
          cleanup
          catch ptr @t
  resume { ptr, i32 } %x""",
        more="@t = global i8 0\ndeclare void @g(ptr)",
    )
    assert targets(function) == [Direct("g")]
    assert [[e.target for e in b.edges] for b in function.blocks] == [[1, 2], [], []]
    assert function.blocks[2].exits


# --- pointers --------------------------------------------------------------------------------

GLOBAL_POINTERS = """
@fixed = internal constant ptr @g
@replaceable = weak constant ptr @g
@address = linkonce local_unnamed_addr global ptr inttoptr (i64 -16 to ptr)
@written = internal global ptr inttoptr (i64 32 to ptr)
@elsewhere = external global ptr
@public = global ptr inttoptr (i64 32 to ptr)
@weak = weak constant ptr inttoptr (i64 32 to ptr)
@table = internal constant [2 x ptr] [ptr @g, ptr @h]
@holes = internal constant [2 x ptr] [ptr @g, ptr null]
@other = alias void (), ptr @g
define void @g() {
  store ptr null, ptr @written, align 8
  ret void
}
declare void @h()
"""


@pytest.mark.parametrize(
    ("definition", "target"),
    [
        ("load ptr, ptr @fixed, align 8", Direct("g")),
        ("load ptr, ptr @replaceable, align 8", None),
        ("load ptr, ptr @address, align 8", Address(2**64 - 16, "address")),
        ("load ptr, ptr @written, align 8", None),
        ("load ptr, ptr @elsewhere, align 8", None),
        ("load ptr, ptr @public, align 8", None),
        ("load ptr, ptr @weak, align 8", None),
        ("load ptr, ptr %q, align 8", None),
        ("select i1 %c, ptr @g, ptr @h", ("g", "h")),
        ("select i1 %c, ptr @other, ptr @g", Direct("g")),
        ("select i1 %c, ptr @g, ptr null", None),
        ("select i1 %c, ptr @g, ptr %q", None),
    ],
)
def test_pointer_targets(definition, target):
    body = f"  %t = {definition}\n  call void %t()\n  ret void"
    (found,) = targets(read(body, args="i1 %c, ptr %q", more=GLOBAL_POINTERS))
    if target is None or isinstance(target, tuple):
        assert isinstance(found, Indirect)
        assert found.candidates == target
    else:
        assert found == target


@pytest.mark.parametrize(("table", "candidates"), [("table", ("g", "h")), ("holes", None)])
def test_call_through_a_constant_table(table, candidates):
    body = f"""  %e = getelementptr inbounds [2 x ptr], ptr @{table}, i64 0, i64 %i
  %t = load ptr, ptr %e, align 8
  call void %t()
  ret void"""
    (found,) = targets(read(body, args="i64 %i", more=GLOBAL_POINTERS))
    assert isinstance(found, Indirect)
    assert found.candidates == candidates


@pytest.mark.parametrize(
    ("table", "load", "candidates"),
    [
        ("table", "align 8", ("g", "h")),
        ("table", "align 16", ("g", "h")),
        ("table", "align 4", None),
        ("holes", "align 8", None),
        ("packed", "align 8", None),
        ("table_of_16", "align 8", ("g", "h")),
    ],
)
def test_call_through_a_table_that_is_addressed_in_bytes(table, load, candidates):
    more = """
@packed = internal constant [2 x ptr] [ptr @g, ptr @h], align 4
@table_of_16 = internal constant [2 x ptr] [ptr @g, ptr @h], align 16
"""
    body = f"""  %o = mul i64 %i, 8
  %a = getelementptr i8, ptr @{table}, i64 %o
  %b = getelementptr i8, ptr %a, i64 -8
  %t = load ptr, ptr %b, {load}
  call void %t()
  ret void"""
    (found,) = targets(read(body, args="i64 %i", more=GLOBAL_POINTERS + more))
    assert isinstance(found, Indirect)
    assert found.candidates == candidates


def test_an_address_that_leads_nowhere_is_unknown():
    body = """  ret void
dead:
  %a = getelementptr i8, ptr %b, i64 8
  %b = getelementptr i8, ptr %a, i64 8
  %t = load ptr, ptr %b, align 8
  call void %t()
  br label %dead"""
    (found,) = targets(read(body, more=GLOBAL_POINTERS))
    assert found.candidates is None


def test_phi_of_pointers_through_a_loop():
    body = """  br label %loop
loop:
  %t = phi ptr [ @g, %0 ], [ %u, %loop ]
  %u = select i1 %c, ptr %t, ptr @h
  call void %t()
  br i1 %c, label %loop, label %end
end:
  ret void"""
    (found,) = targets(read(body, args="i1 %c", more=GLOBAL_POINTERS))
    assert found.candidates == ("g", "h")


def test_address_taken_is_not_called_and_called_is_not_address_taken():
    text = ir(
        """
        @slot = global ptr @stored_globally
        define void @f(ptr %p) {
          call void @only_called(ptr @passed)
          store ptr @stored, ptr %p, align 8
          ret void
        }
        define void @only_called(ptr %x) {
          ret void
        }
        define void @passed() {
          ret void
        }
        define void @stored() {
          ret void
        }
        define void @stored_globally() {
          ret void
        }
        """
    )
    program = read_module(text, "f")
    assert program.address_taken == {"passed", "stored", "stored_globally"}
    assert program.externals == frozenset()


def test_a_body_that_another_module_owns_is_external():
    text = ir(
        """
        define void @f() {
          call void @g()
          ret void
        }
        define available_externally void @g() {
          ret void
        }
        """
    )
    program = read_module(text, "f")
    assert program.externals == {"g"}
    assert "g" not in program.functions


# --- statuses --------------------------------------------------------------------------------


def test_values_of_a_returned_status():
    function = read(
        """  %s = call i32 @g()
  %c = icmp eq i32 %s, -2
  %t = select i1 %c, i32 0, i32 %s
  br i1 %c, label %a, label %b
a:
  br label %b
b:
  %r = phi i32 [ %t, %0 ], [ 1, %a ]
  ret i32 %r""",
        result="range(i32 -2, 5) i32",
        args="",
        more="declare i32 @g()",
    )
    assert function.has_status
    assert function.values["%s"] == CallResult(0)
    assert function.values["%r"] == Phi(2, (("%t", 0), ("1", 1)))
    assert function.values["1"] == Constant(1)
    choice = function.values["%t"]
    assert isinstance(choice, Choice)
    (zero, when_equal), (other, when_not) = choice.arms
    assert (zero, other) == ("0", "%s")
    assert when_equal[0].ranges == Ranges.of(-2)
    assert when_not[0].ranges == ~Ranges.of(-2)
    assert function.blocks[2].returns == "%r"


def facts_of(condition, more=""):
    """Return what the true and the false edge of a condition say about %s."""
    body = f"""  %s = call i32 @g()
{more}
  %c = {condition}
  br i1 %c, label %a, label %b
a:
  ret i32 0
b:
  ret i32 1"""
    function = read(body, result="i32", args="i1 %x, i32 %y", more="declare i32 @g()")
    found = []
    for edge in function.blocks[0].edges:
        known = [fact.ranges for fact in edge.facts if fact.value == "%s"]
        found.append(known[0] if known else FULL)
    return found


@pytest.mark.parametrize(
    ("condition", "more", "holds"),
    [
        ("icmp eq i32 %s, 0", "", lambda s: s == 0),
        ("icmp ne i32 %s, -2", "", lambda s: s != -2),
        ("icmp sgt i32 %s, 0", "", lambda s: s > 0),
        ("icmp slt i32 0, %s", "", lambda s: s > 0),
        ("icmp ult i32 %s, 2", "", lambda s: s in (0, 1)),
        ("icmp ugt i32 %s, -3", "", lambda s: s in (-2, -1)),
        ("icmp samesign uge i32 %s, 1", "", lambda s: s != 0),
        ("icmp ult i32 %t, 3", "  %t = add nsw i32 %s, 3", lambda s: s in (-3, -2, -1)),
        ("icmp eq i32 %t, 1", "  %t = add i32 %s, -1", lambda s: s == 2),
        ("icmp eq i32 %t, -2", "  %t = and i32 %s, -2", lambda s: s in (-2, -1)),
        ("icmp ne i32 %t, -2", "  %t = and i32 %s, -2", lambda s: s not in (-2, -1)),
        ("icmp eq i32 %t, -1", "  %t = or i32 %s, 1", lambda s: s in (-2, -1)),
        ("xor i1 %k, true", "  %k = icmp eq i32 %s, 0", lambda s: s != 0),
        ("freeze i1 %k", "  %k = icmp eq i32 %s, 0", lambda s: s == 0),
        (
            "or i1 %k, %l",
            "  %k = icmp eq i32 %s, 0\n  %l = icmp eq i32 %s, -2",
            lambda s: s in (0, -2),
        ),
        (
            "and i1 %k, %l",
            "  %k = icmp ne i32 %s, 0\n  %l = icmp ne i32 %s, -2",
            lambda s: s not in (0, -2),
        ),
        (
            "select i1 %k, i1 true, i1 %l",
            "  %k = icmp eq i32 %s, 0\n  %l = icmp eq i32 %s, -3",
            lambda s: s in (0, -3),
        ),
        (
            "select i1 %k, i1 %l, i1 false",
            "  %k = icmp slt i32 %s, 0\n  %l = icmp ne i32 %s, -1",
            lambda s: s < -1,
        ),
        (
            "icmp eq i32 %z, 0",
            "  %k = icmp eq i32 %s, 0\n  %z = zext i1 %k to i32",
            lambda s: s != 0,
        ),
    ],
)
def test_facts_are_exact(condition, more, holds):
    when_true, when_false = facts_of(condition, more)
    for s in [*range(-6, 7), LOWEST, HIGHEST]:
        assert (s in when_true) == holds(s)
        assert (s in when_false) == (not holds(s))


@pytest.mark.parametrize(
    ("condition", "more"),
    [
        ("icmp eq i32 %s, %y", ""),
        ("icmp eq i64 %w, 0", "  %w = sext i32 %s to i64"),
        ("or i1 %k, %x", "  %k = icmp eq i32 %s, 0"),
        ("freeze i1 %x", ""),
        ("freeze i1 %k", "  %t = freeze i32 %y\n  %k = icmp eq i32 %t, 0"),
        ("icmp eq i32 %t, 0", "  %t = shl i32 %s, 1"),
    ],
)
def test_what_cannot_be_said_is_not_said(condition, more):
    assert facts_of(condition, more)[0] == FULL


def test_a_frozen_comparison_of_what_may_be_undefined_says_nothing():
    body = """  %k = icmp eq i32 %y, 0
  %c = freeze i1 %k
  br i1 %c, label %a, label %b
a:
  ret i32 0
b:
  ret i32 1"""
    for edge in read(body, result="i32", args="i32 %y").blocks[0].edges:
        assert edge.facts == ()


def test_switch_facts():
    function = read(
        """  %s = call i32 @g()
  switch i32 %s, label %other [
    i32 0, label %ok
    i32 -2, label %ok
    i32 5, label %other
  ], !prof !3
ok:
  ret i32 0
other:
  ret i32 1""",
        result="i32",
        args="",
        more="declare i32 @g()",
    )
    facts = {e.target: e.facts[0].ranges for e in function.blocks[0].edges}
    assert facts[1] == Ranges.of(0, -2)
    assert facts[2] == ~Ranges.of(0, -2)


@given(
    st.sampled_from("eq ne slt sle sgt sge ult ule ugt uge".split()),
    st.integers(LOWEST, HIGHEST),
    st.integers(LOWEST, HIGHEST),
)
def test_comparisons_agree_with_integers(predicate, constant, x):
    unsigned = predicate[0] == "u"
    a, b = (x % 2**32, constant % 2**32) if unsigned else (x, constant)
    truth = {
        "eq": a == b,
        "ne": a != b,
        "lt": a < b,
        "le": a <= b,
        "gt": a > b,
        "ge": a >= b,
    }[predicate[-2:]]
    assert (x in satisfying(predicate, constant)) == truth


small = st.integers(-5, 5)
ranges = st.lists(st.tuples(small, small), max_size=4).map(Ranges.from_spans)


@given(ranges, ranges, small)
def test_ranges_are_sets(a, b, offset):
    universe = range(-12, 13)
    members = lambda r: {x for x in universe if x in r}
    assert members(a | b) == members(a) | members(b)
    assert members(a & b) == members(a) & members(b)
    assert members(~a) == set(universe) - members(a)
    assert all((x + offset in a.shifted(offset)) == (x in a) for x in universe)
    assert bool(a) == bool(members(a))


# --- refusals --------------------------------------------------------------------------------

WHOLE = """define void @f(i1 %c) {
  br i1 %c, label %a, label %b
a:
  ret void
b:
  ret void
}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "defines no function"),
        ("declare void @f()\n", "defines no function"),
        ("define void @other() {\n  ret void\n}\n", "expected a body of the entry 'f'"),
        ("define available_externally void @f() {\n  ret void\n}\n", "expected a body"),
        ("define void @f() {\n  fence acquire\n}\n", "no terminator"),
        ("define void @f() {\n  fence acquire\nb:\n  ret void\n}\n", "no terminator"),
        ("define void @f() {\n  ret void\n", "not closed"),
        ("define void @f() {\n}\n", "no blocks"),
        ("define void @f() {\n  frobnicate i32 1\n  ret void\n}\n", "opcode 'frobnicate'"),
        ("define void @f() {\n  ret void\n  fence acquire\n}\n", "after the end of block"),
        ("define void @f() {\n  br label %nowhere\n}\n", "no block 'nowhere'"),
        (
            "define void @f() {\n  br i1 maybe, label %a, label %a\na:\n  ret void\n}\n",
            "terminator",
        ),
        ("define void @f() {\n  call void @g()\n  ret void\n}\n", "neither declared nor defined"),
        ("define void @f() {\n  call\n  ret void\n}\n", "call is not understood"),
        ("define void @f() {\n  call void\n  ret void\n}\n", "call is not understood"),
        ("define void @f() {\n  call void @g(ptr null\n  ret void\n}\n", "not closed"),
        ("define void @f() {\n  catchret from %x to label %y\n}\n", "opcode 'catchret'"),
        ("define void @f()\n{\n  ret void\n}\n", "on one line"),
        (WHOLE + 'module asm "nop"\n', "module-level assembly"),
        (WHOLE + "@i = ifunc void (), ptr @r\n", "ifunc"),
        (WHOLE + "@i = weak alias void (), ptr @f\n", "alias"),
        (WHOLE + "@i = alias void (), ptr @i\n", "refers to itself"),
        (WHOLE + "what is this\n", "not understood"),
        (WHOLE + WHOLE, "defined twice"),
        (WHOLE.replace("b:", "a:"), "defined twice"),
        (WHOLE + "!0 = !{}\ndefine void @g() {\n  ret void\n}\n", "only metadata"),
    ],
)
def test_refuses(text, reason):
    with pytest.raises(ProgramError, match=re.escape(reason)):
        read_module(text, "f")


def test_refusal_names_the_line():
    with pytest.raises(ProgramError, match=r"line 2\b"):
        read_module("define void @f() {\n  frobnicate\n}\n", "f")


# --- locations -------------------------------------------------------------------------------

DEBUG = r"""
define void @f() !dbg !4 {
  call void @g(), !dbg !8
  call void @g(), !dbg !10
  call void @g(), !dbg !11
  ret void
}
declare void @g()

!llvm.dbg.cu = !{!0}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1)
!1 = !DIFile(filename: "a\22b.py", directory: "/src")
!2 = !DIFile(filename: "/lib/inner.py", directory: "/elsewhere")
!4 = distinct !DISubprogram(name: "outer", scope: !1, file: !1, line: 10, unit: !0)
!5 = distinct !DISubprogram(name: "inner", scope: !2, file: !2, line: 20, unit: !0)
!6 = distinct !DILexicalBlock(scope: !5, file: !2, line: 22, column: 3)
!8 = !DILocation(line: 23, column: 7, scope: !6, inlinedAt: !9)
!9 = distinct !DILocation(line: 11, column: 1, scope: !4)
!10 = !DILocation(line: 0, scope: !6, inlinedAt: !9)
!11 = !DILocation(line: 0, scope: !4)
"""


def test_backtraces():
    program = read_module(DEBUG, "f")
    traces = [
        [(f.file, f.line, f.column, f.function, f.inlined) for f in program.locate(c.location)]
        for c in program.functions["f"].calls
    ]
    outer = ('/src/a"b.py', 11, 1, "outer", False)
    assert traces == [
        [("/lib/inner.py", 23, 7, "inner", True), outer],
        [("/lib/inner.py", 22, 3, "inner", True), outer],
        [('/src/a"b.py', 10, None, "outer", False)],
    ]
    assert program.locate(program.functions["f"].location)[0].line == 10
    assert program.locate(999) == ()


def test_real_line_numbers():
    text, entry = module_of("temporary", debug=True)
    program = read_module(text, entry)
    solution = solve(program, contracts)
    lines = {
        w.backtrace[-1].line for w in solution.witnesses if w.symbol.startswith("NRT_MemInfo_alloc")
    }
    assert lines == {PROGRAMS["temporary"][0].__code__.co_firstlineno + 1}


# --- against LLVM itself ---------------------------------------------------------------------


def llvm_calls(text):
    """Return, for each function with a body, what llvmlite says its calls call, block by block."""
    found = {}
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if function.is_declaration:
            continue
        blocks = []
        for block in function.blocks:
            callees = []
            for instruction in block.instructions:
                if instruction.opcode in ("call", "invoke"):
                    callee = list(instruction.operands)[-1]
                    if not callee.name.startswith("llvm."):
                        callees.append(callee.name)
            blocks.append(callees)
        found[function.name] = blocks
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_llvms_own_walk(name):
    text, entry = module_of(name)
    program = read_module(text, entry)
    truth = llvm_calls(text)
    assert program.functions.keys() == truth.keys()
    assert sum(len(c) for blocks in truth.values() for c in blocks) > 0
    for function in program.functions.values():
        ours = []
        for block in function.blocks:
            names = []
            for index in block.calls:
                target = function.calls[index].target
                if isinstance(target, Direct):
                    names.append(target.symbol)
                else:
                    assert isinstance(target, Indirect)
                    names.append(target.description.removeprefix("pointer %").split()[0])
            ours.append(names)
        assert ours == truth[function.name]
        assert all(b.edges or b.exits or b.dies for b in function.blocks)


# --- damaged text ----------------------------------------------------------------------------


def verdict(text, entry):
    found = solve(read_module(text, entry), contracts).witnesses
    return {(w.effect, w.path, w.symbol) for w in found}


@pytest.mark.parametrize("name", ["finally", "string", "dictionary"])
def test_truncated_text_is_refused_or_complete(name):
    text, entry = module_of(name)
    whole = verdict(text, entry)
    lines = text.split("\n")
    for cut in random.Random(1).sample(range(len(lines)), 25):
        try:
            found = verdict("\n".join(lines[:cut]), entry)
        except ProgramError:
            continue
        assert found == whole


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["finally", "caught", "checks"]), st.randoms(use_true_random=False))
def test_mutated_text_gives_a_verdict_or_a_refusal(name, rng):
    text, entry = module_of(name)
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(lines))
        line = lines[i]
        at = rng.randrange(len(line) + 1)
        lines[i] = rng.choice(
            [
                line[:at],
                line[at:],
                "",
                line[:at] + rng.choice('"(){}[]%@!,:\\ x9') + line[at:],
                line[:at] + line[at + 1 :],
                rng.choice(lines),
                line.replace("i32", "i64"),
                line.replace("%", "@"),
            ]
        )
    try:
        program = read_module("\n".join(lines), entry)
    except ProgramError:
        return
    assert entry in program.functions
    solution = solve(program, contracts)
    for witness in solution.witnesses:
        assert witness.backtrace

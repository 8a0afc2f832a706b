"""Modules in contexts of their own: freed with the last of them, in whatever order."""

import gc
import os
import textwrap
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from llvmlite.binding.context import ContextRef
from numba import njit, types
from numba.core import config
from numba.extending import intrinsic

from alloccheck import analyze, hermetic
from alloccheck.compile import llvm_contexts
from alloccheck.compile.llvm_contexts import read_bitcode, read_text

TEXT = "define i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


def text(name="f", number=1):
    return TEXT.format(name=name, number=number)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def alive(monkeypatch):
    """The contexts that LLVM was not told to free, as a list of one number."""
    number = [0]
    make, dispose = llvm_contexts._Context.__init__, ContextRef._dispose

    def counted(self):
        make(self)
        number[0] += 1

    def gone(self):
        number[0] -= isinstance(self, llvm_contexts._Context)
        dispose(self)

    monkeypatch.setattr(llvm_contexts._Context, "__init__", counted)
    monkeypatch.setattr(ContextRef, "_dispose", gone)
    return number


def test_a_context_goes_with_its_last_module(alive):
    first = read_text(text("f"))
    second = read_bitcode(first.as_bitcode(), beside=first)
    third = second.clone()
    del first
    third.close()
    assert alive == [1]
    assert [one.name for one in second.functions] == ["f"]
    del second
    assert alive == [0]


def test_a_module_that_is_linked_into_another_is_gone(alive):
    module = read_text(text("f"))
    module.link_in(read_text(text("g"), beside=module))
    module.link_in(read_text(text("h"), beside=module), preserve=True)
    assert sorted(one.name for one in module.functions) == ["f", "g", "h"]
    assert alive == [1]
    module.close()
    module.close()
    assert alive == [0]


def test_cycles_of_modules_can_be_collected(alive):
    class Node:
        pass

    for number in range(200):
        one = Node()
        one.itself = one
        one.module = read_text(text("f", number))
        one.function = one.module.get_function("f")
        one.all = list(one.module.functions)
        one.other = read_text(text("g", number), beside=one.module)
        one.context = one.module._context
    del one
    gc.collect()
    assert alive == [0]


@pytest.mark.parametrize("read", [lambda: read_text("nonsense"), lambda: read_bitcode(b"nonsense")])
def test_what_cannot_be_read_leaves_no_context(alive, read):
    with pytest.raises(RuntimeError, match="parsing error"):
        read()
    gc.collect()
    assert alive == [0]
    module = read_text(text())
    with pytest.raises(RuntimeError, match="parsing error"):
        read_text("nonsense", beside=module)
    assert alive == [1]
    assert [one.name for one in module.functions] == ["f"]


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("read", [read_text, llvm.parse_assembly])
def test_a_module_of_another_context_is_copied(alive, read, preserve):
    module, other = read_text(text("f")), read(text("g"))
    module.link_in(other, preserve=preserve)
    assert other.closed is not preserve
    if preserve:
        assert [one.name for one in other.functions] == ["g"]
        other.close()
    assert alive == [1]
    assert sorted(one.name for one in module.functions) == ["f", "g"]
    module.verify()


def test_beside_a_module_of_llvmlites_own(alive):
    module = llvm.parse_assembly(text("f"))
    module.link_in(read_text(text("g"), beside=module))
    assert len(list(module.functions)) == 2
    assert alive == [0]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_locations_do_not_outlive_their_module():
    # The same in the context of the process keeps 60 bytes and more of each location.
    def located(number):
        lines = "".join(f"!{k} = !DILocation(line: {k}, column: {number}, scope: !3)\n"
                        for k in range(10, 500))  # fmt: skip
        used = "".join(f"  %v{k} = add i64 %x, {k}, !dbg !{k}\n" for k in range(10, 500))
        return (
            f"define i64 @f(i64 %x) !dbg !3 {{\n{used}  ret i64 %x\n}}\n!llvm.dbg.cu = !{{!0}}\n"
            '!llvm.module.flags = !{!1}\n!1 = !{i32 2, !"Debug Info Version", i32 3}\n'
            '!2 = !DIFile(filename: "f", directory: ".")\n'
            "!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, "
            "emissionKind: LineTablesOnly)\n"
            '!3 = distinct !DISubprogram(name: "f", file: !2, line: 1, unit: !0, '
            "spFlags: DISPFlagDefinition)\n" + lines
        )

    for number in range(20):
        read_text(located(number))
    before = resident()
    for number in range(100, 300):
        read_text(located(number))
    assert resident() - before < 200 * 490 * 20


# --- in compiles ----------------------------------------------------------------------------------


@intrinsic
def from_elsewhere(typingctx, x):
    """Calls a function of a module that llvmlite parsed into the context of the process."""

    def generate(context, builder, signature, arguments):
        library = context.active_code_library
        library.add_llvm_module(llvm.parse_assembly(text("from_elsewhere_f", 40)))
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        function = ir.Function(builder.module, kind, "from_elsewhere_f")
        return builder.call(function, arguments)

    return types.int64(types.int64), generate


def test_a_module_of_the_users_is_linked_in():
    @hermetic("int64(int64)")
    def f(x):
        return from_elsewhere(x) + 2

    assert f(1) == 43


@njit
def halves(x):
    total = 0.0
    for one in x:
        total += one / 2
    return total


def uses(x):
    kept = [x, x[1:]]
    return halves(kept[0]) + halves(kept[1])


def test_with_numbas_older_pruning_of_references(monkeypatch):
    # It parses text anew, into the context of the process.
    monkeypatch.setattr(config, "LLVM_REFPRUNE_PASS", 0)
    report = analyze(uses, "(float64[::1],)")
    assert not report.ok
    assert {one.code for one in report.findings} >= {"AC103"}


def test_the_check_runs_in_contexts_of_its_own(alive):
    names = {}
    exec(textwrap.dedent("def f(x):\n    return x * 3.25 + 1.5\n"), names)
    assert analyze(names["f"], "(float64,)").ok
    gc.collect()
    before = alive[0]
    for _ in range(5):
        exec(textwrap.dedent("def f(x):\n    return x * 3.25 + 2.5\n"), names)
        assert analyze(names["f"], "(float64,)").ok
    gc.collect()
    assert alive[0] <= before

"""Which addresses get out of a module: one use at a time, in the text of LLVM IR."""

import re

import pytest

from alloccheck.program.llvm_escapes import escaping_address

MODULE = """
@table = internal constant [2 x i64] [i64 1, i64 2]
@text = internal constant [9 x i8] c"a @table\\00"
@state = internal global i64 0
@lent.7f = internal global ptr inttoptr (i64 139 to ptr)
@outside = external global i8

declare void @keeps(ptr)
declare i32 @reads(ptr, ...)

define internal void @helper(ptr %p) {{
  ret void
}}

define i64 @f(ptr %out, i64 %i, i1 %c) {{
{body}
}}
"""


def escape(*body):
    text = MODULE.format(body="\n".join(f"  {line}" for line in body))
    return escaping_address(
        text, unretained={"reads"}, passing=re.compile("text"), lent=re.compile(r"lent\.")
    )


STAYS = {
    "called": ("call void @helper(ptr null), !dbg !3", "ret i64 0"),
    "loaded from": ("%v = load i64, ptr @table, align 8", "ret i64 %v"),
    "indexed and loaded from": (
        "%p = getelementptr inbounds [2 x i64], ptr @table, i64 0, i64 %i",
        "%q = select i1 %c, ptr %p, ptr @table",
        "%v = load i64, ptr %q, align 8",
        "ret i64 %v",
    ),
    "stored through": ("store i64 %i, ptr @state, align 8", "ret i64 0"),
    "changed atomically": (
        "%v = atomicrmw add ptr @state, i64 %i monotonic, align 8",
        "%w = cmpxchg ptr @state, i64 0, i64 %v monotonic monotonic, align 8",
        "ret i64 %v",
    ),
    "stored atomically": (
        "store atomic i64 1, ptr @state monotonic, align 8",
        "store volatile i64 1, ptr @state, align 8",
        "ret i64 0",
    ),
    "compared": ("%e = icmp eq ptr %out, @table", "br i1 %e, label %a, label %a", "ret i64 0"),
    "copied from": (
        "call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr @table, i64 16, i1 false)",
        "ret i64 0",
    ),
    "read while called": ("%r = call i32 (ptr, ...) @reads(ptr @table, ptr %out)", "ret i64 0"),
    "handed on by leave": ("store ptr @text, ptr %out, align 8", "ret i64 0"),
    "a name in a string": ('%r = call i32 @keeps2(ptr %out) ; c"@table"', "ret i64 0"),
    "not its own": ("store ptr @outside, ptr %out, align 8", "ret i64 0"),
    "lent and called": (
        "%f = load ptr, ptr @lent.7f, align 8",
        "%v = call i64 %f(i64 %i)",
        "ret i64 %v",
    ),
}
GETS_OUT = {
    "stored": ("store ptr @table, ptr %out, align 8", "ret i64 0"),
    "stored in its own data": ("store ptr @table, ptr @state, align 8", "ret i64 0"),
    "stored as part of a constant": (
        "store { ptr, i64 } { ptr @table, i64 2 }, ptr %out, align 8",
        "ret i64 0",
    ),
    "derived and stored": (
        "%p = getelementptr i8, ptr @table, i64 %i",
        "br label %b",
        "%q = phi ptr [ %p, %a ], [ null, %b ]",
        "store ptr %q, ptr %out, align 8",
        "ret i64 0",
    ),
    "derived in a loop before it is made": (
        "store ptr %q, ptr %out, align 8",
        "%q = phi ptr [ %p, %a ], [ null, %b ]",
        "%p = getelementptr i8, ptr @table, i64 %i",
        "ret i64 0",
    ),
    "returned as a number": ("%n = ptrtoint ptr @table to i64", "ret i64 %n"),
    "in a structure": (
        "%s = insertvalue { ptr, i64 } undef, ptr @table, 0",
        "store { ptr, i64 } %s, ptr %out, align 8",
        "ret i64 0",
    ),
    "given to a stranger": ("call void @keeps(ptr nonnull @table)", "ret i64 0"),
    "given to a function of the module": ("call void @helper(ptr @table)", "ret i64 0"),
    "given through a pointer": ("%v = call i64 %out(ptr @table)", "ret i64 %v"),
    "a function, given to a stranger": ("call void @keeps(ptr @helper)", "ret i64 0"),
    "a function, stored": ("store ptr @helper, ptr %out, align 8", "ret i64 0"),
    "swapped in": ("%v = atomicrmw xchg ptr %out, ptr @table monotonic", "ret i64 0"),
    "compared and swapped in": (
        "%w = cmpxchg ptr %out, ptr null, ptr @table monotonic monotonic, align 8",
        "ret i64 0",
    ),
    "lent and stored": (
        "%p = load ptr, ptr @lent.7f, align 8",
        "store ptr %p, ptr %out, align 8",
        "ret i64 0",
    ),
    "a fixed address, stored": ("store ptr inttoptr (i64 139 to ptr), ptr %out", "ret i64 0"),
    "an instruction that is not known": ("%v = newthing ptr @table", "ret i64 0"),
    "a line that is not known": ("!!! @table", "ret i64 0"),
}


@pytest.mark.parametrize("use", STAYS)
def test_an_address_that_stays(use):
    assert escape(*STAYS[use]) is None


@pytest.mark.parametrize("use", GETS_OUT)
def test_an_address_that_gets_out(use):
    assert escape(*GETS_OUT[use]) is not None


def test_it_says_where_and_which():
    assert escape("store ptr @helper, ptr %out, align 8", "ret i64 0") == (
        "store in f hands on the address of helper"
    )


@pytest.mark.parametrize(
    "line",
    [
        "@holder = internal constant ptr @table",
        "@llvm.used = appending global [1 x ptr] [ptr @f]",
        "@other = alias i64, ptr @table",
        "define void @g() personality ptr @helper {\n  ret void\n}",
    ],
)
def test_data_that_holds_an_address(line):
    assert escaping_address(MODULE.format(body="  ret i64 0") + line + "\n") is not None


def test_a_function_that_is_cut_off_is_not_understood():
    assert escaping_address("define void @g() {\n  ret void\n") == "g has no end"

"""Raise-only blocks and return codes: each rule by a program that only it decides, and all of
them against programs that are run."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alloccheck.analysis.graphs import (
    components,
    cyclic,
    dominates,
    dominators,
    reachable,
    reverse_postorder,
)
from alloccheck.analysis.paths import StatusConvention
from alloccheck.analysis.solve import solve
from alloccheck.effects import Effect, Path
from alloccheck.program.llvm import read_module
from alloccheck.program.model import (
    Block,
    Bounded,
    Call,
    CallResult,
    Constant,
    Direct,
    Edge,
    Fact,
    Function,
    OneOf,
    Opaque,
    Program,
)
from alloccheck.program.ranges import Ranges
from analysis_samples import contract, ir

OK = (0, -2, -3)


def externals(symbol):
    if symbol.startswith("site"):
        return contract(symbol, Effect.ALLOCATE)
    if symbol.startswith("positive"):
        return contract(symbol, statuses=(1, 2))
    if symbol.startswith("zero"):
        return contract(symbol, statuses=(0,))
    return contract(symbol)


def paths_of(text, **options):
    """Return the paths of each site as the solver sees them, for the function `f`."""
    solution = solve(read_module(ir(text), "f"), externals, **options)
    found = {}
    for witness in solution.witnesses:
        if witness.effect is Effect.ALLOCATE:
            found.setdefault(witness.symbol, set()).add(witness.path)
    return {symbol: next(iter(p)) if len(p) == 1 else p for symbol, p in found.items()}


DECLARE = """
declare i32 @status()
declare i32 @positive()
declare i32 @zero()
declare void @site()
declare void @site1()
declare void @site2()
declare void @clean()
"""


def f(body, more="", args="i1 %c, i32 %n"):
    lines = (line.strip() for line in body.strip().split("\n"))
    body = "".join(f"{line}\n" if line[-1] == ":" else f"  {line}\n" for line in lines)
    header = f"define i32 @f(ptr %retptr, ptr %excinfo, {args})"
    return f"{header} {{\n{body}}}\n{DECLARE}\n{ir(more)}"


# --- condition 1: no exit whose status may be normal ------------------------------------------


@pytest.mark.parametrize(
    ("status", "path"),
    [(1, Path.RAISE), (-1, Path.RAISE), (0, Path.RETURN), (-2, Path.RETURN), (-3, Path.RETURN)],
)
def test_a_constant_status_decides(status, path):
    text = f(f"""
      br i1 %c, label %a, label %b
    a:
      call void @site()
      ret i32 {status}
    b:
      ret i32 0
    """)
    assert paths_of(text) == {"site": path}


@pytest.mark.parametrize(
    ("callee", "path"),
    [("status", Path.RETURN), ("positive", Path.RAISE), ("zero", Path.RETURN)],
)
def test_a_forwarded_status_is_what_the_callee_can_return(callee, path):
    text = f(f"""
      %s = call i32 @{callee}()
      call void @site()
      ret i32 %s
    """)
    assert paths_of(text) == {"site": path}


def test_dominating_facts_narrow_a_forwarded_status():
    text = f("""
      %s = call i32 @status()
      switch i32 %s, label %bad [
        i32 0, label %ok
        i32 -2, label %ok
        i32 -3, label %ok
      ]
    ok:
      call void @site1()
      ret i32 %s
    bad:
      call void @site()
      br label %out
    out:
      ret i32 %s
    """)
    assert paths_of(text) == {"site": Path.RAISE, "site1": Path.RETURN}


def test_facts_that_leave_one_normal_code_open_do_not_suffice():
    text = f("""
      %s = call i32 @status()
      %z = icmp eq i32 %s, 0
      br i1 %z, label %ok, label %bad
    ok:
      ret i32 0
    bad:
      call void @site()
      ret i32 %s
    """)
    assert paths_of(text) == {"site": Path.RETURN}


def test_a_range_check_narrows():
    text = f("""
      %s = call i32 @status()
      %t = add i32 %s, 3
      %z = icmp ult i32 %t, 4
      br i1 %z, label %ok, label %bad
    ok:
      ret i32 0
    bad:
      call void @site()
      ret i32 %s
    """)
    assert paths_of(text) == {"site": Path.RAISE}


def test_a_select_is_narrowed_by_its_condition():
    text = f("""
      %s = call i32 @positive()
      %z = icmp eq i32 %s, 1
      %t = select i1 %z, i32 5, i32 %s
      %y = icmp eq i32 %t, 1
      br i1 %y, label %never, label %bad
    never:
      call void @site()
      ret i32 0
    bad:
      call void @site1()
      ret i32 %t
    """)
    assert paths_of(text) == {"site1": Path.RAISE}


def test_an_undefined_status_may_be_anything():
    text = f("""
      call void @site()
      ret i32 undef
    """)
    assert paths_of(text) == {"site": Path.RETURN}


# --- condition 2: the merged return block -----------------------------------------------------

MERGED = """
  br i1 %c, label %a, label %b
a:
  call void @site1()
  br label %out
b:
  br label %out
out:
  %r = phi i32 [ 1, %a ], [ {other}, %b ]
  call void @site()
  ret i32 %r
"""


def test_a_merged_return_block_runs_on_both_paths_but_spoils_neither():
    assert paths_of(f(MERGED.format(other=0))) == {"site1": Path.RAISE, "site": Path.RETURN}


def test_a_merged_return_block_that_no_normal_edge_enters_is_raise_only():
    assert paths_of(f(MERGED.format(other=2))) == {"site1": Path.RAISE, "site": Path.RAISE}


def test_edges_are_told_apart_through_phis_of_phis():
    text = f("""
      br i1 %c, label %a, label %b
    a:
      call void @site()
      br label %inner
    b:
      br label %inner
    inner:
      %q = phi i32 [ 1, %a ], [ 0, %b ]
      br label %out
    out:
      %r = phi i32 [ %q, %inner ]
      ret i32 %r
    """)
    assert paths_of(text) == {"site": Path.RAISE}


# --- condition 3: no cycle --------------------------------------------------------------------

LOOP = """
  br i1 %c, label %loop, label %ok
loop:
  {first}
  %s = call i32 @status()
  %z = icmp eq i32 %s, 0
  br i1 %z, label %bad, label %{back}
bad:
  call void @site1()
  ret i32 1
ok:
  ret i32 0
"""


def test_a_block_in_a_cycle_counts_although_only_raising_ends_it():
    text = f(LOOP.format(first="call void @site()", back="loop"))
    assert paths_of(text) == {"site": Path.DIVERGE, "site1": Path.RAISE}


def test_the_same_block_without_the_cycle_is_raise_only():
    text = f(LOOP.format(first="call void @site()", back="bad"))
    assert paths_of(text) == {"site": Path.RAISE, "site1": Path.RAISE}


# --- condition 4: no loop without exit --------------------------------------------------------

TRAP = """
  br i1 %c, label %a, label %ok
a:
  call void @site()
  br i1 %d, label %forever, label %bad
forever:
  br label %{after}
bad:
  ret i32 1
ok:
  ret i32 0
"""


@pytest.mark.parametrize(("after", "path"), [("forever", Path.DIVERGE), ("bad", Path.RAISE)])
def test_a_block_that_may_enter_a_loop_without_exit_counts(after, path):
    assert paths_of(f(TRAP.format(after=after), args="i1 %c, i1 %d")) == {"site": path}


@pytest.mark.parametrize(("label", "path"), [("again", Path.DIVERGE), ("end", Path.RAISE)])
def test_a_callee_that_may_never_end_counts_as_such_a_loop(label, path):
    more = f"""
    define void @h(i1 %c) {{
      br i1 %c, label %again, label %end
    again:
      br label %{label}
    end:
      ret void
    }}
    """
    text = f(
        """
      br i1 %c, label %a, label %ok
    a:
      call void @site()
      call void @h(i1 %c)
      ret i32 1
    ok:
      ret i32 0
    """,
        more,
    )
    assert paths_of(text) == {"site": path}


def test_a_loop_that_only_an_impossible_edge_leaves_is_endless():
    text = f("""
      br label %loop
    loop:
      call void @site()
      %s = call i32 @zero()
      %z = icmp eq i32 %s, 0
      br i1 %z, label %loop, label %end
    end:
      call void @site1()
      ret i32 0
    """)
    assert paths_of(text) == {"site": Path.DIVERGE}


# --- across calls -----------------------------------------------------------------------------

CALLEE = """
define i32 @g(ptr %retptr, ptr %excinfo, i1 %c) {
  br i1 %c, label %a, label %b
a:
  call void @site()
  ret i32 1
b:
  ret i32 0
}
"""
ENDLESS = """
define void @endless(i1 %c) {
  br i1 %c, label %again, label %end
again:
  br label %again
end:
  ret void
}
"""
CALL = "%s = call i32 @g(ptr %retptr, ptr %excinfo, i1 %c)"


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("  ret i32 %s", Path.RAISE),
        ("  ret i32 0", Path.RETURN),  # the status is ignored: caught
        (
            """  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  ret i32 %s""",
            Path.RAISE,
        ),
        (
            """  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  br i1 %d, label %ok, label %worse
worse:
  ret i32 1""",
            Path.RETURN,
        ),
        (
            """  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  br label %bad""",
            Path.DIVERGE,
        ),
        (
            """  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  br i1 %d, label %bad, label %worse
worse:
  ret i32 1""",
            Path.DIVERGE,
        ),
        (
            """  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  call void @endless(i1 %d)
  ret i32 1""",
            Path.DIVERGE,
        ),
        ("  call void @endless(i1 %d)\n  ret i32 %s", Path.DIVERGE),
        (
            """  %z = icmp eq i32 %s, 0
  %r = select i1 %z, i32 0, i32 1
  ret i32 %r""",
            Path.RAISE,
        ),
        (
            """  %z = icmp eq i32 %s, 1
  br i1 %z, label %ok, label %bad
ok:
  ret i32 0
bad:
  ret i32 %s""",
            Path.RETURN,
        ),
    ],
    ids="forwarded ignored tested caught endless looping calls-endless endless-later select "
    "only-error-caught".split(),
)
def test_what_a_callee_does_while_raising(rest, path):
    more = CALLEE + ENDLESS
    assert paths_of(f(f"  {CALL}\n{rest}\n", more, "i1 %c, i1 %d")) == {"site": path}


def test_an_error_inside_a_loop_that_leaves_it_is_raise_only():
    text = f(
        f"""
      br label %loop
    loop:
      {CALL}
      %z = icmp eq i32 %s, 0
      br i1 %z, label %next, label %bad
    next:
      br i1 %d, label %loop, label %ok
    ok:
      ret i32 0
    bad:
      ret i32 %s
    """,
        CALLEE,
        "i1 %c, i1 %d",
    )
    assert paths_of(text) == {"site": Path.RAISE}


def test_a_retry_loop_counts():
    text = f(
        f"""
      br label %loop
    loop:
      {CALL}
      %z = icmp eq i32 %s, 0
      br i1 %z, label %bad, label %loop
    bad:
      ret i32 1
    """,
        CALLEE,
        "i1 %c, i1 %d",
    )
    assert paths_of(text) == {"site": Path.DIVERGE}


def test_a_branch_that_no_status_of_the_callee_takes_never_runs():
    more = """
    define i32 @g(ptr %retptr, ptr %excinfo, i1 %c) {
      ret i32 0
    }
    """
    text = f(
        f"""
      {CALL}
      %z = icmp eq i32 %s, 0
      br i1 %z, label %ok, label %bad
    ok:
      call void @site1()
      ret i32 0
    bad:
      call void @site()
      ret i32 1
    """,
        more,
    )
    assert paths_of(text) == {"site1": Path.RETURN}


def test_codes_of_recursive_functions_are_found():
    more = """
    define i32 @g(ptr %retptr, ptr %excinfo, i1 %c) {
      br i1 %c, label %a, label %b
    a:
      %s = call i32 @h(ptr %retptr, ptr %excinfo, i1 %c)
      ret i32 %s
    b:
      ret i32 0
    }
    define i32 @h(ptr %retptr, ptr %excinfo, i1 %c) {
      br i1 %c, label %a, label %b
    a:
      %s = call i32 @g(ptr %retptr, ptr %excinfo, i1 %c)
      ret i32 %s
    b:
      ret i32 LAST
    }
    """
    body = f"""
      {CALL}
      %z = icmp sgt i32 %s, 0
      br i1 %z, label %bad, label %ok
    ok:
      ret i32 0
    bad:
      call void @site()
      ret i32 1
    """
    assert paths_of(f(body, more.replace("LAST", "-2"))) == {}
    assert paths_of(f(body, more.replace("LAST", "3"))) == {"site": Path.RAISE}


# --- the convention ---------------------------------------------------------------------------


def test_a_loop_that_seems_endless_while_a_recursive_callee_returns_nothing():
    again = "ptr %retptr, ptr %excinfo, i1 %c, i32 %n"
    text = f(f"""
      br label %spin
    spin:
      %p = phi i32 [ 0, %0 ], [ %v, %call ]
      %again = icmp eq i32 %p, 0
      br i1 %again, label %call, label %out
    call:
      call void @site()
      %v = call i32 @g({again})
      br label %spin
    out:
      ret i32 %p
    """)
    text += f"""
define i32 @g({again}) {{
  %z = call i32 @zero()
  %never = icmp eq i32 %z, 5
  br i1 %never, label %a, label %b
a:
  %w = call i32 @f({again})
  ret i32 %w
b:
  ret i32 1
}}
"""
    assert paths_of(text) == {"site": Path.DIVERGE}


def test_what_an_inlined_callee_said_is_known_at_the_branch_after_more_code():
    text = f("""
      br i1 %c, label %failed, label %fine
    failed:
      call void @site1()
      br label %end
    fine:
      call void @site2()
      br label %end
    end:
      %ok = phi i1 [ false, %failed ], [ true, %fine ]
      call void @site()
      br label %later
    later:
      br i1 %ok, label %go, label %stop
    go:
      ret i32 0
    stop:
      ret i32 1
    """)
    assert paths_of(text) == {"site1": Path.RAISE, "site2": Path.RETURN, "site": Path.RETURN}


def test_a_bit_of_an_earlier_turn_says_nothing():
    text = f("""
      br label %head
    head:
      %first = phi i1 [ true, %0 ], [ false, %next ]
      call void @site()
      br i1 %first, label %next, label %out
    next:
      call void @site1()
      br label %head
    out:
      ret i32 0
    """)
    assert paths_of(text) == {"site": Path.RETURN, "site1": Path.RETURN}


def test_an_integer_that_is_no_status_says_nothing():
    text = """
    define i32 @f(ptr %x, ptr %y) {
      call void @site()
      ret i32 1
    }
    declare void @site()
    """
    assert paths_of(text) == {"site": Path.RETURN}
    named = StatusConvention(functions=frozenset({"f"}))
    assert paths_of(text, convention=named) == {"site": Path.RAISE}


def test_parameter_names_may_carry_a_number():
    text = f("""
      call void @site()
      ret i32 1
    """)
    numbered = text.replace("%retptr", "%retptr.1").replace("%excinfo", "%excinfo.12")
    assert paths_of(numbered) == {"site": Path.RAISE}
    assert paths_of(text.replace("%excinfo", "%excinfos")) == {"site": Path.RETURN}


def test_a_status_that_nobody_vouches_for_may_be_an_error():
    text = "define i32 @f(ptr %x) {{\n  ret i32 {}\n}}\n"
    assert solve(read_module(text.format(1), "f"), externals).may_raise
    assert not solve(read_module(text.format(0), "f"), externals).may_raise


def test_the_codes_are_the_conventions():
    text = f("""
      call void @site()
      ret i32 7
    """)
    assert paths_of(text) == {"site": Path.RAISE}
    seven = StatusConvention(ok=frozenset({7}))
    assert paths_of(text, convention=seven) == {"site": Path.RETURN}


WRAPPER = """
define double @f(double %x) {
  %s = call i32 @g(ptr null, ptr null, i1 true)
  %z = icmp eq i32 %s, 0
  br i1 %z, label %ok, label %bad
ok:
  ret double %x
bad:
  call void @site2()
  br label %ok
}
declare void @site2()
declare void @site()
"""


def test_a_wrapper_raises_when_its_callee_does():
    text = WRAPPER + CALLEE
    assert paths_of(text) == {"site": Path.RETURN, "site2": Path.RETURN}
    wrapper = StatusConvention(wrappers=frozenset({"f"}))
    assert paths_of(text, convention=wrapper) == {"site": Path.RAISE, "site2": Path.RAISE}


def test_blocks_before_the_death_of_the_process_are_noted():
    text = ir("""
    define i32 @f(ptr %retptr, ptr %excinfo, i1 %c) {
      br i1 %c, label %a, label %ok
    a:
      call void @site()
      br label %b
    b:
      call void @abort()
      REST
    ok:
      ret i32 0
    }
    declare void @site()
    declare void @abort()
    """)

    def table(symbol):
        die = contract(symbol, path=Path.DIVERGE)
        return die if symbol == "abort" else externals(symbol)

    for rest in ("unreachable", "ret i32 0", "br label %b"):
        solution = solve(read_module(text.replace("REST", rest), "f"), table)
        assert solution.witnesses == ()
        assert solution.noted == ("abort", "site")
    for unknown in ("site", "site()\n  call void %retptr"):
        undecided = text.replace("call void @site()", f"call void @{unknown}()")
        strange = lambda symbol: None if symbol == "site" else table(symbol)
        dying = undecided.replace("REST", "unreachable")
        found = solve(read_module(dying, "f"), strange).witnesses
        assert {w.path for w in found} == {Path.DIVERGE}
        effects = {Effect.UNKNOWN} | ({Effect.DISPATCH} if "retptr" in unknown else set())
        assert {w.effect for w in found} == effects
    alive = text.replace("abort", "clean").replace("REST", "unreachable")
    solution = solve(read_module(alive, "f"), table)
    assert [w.path for w in solution.witnesses] == [Path.DIVERGE]


def hand_built(facts, values, returns):
    """A function as a reader of machine code makes it: `s` is what the first call returned."""
    blocks = (
        Block(0, "", (Edge(1, facts), Edge(2)), (0,)),
        Block(1, "", (), (1,), exits=True, returns=returns),
        Block(2, "", (), (), exits=True, returns="zero"),
    )
    calls = (Call(0, 0, Direct("status")), Call(1, 1, Direct("site")))
    values = {"s": CallResult(0), "zero": Constant(0), **values}
    function = Function("f", blocks, calls, values, has_status=True)
    return Program({"f": function}, frozenset(), frozenset(), lambda key: (), "f")


@pytest.mark.parametrize(
    ("facts", "values", "returns", "path"),
    [
        ((Fact("s", True, 5),), {}, "s", Path.RAISE),
        ((Fact("s", False, 0),), {}, "s", Path.RETURN),
        (tuple(Fact("s", False, c) for c in OK), {}, "s", Path.RAISE),
        ((Fact("s", True, 5), Fact("s", False, 5)), {}, "s", None),
        ((), {"five": Constant(5), "x": OneOf(("five", "zero"))}, "x", Path.RETURN),
        ((Fact("s", True, 5),), {"six": Constant(6), "x": OneOf(("s", "six"))}, "x", Path.RAISE),
        ((), {"x": Bounded(Ranges.span(1, 9))}, "x", Path.RAISE),
        ((), {"x": Opaque()}, "x", Path.RETURN),
        ((), {}, None, Path.RETURN),
        ((), {}, "never described", Path.RETURN),
    ],
)
def test_graphs_of_other_readers(facts, values, returns, path):
    convention = StatusConvention(functions=frozenset({"f"}))
    found = solve(hand_built(facts, values, returns), externals, convention=convention)
    paths = [w.path for w in found.witnesses if w.effect is Effect.ALLOCATE]
    assert paths == ([] if path is None else [path])


# --- against running programs -----------------------------------------------------------------


class Made:
    """A random function over statuses that can be printed as IR and run."""

    def __init__(self, rng, name, callees):
        self.name, self.rng = name, rng
        self.count = rng.randint(2, 7)
        self.blocks = []
        ends = [self._end(rng) for _ in range(self.count)]
        self.preds = {b: [] for b in range(self.count)}
        for b, end in enumerate(ends):
            for target in dict.fromkeys(end["targets"]):
                self.preds[target].append(b)
        for b in range(self.count):
            callee = rng.choice([*callees, *callees, "status"])
            site = rng.random() < 0.8
            self.blocks.append({"callee": callee, "site": site, "phi": None, "bit": None})
        for b, block in enumerate(self.blocks):
            if self.preds[b] and rng.random() < 0.7:
                block["phi"] = {p: rng.choice([str(rng.randint(-3, 3)), f"%v{p}", "%e"])
                                for p in self.preds[b]}  # fmt: skip
        for b, block in enumerate(self.blocks):
            if self.preds[b] and rng.random() < 0.5:
                some = ["true", "false", "true", "false"]
                block["bit"] = {p: rng.choice([*some, self._bit(p, ends)]) for p in self.preds[b]}
        above = dominators([end["targets"] for end in ends])
        for b, (block, end) in enumerate(zip(self.blocks, ends, strict=True)):
            # What a block that dominates this one has made can be used here, however much later.
            seen = [d for d in range(self.count) if b in above and dominates(above, d, b)]
            bits = [f"%q{d}" for d in seen if self.blocks[d]["bit"]]
            if end["kind"] == "cond" and bits and rng.random() < 0.5:
                end["bit"] = rng.choice(bits)
            names = [f"%v{d}" for d in seen] + [f"%p{d}" for d in seen if self.blocks[d]["phi"]]
            later = [rng.choice(names)] if names else []
            names = [f"%v{b}", "%e", *([f"%p{b}"] if block["phi"] else []), *later]
            end["value"] = rng.choice(names + ([str(rng.randint(-3, 3))] * (end["kind"] == "ret")))
            block["end"] = end

    def _bit(self, p, ends):
        """A bit that is known at the end of a block."""
        return f"%c{p}" if ends[p]["kind"] == "cond" else "true"

    def _end(self, rng):
        kind = rng.choice(["br", "cond", "cond", "switch", "ret", "ret"])
        pick = lambda: rng.randrange(self.count)
        if kind == "br":
            return {"kind": kind, "targets": [pick()]}
        if kind == "cond":
            predicate = rng.choice("eq ne slt sgt ult ugt sle sge".split())
            shape = rng.choice(["plain", "plain", "add", "select", "not"])
            return {
                "kind": kind,
                "targets": [pick(), pick()],
                "predicate": predicate,
                "constant": rng.randint(-3, 3),
                "shape": shape,
                "offset": rng.randint(-2, 2),
            }
        if kind == "switch":
            keys = rng.sample(range(-3, 4), rng.randint(1, 3))
            return {"kind": kind, "targets": [pick() for _ in range(len(keys) + 1)], "keys": keys}
        return {"kind": "ret", "targets": []}

    def text(self):
        lines = [f"define i32 @{self.name}(ptr %retptr, ptr %excinfo) {{", "start:"]
        lines += ["  %e = call i32 @status()", "  br label %b0"]
        for b, block in enumerate(self.blocks):
            lines.append(f"b{b}:")
            preds = self.preds[b] + ([-1] if b == 0 else [])
            if block["phi"]:
                incoming = [
                    f"[ {block['phi'].get(p, '%e')}, %{'start' if p < 0 else f'b{p}'} ]"
                    for p in preds
                ]
                lines.append(f"  %p{b} = phi i32 {', '.join(incoming)}")
            if block["bit"]:
                incoming = [
                    f"[ {block['bit'].get(p, 'true')}, %{'start' if p < 0 else f'b{p}'} ]"
                    for p in preds
                ]
                lines.append(f"  %q{b} = phi i1 {', '.join(incoming)}")
            arguments = "" if block["callee"] == "status" else "ptr %retptr, ptr %excinfo"
            lines.append(f"  %v{b} = call i32 @{block['callee']}({arguments})")
            if block["site"]:
                lines.append(f"  call void @site_{self.name}_{b}()")
            end = block["end"]
            value, targets = end["value"], [f"label %b{t}" for t in end["targets"]]
            if end["kind"] == "ret":
                lines.append(f"  ret i32 {value}")
            elif end["kind"] == "br":
                lines.append(f"  br {targets[0]}")
            elif end["kind"] == "switch":
                cases = [f"    i32 {k}, {t}" for k, t in zip(end["keys"], targets[1:], strict=True)]
                lines.append(f"  switch i32 {value}, {targets[0]} [")
                lines += [*cases, "  ]"]
            else:
                if end["shape"] == "add":
                    lines.append(f"  %a{b} = add i32 {value}, {end['offset']}")
                    value = f"%a{b}"
                elif end["shape"] == "select":
                    lines.append(f"  %k{b} = icmp eq i32 {value}, {end['offset']}")
                    lines.append(f"  %a{b} = select i1 %k{b}, i32 0, i32 {value}")
                    value = f"%a{b}"
                lines.append(f"  %c{b} = icmp {end['predicate']} i32 {value}, {end['constant']}")
                condition = end.get("bit", f"%c{b}")
                if end["shape"] == "not":
                    lines.append(f"  %n{b} = xor i1 {condition}, true")
                    condition = f"%n{b}"
                lines.append(f"  br i1 {condition}, {targets[0]}, {targets[1]}")
        return "\n".join([*lines, "}", ""])

    def run(self, made, rng, sites, budget):
        """Return the status of one run, or None when it did not end; note the sites it ran."""
        values = {"%e": rng.randint(-3, 3), "true": True, "false": False}
        get = lambda name: values[name] if name[0] == "%" else int(name)
        before, b = -1, 0
        while True:
            budget[0] -= 1
            if budget[0] < 0:
                return None
            block = self.blocks[b]
            moved = {}
            if block["phi"]:
                moved[f"%p{b}"] = get(block["phi"].get(before, "%e"))
            if block["bit"]:
                moved[f"%q{b}"] = values[block["bit"].get(before, "true")]
            values |= moved
            if block["callee"] == "status":
                values[f"%v{b}"] = rng.randint(-3, 3)
            else:
                values[f"%v{b}"] = made[block["callee"]].run(made, rng, sites, budget)
                if values[f"%v{b}"] is None:
                    return None
            if block["site"]:
                sites.append(f"site_{self.name}_{b}")
            end = block["end"]
            x = get(end["value"])
            before = b
            if end["kind"] == "ret":
                return x
            if end["kind"] == "br":
                b = end["targets"][0]
            elif end["kind"] == "switch":
                at = end["keys"].index(x) + 1 if x in end["keys"] else 0
                b = end["targets"][at]
            else:
                if end["shape"] == "add":
                    x += end["offset"]
                elif end["shape"] == "select":
                    x = 0 if x == end["offset"] else x
                y, predicate = end["constant"], end["predicate"]
                if predicate[0] == "u":
                    x, y = x % 2**32, y % 2**32
                truth = {"eq": x == y, "ne": x != y, "lt": x < y, "gt": x > y,
                         "le": x <= y, "ge": x >= y}[predicate[-2:]]  # fmt: skip
                values[f"%c{b}"] = truth
                truth = values[end["bit"]] if "bit" in end else truth
                b = end["targets"][0 if truth != (end["shape"] == "not") else 1]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_no_run_contradicts_the_verdict(seed):
    rng = random.Random(seed)
    recursive = rng.random() < 0.3
    made = {
        "h": Made(rng, "h", ["g"] if recursive else []),
        "g": Made(rng, "g", ["h"]),
        "f": Made(rng, "f", ["g", "h"]),
    }
    text = "".join(m.text() for m in made.values()) + "declare i32 @status()\n"
    for m in made.values():
        text += "".join(f"declare void @site_{m.name}_{b}()\n" for b in range(m.count))
    solution = solve(read_module(text, "f"), externals)
    paths = {}
    for witness in solution.witnesses:
        if witness.effect is Effect.ALLOCATE:
            paths.setdefault(witness.symbol, set()).add(witness.path)
    for _ in range(40):
        sites = []
        status = made["f"].run(made, rng, sites, [60])
        assert status is None or status in OK or solution.may_raise
        for site in set(sites):
            assert site in paths, f"{site} ran"
            if status in OK:
                # A site in a loop counts as one that may run without end.
                assert paths[site] != {Path.RAISE}, f"{site} ran and {status} was returned"
        for site in sites:
            if paths[site] == {Path.RAISE} and site.startswith("site_f"):
                assert sites.count(site) == 1, f"{site} ran twice"


# --- graphs -----------------------------------------------------------------------------------

graphs = st.integers(1, 7).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n)
)


@given(graphs)
def test_graphs_against_their_definitions(graph):
    n = len(graph)
    reach = [reachable(graph, [i]) for i in range(n)]
    order = reverse_postorder(graph)
    assert sorted(order) == sorted(reach[0])
    above = dominators(graph)
    assert set(above) == reach[0]
    for upper in range(n):
        without = [
            [] if i == upper else [t for t in ts if t != upper] for i, ts in enumerate(graph)
        ]
        left = set() if upper == 0 else reachable(without, [0])
        for lower in range(n):
            truth = lower in reach[0] and upper in reach[0] and lower not in left
            assert dominates(above, upper, lower) == truth
    found = components(graph)
    assert sorted(x for c in found for x in c) == list(range(n))
    place = {x: i for i, c in enumerate(found) for x in c}
    for a in range(n):
        for b in range(n):
            assert (place[a] == place[b]) == (b in reach[a] and a in reach[b])
            if b in reach[a]:
                assert place[b] <= place[a]
    loops = {a for a in range(n) if any(a in reach[t] for t in graph[a])}
    assert cyclic(graph) == loops


def test_deep_graphs_do_not_overflow_the_stack():
    chain = [[i + 1] for i in range(20_000)] + [[0]]
    assert len(components(chain)) == 1
    assert reverse_postorder(chain) == list(range(20_001))

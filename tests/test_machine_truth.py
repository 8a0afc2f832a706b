"""Functions with effects known by construction, at every optimisation level."""

import ctypes
import os
import subprocess

import pytest

from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect
from alloccheck.effects import Path as Way
from alloccheck.program.machine.walk import Walker, to_program
from truth_builds import SOURCES, address, differences, expectations, seen

BUILDS = [
    # What the matrix leaves out: a stack check everywhere, no symbols, no unwind information, and
    # calls that are bound when they are first made.
    ("-O2", "-fstack-protector-all"),
    ("-O2", "-flto", "-s"),
    # (Without it, code that was moved elsewhere is not known to belong to its function.)
    ("-O2", "-fno-asynchronous-unwind-tables", "-fno-reorder-blocks-and-partition"),
    ("-O2", "-fplt", "-Wl,-z,lazy"),
]


def build(source, directory, compiler, flags):
    output = directory / "truth.so"
    options = ["-w", "-fPIC", "-shared", "-Wl,-z,now", *flags]
    command = [compiler, *options, str(SOURCES / source), "-o", str(output), "-lm"]
    subprocess.run(command, check=True)
    opener = ctypes.CDLL(None).dlopen
    opener.restype, opener.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    # The function ctypes would use binds every call at once.
    handle = opener(str(output).encode(), os.RTLD_LAZY)
    return ctypes.CDLL(str(output), handle=handle)


@pytest.fixture(scope="module")
def optimised(tmp_path_factory):
    """The C functions at -O2, and the file that they are in."""
    directory = tmp_path_factory.mktemp("truth")
    return build("truth.c", directory, "gcc", ("-O2",)), directory / "truth.so"


@pytest.mark.parametrize("flags", BUILDS, ids=" ".join)
def test_effects_of_c_functions_are_exact(flags, tmp_path):
    library = build("truth.c", tmp_path, "gcc", flags)
    decider = Decider()
    wrong = {}
    for name, expected in expectations("truth.c").items():
        answer = decider.decide(address(library, name))
        found = {e for e in seen(answer) if not e.endswith("/first call")}
        if any(differences(expected, found)):
            wrong[name] = (expected, found)
    assert not wrong


def test_calls_bound_when_first_made_allocate_then(tmp_path):
    library = build("truth.c", tmp_path, "gcc", ("-O2", "-fplt", "-Wl,-z,lazy"))
    answer = Decider().decide(address(library, "library"))
    assert "allocate/first call" in seen(answer)
    assert not answer.effects_after(first_call=True)


TLS = """
__thread char large[1 << 16];
char take(int n) { return large[n & 0xffff]++; }
"""


@pytest.mark.parametrize("dialect", ["gnu", "gnu2"])
def test_thread_local_variables_of_both_dialects_allocate_once_per_thread(dialect, tmp_path):
    (tmp_path / "tls.c").write_text(TLS)
    library = build(tmp_path / "tls.c", tmp_path, "gcc", ("-O2", f"-mtls-dialect={dialect}"))
    found = seen(Decider().decide(address(library, "take")))
    assert "allocate/first call per thread" in found or "allocate" in found, found


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",)], ids=" ".join)
def test_handlers_count_when_something_may_throw(flags, tmp_path):
    library = build("truth.cpp", tmp_path, "g++", flags)
    answer = Decider().decide(address(library, "caught"))
    reached = [w for w in answer.witnesses if w.symbol == "realloc"]
    assert reached and any("(handler)" in step for step in reached[0].trail)
    assert Decider().decide(address(library, "never_thrown")).effects == frozenset()


def test_program_graph_of_a_switch_reaches_its_allocating_case(optimised):
    library, _ = optimised
    walker = Walker()
    entry = address(library, "dense_allocating")
    program = to_program(walker.explore(entry, stop=lambda a, image: "libc" in str(image)), walker)
    assert any("malloc" in name for name in program.externals)
    function = program.functions["truth.so!dense_allocating"]
    assert all(edge.target < len(function.blocks) for b in function.blocks for edge in b.edges)
    assert any(block.exits for block in function.blocks)
    assert walker.locate(entry)[0].function == "dense_allocating"


def test_witness_leads_down_to_the_allocator(optimised):
    library, _ = optimised
    answer = Decider().decide(address(library, "indirect"))
    witness = next(w for w in answer.witnesses if w.effect is Effect.ALLOCATE)
    assert witness.trail[0] == "truth.so!indirect"
    assert witness.trail[-1] == "libc.so.6!malloc"
    assert [name.partition("!")[2].partition(".")[0] for name in witness.trail[1:-1]] in (
        ["middle", "grow"],
        ["grow"],
    )


def test_without_names_the_walk_finds_the_system_call(optimised):
    library, _ = optimised
    answer = Decider(names=False).decide(address(library, "indirect"))
    reached = {w.symbol for w in answer.witnesses if w.effect is Effect.ALLOCATE}
    assert {"system call mmap", "system call brk"} <= reached


def test_death_is_noted_and_not_forbidden(optimised):
    library, _ = optimised
    answer = Decider().decide(address(library, "dying_words"))
    assert answer.effects == frozenset()
    assert any("abort" in death for death in answer.deaths)
    assert {w.path for w in answer.witnesses} == {Way.DIVERGE}


def test_accepted_pointer_becomes_an_assumption(optimised):
    library, _ = optimised
    entry = address(library, "writable_table")
    refused = Decider().decide(entry)
    slots = {w.symbol for w in refused.witnesses if w.effect is Effect.DISPATCH}
    assert len(slots) == 4
    accepted = Decider(accept=frozenset(slots)).decide(entry)
    assert accepted.effects == frozenset()
    named = {a.subject for a in accepted.evidence.assumptions if a.name == "pointers"}
    assert named == slots


def test_stripped_library_is_decided_like_the_full_one(optimised, tmp_path):
    library, full = optimised
    bare = tmp_path / "bare.so"
    subprocess.run(["strip", "-o", str(bare), str(full)], check=True)
    stripped = ctypes.CDLL(str(bare))
    decider = Decider()
    for name in ("indirect", "constant_table", "dense_allocating", "argument", "cold_case"):
        a, b = (decider.decide(address(lib, name)) for lib in (library, stripped))
        assert seen(a) == seen(b), name

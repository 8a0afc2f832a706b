"""Functions with effects known by construction, at every optimisation level."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect, Occasion
from alloccheck.effects import Path as Way
from alloccheck.program.machine.walk import Walker, to_program

SOURCES = Path(__file__).parent / "native_sources"
EXPECTATION = re.compile(r"^EXPECT\(([^)]*)\)[^(]*?(\w+)\(", re.M)
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
BUILDS = [
    ("-O2",),
    ("-O0",),
    ("-O3", "-fcf-protection=full", "-fno-plt"),
    ("-Os",),
    ("-O2", "-flto", "-s"),
    ("-O2", "-fstack-protector-all"),
]


def expectations(source):
    found = EXPECTATION.findall((SOURCES / source).read_text())
    assert len(found) > 5
    return {name: {part.strip() for part in effects.split(",")} for effects, name in found}


def build(source, directory, compiler, flags):
    output = directory / f"{Path(source).stem}.so"
    options = [*flags, "-w", "-fPIC", "-shared", "-Wl,-z,now"]
    command = [compiler, *options, str(SOURCES / source), "-o", str(output), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(output))


@pytest.fixture(scope="module")
def optimised(tmp_path_factory):
    """The C functions at -O2, and the file that they are in."""
    directory = tmp_path_factory.mktemp("truth")
    return build("truth.c", directory, COMPILERS[0], ("-O2",)), directory / "truth.so"


def seen(answer):
    """Effects outside process death, with the occasion when that is not every call."""
    return {
        w.effect.value + ("" if w.occasion is Occasion.EVERY_CALL else f"/{w.occasion.value}")
        for w in answer.witnesses
        if w.path is not Way.DIVERGE
    }


def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def missing(expected, found):
    """Expected effects that were not found; `allocate` also counts when per thread only."""
    if expected == {"clean"}:
        return set()
    return {e for e in expected if e not in found and not any(f.startswith(e + "/") for f in found)}


@pytest.mark.parametrize("flags", BUILDS, ids=" ".join)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_effects_of_c_functions_are_exact(compiler, flags, tmp_path):
    library = build("truth.c", tmp_path, compiler, flags)
    decider = Decider()
    wrong = {}
    for name, expected in expectations("truth.c").items():
        found = seen(decider.decide(address(library, name)))
        extra = {f.partition("/")[0] for f in found} - {e.partition("/")[0] for e in expected}
        if missing(expected - {"more"}, found) or (extra and "more" not in expected):
            wrong[name] = (expected, found)
    assert not wrong


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",)], ids=" ".join)
def test_effects_of_cpp_functions_are_found(flags, tmp_path):
    library = build("truth.cpp", tmp_path, "g++", flags)
    decider = Decider()
    for name, expected in expectations("truth.cpp").items():
        found = seen(decider.decide(address(library, name)))
        assert not missing(expected, found), (name, found)
        if expected == {"clean"}:
            assert not found, (name, found)


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


RUST = """
#[no_mangle] pub extern "C" fn plain(x: f64) -> f64 { x * 2.0 + 1.0 }
#[no_mangle] pub extern "C" fn boxed(x: f64) -> *mut f64 { Box::into_raw(Box::new(x)) }
#[no_mangle] pub extern "C" fn checked(p: &[f64; 8], i: usize) -> f64 { p[i] }
#[derive(Clone, Copy)] #[repr(u8)] pub enum Kind { A, B, C, D, E, F }
#[no_mangle] pub extern "C" fn matched(k: Kind, x: f64) -> f64 {
    match k {
        Kind::A => x.sin(), Kind::B => x.cos() + 1.0, Kind::C => x.exp() * x,
        Kind::D => x.ln() - 2.0, Kind::E => x.tan() / 3.0, Kind::F => x.atan() + 7.0,
    }
}
"""


@pytest.mark.parametrize("rustc", [path for path in [shutil.which("rustc")] if path])
def test_effects_of_rust_functions(rustc, tmp_path):
    source, output = tmp_path / "truth.rs", tmp_path / "rust.so"
    source.write_text(RUST)
    command = [rustc, "-O", "--crate-type", "cdylib", "-C", "panic=abort", str(source)]
    subprocess.run([*command, "-o", str(output)], check=True, capture_output=True)
    library = ctypes.CDLL(str(output))
    decider = Decider()
    assert not decider.decide(address(library, "plain")).effects
    matched = decider.decide(address(library, "matched"))
    assert not matched.effects_after(first_call=True)
    assert Effect.ALLOCATE in decider.decide(address(library, "boxed")).effects
    # A failed bounds check formats its message before the process ends.
    assert decider.decide(address(library, "checked")).effects

"""What native code does only when it ends by an exception: told apart, and only where it is so."""

import ctypes
import json
import subprocess

import pytest
from click.testing import CliRunner

from alloccheck import analyze
from alloccheck.analysis.native import DEFAULT_TRUST, Decider, Trust
from alloccheck.cli import main
from alloccheck.effects import Effect, Guarantee, Path
from truth_builds import SOURCES, Build, address, compilers


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    output = tmp_path_factory.mktemp("raise") / "raise.so"
    command = ["g++", "-O2", "-w", "-fPIC", "-shared", "-Wl,-z,now", str(SOURCES / "truth.cpp")]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


@pytest.fixture(scope="module")
def loaded(library):
    return ctypes.CDLL(str(library))


def test_an_answer_leaves_out_what_happens_only_when_it_raises(loaded):
    answer = Decider().decide(address(loaded, "grows_before_it_throws"))
    assert {Effect.ALLOCATE, Effect.RAISE} <= answer.effects
    assert answer.satisfies(Guarantee.NONALLOCATING)
    assert not answer.satisfies(Guarantee.NONALLOCATING, ignore_throw=False)
    paths = {w.path for w in answer.witnesses if w.effect is Effect.ALLOCATE}
    assert paths == {Path.RAISE}


@pytest.mark.parametrize(
    "name",
    ["swallowed", "swallowed_below", "grows_in_a_loop", "grows_and_stalls", "cleans_up"],
)
def test_what_may_come_back_counts(loaded, name):
    answer = Decider().decide(address(loaded, name))
    assert not answer.satisfies(Guarantee.NONALLOCATING)
    assert {w.path for w in answer.witnesses if w.symbol == "malloc"} == {Path.RETURN}


def test_the_command_counts_them_when_asked(library):
    def call(*more):
        arguments = [str(library), "grows_before_it_throws", "--no-cache", *more]
        return CliRunner().invoke(main, ["native", *arguments])

    usual = call()
    assert usual.exit_code == 0
    assert "proved" in usual.stdout and "only when raising: allocate, block" in usual.stdout
    strict = call("--no-ignore-throw", "--format", "json")
    assert strict.exit_code == 1
    [found] = json.loads(strict.stdout)["functions"].values()
    assert {w["path"] for w in found["witnesses"] if w["effect"] == "allocate"} == {"raise"}


def callers(loaded, name):
    function = getattr(loaded, name)
    function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int

    def plain(n):
        return function(n) + 1

    def catching(n):
        try:
            return function(n)
        except Exception:
            return 0

    return plain, catching


@pytest.mark.parametrize(
    ("name", "ok"),
    [("grows_before_it_throws", True), ("thrower", True), ("swallowed", False),
     ("grows_anyway", False)],
)  # fmt: skip
def test_a_jitted_caller_is_told(loaded, name, ok):
    # No `except` of jitted code catches an exception of C++.
    for caller in callers(loaded, name):
        assert analyze(caller, "int32(int32)").ok is ok
        assert not analyze(caller, "int32(int32)", ignore_throw=False).ok


RUST = [compiler for compiler in compilers() if compiler.family == "rust"]


def test_a_panic_is_known_by_name_and_that_is_an_assumption(tmp_path):
    if not RUST:
        pytest.skip("rustc is not installed")
    output = tmp_path / "panic.so"
    RUST[0].build(Build("O2", cet=False, plt=False, lto=False), output)
    entry = address(ctypes.CDLL(str(output)), "checked")
    answer = Decider().decide(entry)
    assert answer.satisfies(Guarantee.NONALLOCATING)
    assert "panic" in {a.name for a in answer.evidence.assumptions}
    distrusted = Decider(assumptions=DEFAULT_TRUST - {Trust.PANIC}).decide(entry)
    assert not distrusted.satisfies(Guarantee.NONALLOCATING)


def test_a_function_called_like_a_panic_that_returns_is_none(tmp_path):
    source, output = tmp_path / "fake.c", tmp_path / "fake.so"
    source.write_text(
        "#include <stdlib.h>\nvoid *volatile sink;\n"
        "__attribute__((noinline)) void rust_begin_unwind(int n) { sink = malloc(n); }\n"
        "int fake(int n) { if (n > 3) rust_begin_unwind(n); return n; }\n"
    )
    command = ["gcc", "-O2", "-w", "-fPIC", "-shared", str(source), "-o", str(output)]
    subprocess.run(command, check=True)
    answer = Decider().decide(address(ctypes.CDLL(str(output)), "fake"))
    assert not answer.satisfies(Guarantee.NONALLOCATING)
    assert "panic" not in {a.name for a in answer.evidence.assumptions}

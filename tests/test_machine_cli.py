"""The command `alloccheck native`: verdicts, witnesses, exit codes."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from alloccheck.cli import main
from alloccheck.program.machine.lookup import all_functions


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def call(*arguments):
    return CliRunner().invoke(main, ("native", *arguments))


def test_clean_functions_exit_with_zero():
    result = call("libm.so.6", "sin", "fabs")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["sin", "proved", "clean"]
    assert lines[1].split() == ["fabs", "proved", "clean"]


def test_allocating_function_shows_its_witness():
    result = call("libc.so.6", "setvbuf", "tempnam")
    assert result.exit_code == 1
    assert "allocate (every call)" in result.stdout
    assert "libc.so.6!tempnam -> " in result.stdout
    assert "libc.so.6!strdup" in result.stdout or "libc.so.6!malloc" in result.stdout


def test_witnesses_lead_down_to_the_system_call_when_no_name_is_known():
    usual = call("libc.so.6", "malloc", "--effects", "allocate")
    assert "system call" not in usual.stdout and usual.exit_code == 1
    down = call("libc.so.6", "malloc", "--effects", "allocate", "--no-names")
    assert down.exit_code == 1
    assert "libc.so.6!malloc -> " in down.stdout
    assert "system call mmap: enters the kernel by number 9" in down.stdout or (
        "system call brk: enters the kernel by number 12" in down.stdout
    )


@pytest.mark.parametrize("pointer", ["foo", "libm.so.6", "libm.so.6+12", "0x", ""])
def test_a_pointer_that_no_witness_can_name_is_refused(pointer):
    result = call("libm.so.6", "sin", "--accept", pointer)
    assert result.exit_code == 2
    assert f"'all'; found {pointer!r}" in result.stderr


def test_undecided_exits_with_two():
    result = call("libc.so.6", "bsearch")
    assert result.exit_code == 2
    assert "undecided" in result.stdout


def test_effects_choose_what_is_forbidden():
    assert call("libc.so.6", "read", "--effects", "allocate").exit_code != 0
    assert call("libm.so.6", "sin", "--effects", "nonblocking").exit_code == 0
    assert call("libc.so.6", "usleep", "--effects", "block").exit_code == 1
    assert call("libc.so.6", "malloc", "--effects", "free").exit_code == 0


def test_json_has_verdict_evidence_and_assumptions():
    result = call("libm.so.6", "exp", "--format", "json")
    data = json.loads(result.stdout)["functions"]["exp"]
    assert data["verdict"] == "proved" and data["effects"] == []
    assert data["evidence"]["libraries"][0]["name"] == "libm.so.6"
    assert {a["name"] for a in data["evidence"]["assumptions"]} == {"got"}


def test_distrust_turns_an_assumption_into_a_finding():
    assert call("libm.so.6", "exp", "--distrust", "got").exit_code == 2


def test_cython_module_by_name():
    result = call("scipy.special.cython_special", "erf")
    assert result.exit_code == 0
    assert result.stdout.split()[:3] == ["erf", "proved", "clean"]


def test_wrong_questions_exit_with_two_and_say_why():
    for arguments, text in (
        (("libm.so.6", "no_such_function"), "no function"),
        (("libnone.so.9", "f"), "neither be loaded"),
        ((".none", "f"), "neither be loaded"),
        (("", "f"), "without machine code"),
        (("json", "dumps"), "without machine code"),
        (("libm.so.6",), "--all"),
        (("libm.so.6", "sin", "--effects", "colour"), "neither an effect"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2
        assert text in result.stderr


def test_all_functions_of_a_small_library(tmp_path):
    source, output = tmp_path / "two.c", tmp_path / "two.so"
    source.write_text(
        "#include <stdlib.h>\nint plain(int x) { return x + 1; }\n"
        "void *make(int n) { return malloc(n); }\n"
    )
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", str(source), "-o", str(output)], check=True)
    result = call(str(output), "--all", "--format", "json")
    functions = json.loads(result.stdout)["functions"]
    assert {n: f["verdict"] for n, f in functions.items()} == {"plain": "proved", "make": "found"}
    assert result.exit_code == 1


def test_a_library_that_is_cut_off_is_a_wrong_question(tmp_path):
    source, whole = tmp_path / "one.c", tmp_path / "one.so"
    source.write_text("int table[9999] = {1};\nint plain(int x) { return x + table[9]; }\n")
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", str(source), "-o", str(whole)], check=True)
    data = whole.read_bytes()

    def answer(length):
        cut = tmp_path / f"cut{length}.so"
        cut.write_bytes(data[:length])
        # In a process of its own: what would be wrong here kills it.
        return subprocess.run(
            [sys.executable, "-m", "alloccheck", "native", str(cut), "plain"],
            capture_output=True,
            text=True,
            check=False,
        )

    for length in (10, 64, 100, 3000, len(data) // 2):
        done = answer(length)
        assert done.returncode == 2 and done.stderr.startswith("error: "), (length, done)
    done = answer(len(data))
    assert done.returncode == 0, done


def test_library_without_functions_is_a_wrong_question(tmp_path):
    source, output = tmp_path / "none.c", tmp_path / "none.so"
    source.write_text("int data = 3;")
    subprocess.run(["gcc", "-nostdlib", "-fPIC", "-shared", str(source), "-o", str(output)])
    result = call(str(output), "--all")
    assert result.exit_code == 2 and "no functions" in result.stderr


def test_every_version_of_a_symbol_is_listed():
    found = all_functions("libm.so.6")
    versions = [name for name in found if name.startswith("pow@")]
    assert len(versions) == 2 and found[versions[0]] != found[versions[1]]


def test_verbose_shows_what_was_read():
    result = call("libm.so.6", "exp", "--verbose", "--no-cache")
    assert "functions read: " in result.stdout and "read from " in result.stdout

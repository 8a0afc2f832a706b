"""A kept answer is used only while everything that it rests on is as it was."""

import ctypes
import itertools
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from alloccheck.effects import Effect
from alloccheck.native_answers import AnswerCache
from alloccheck.native_cache import load_file
from alloccheck.program.machine import view as views
from alloccheck.program.machine.view import current_view

SOURCE = """
#include <stdlib.h>
double sin(double), cos(double), tan(double), exp(double), log(double);
int kept_mode = 2;
double calls(double x) { return sin(x) + 1; }
void *checks(long n) { return kept_mode == 0 ? malloc(n) : 0; }
double plain(double x) { return x * 3 + 1; }
double chooses(long k, double x) {
    switch (k) {
    case 0: return sin(x) + 1; case 1: return cos(x) + 2; case 2: return tan(x) + 3;
    case 3: return exp(x) + 4; case 4: return log(x) + 5; case 5: return x;
    }
    return 0;
}
int left;
static void leave_it(int *x) { left = *x; }
void lets_throw(void (*f)(void)) {
    int kept __attribute__((cleanup(leave_it))) = 0;
    f();
}
asm(".text; .space 0x40000; .globl far_away; far_away: ret; .space 0x40000; .balign 16");
asm(".section .rodata; .space 0x40000; .globl far_constant; far_constant: .long 1");
asm(".space 0x40000; .text");
"""
NUMBERS = itertools.count()


@pytest.fixture
def library(tmp_path):
    assert platform.machine() == "x86_64"
    source, built = tmp_path / "kept.c", tmp_path / "libkept.so"
    source.write_text(SOURCE)
    # A variable of the same name in another library would make it one that others may write.
    mode = f"mode{next(NUMBERS)}"
    flags = f"-O2 -fexceptions -Dkept_mode={mode} -fPIC -shared -Wl,-z,now -Wl,-z,norelro".split()
    subprocess.run(["gcc", *flags, str(source), "-o", str(built), "-lm"], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.mode = ctypes.c_int.in_dll(loaded, mode)
    return loaded


@pytest.fixture(params=["as a new process", "as the same process"])
def ask(tmp_path, request):
    """Decide, and say whether the answer was kept."""

    def decide(function):
        if request.param == "as a new process":
            current_view().kept.clear()
        address = ctypes.cast(function, ctypes.c_void_p).value
        cache = AnswerCache(tmp_path / "kept")
        answer = cache.decide(address)
        return answer, cache.hits == 1

    return decide


def kept_files(tmp_path):
    return sorted((tmp_path / "kept" / "answers").glob("*.json"))


def test_an_answer_is_kept_and_is_the_same(library, ask):
    for function in (library.calls, library.checks, library.plain):
        first, kept = ask(function)
        assert not kept
        second, kept = ask(function)
        assert kept and second == first
    assert first.effects == frozenset()
    assert first.evidence.libraries[0].name == "libkept.so"


def test_a_pointer_that_leads_elsewhere_is_followed_anew(library, ask):
    first, _ = ask(library.calls)
    slot = next(s for s, target in first.evidence.slots if s.startswith("libkept.so+"))
    image = current_view().named(library._name)
    place = ctypes.c_uint64.from_address(image.base + int(slot.rpartition("+")[2], 16))
    before = place.value
    place.value = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    second, kept = ask(library.calls)
    assert not kept and Effect.ALLOCATE in second.effects
    again, kept = ask(library.calls)
    assert kept and again == second
    place.value = before
    assert ask(library.calls) == (first, True)  # several are kept


def test_a_constant_variable_with_another_value_is_looked_at_anew(library, ask):
    first, _ = ask(library.checks)
    assert any(one.name == "constant-variable" for one in first.evidence.assumptions)
    assert first.effects == frozenset()
    library.mode.value = 0
    second, kept = ask(library.checks)
    assert not kept and Effect.ALLOCATE in second.effects


def test_changed_code_is_read_anew(library, ask):
    ask(library.plain)
    view, image = current_view(), current_view().named(library._name)
    before = view.identity(image)
    assert before.startswith("file ")
    address = ctypes.cast(library.plain, ctypes.c_void_p).value
    page = address & -os.sysconf("SC_PAGE_SIZE")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(page), os.sysconf("SC_PAGE_SIZE"), 7) == 0
    ctypes.memmove(address, bytes.fromhex("0f05c3"), 3)  # syscall; ret
    assert view.identity(image) != before
    second, kept = ask(library.plain)
    assert not kept and Effect.UNKNOWN in second.effects
    assert ask(library.plain) == (second, True)
    ctypes.memmove(address, bytes.fromhex("0f0bc3"), 3)
    third, kept = ask(library.plain)
    assert not kept and third != second


def touch(library, name):
    """Write what is there already: the page then belongs to no file any more."""
    address = ctypes.addressof(ctypes.c_char.in_dll(library, name))
    size = os.sysconf("SC_PAGE_SIZE")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address & -size), size, 7) == 0
    ctypes.memmove(address, ctypes.string_at(address, 1), 1)


def pages_looked_at(tmp_path, name="libkept.so"):
    (file,) = kept_files(tmp_path)
    (text,) = load_file(file).values()
    libraries = json.loads(text)["needs"]["libraries"]
    return next(pages for path, _, _, pages in libraries if Path(path).name == name)


def test_an_answer_does_not_rest_on_pages_that_were_not_read(library, ask, tmp_path):
    first, _ = ask(library.chooses)
    assert pages_looked_at(tmp_path)
    touch(library, "far_away")
    touch(library, "far_constant")
    assert ask(library.chooses) == (first, True)


def test_a_touched_jump_table_is_read_anew(library, ask, tmp_path):
    first, _ = ask(library.chooses)
    assert len(pages_looked_at(tmp_path)) > 1
    image = current_view().named(library._name)
    code = ctypes.cast(library.chooses, ctypes.c_void_p).value - image.base
    (table,) = (start for start, size in pages_looked_at(tmp_path) if start > code)
    size = os.sysconf("SC_PAGE_SIZE")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(image.base + table), size, 3) == 0
    ctypes.memmove(image.base + table, ctypes.string_at(image.base + table, 1), 1)
    assert ask(library.chooses) == (first, False)


def test_a_constant_variable_rests_on_all_code_of_its_library(library, ask, tmp_path):
    first, _ = ask(library.checks)
    assert pages_looked_at(tmp_path) is None
    touch(library, "far_away")
    assert ask(library.checks) == (first, False)


def test_exception_handlers_rest_on_tables_that_may_be_anywhere(library, ask, tmp_path):
    first, _ = ask(library.lets_throw)
    assert Effect.DISPATCH in first.effects
    assert pages_looked_at(tmp_path) is None
    touch(library, "far_constant")
    assert ask(library.lets_throw) == (first, False)


def test_a_replaced_file_is_another_library(library, ask, monkeypatch):
    ask(library.plain)
    path = Path(library._name)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    current = current_view()
    assert current.identity(current.named(library._name)).startswith("bytes ")
    _, kept = ask(library.plain)
    assert not kept


def test_without_the_kernels_word_all_bytes_are_hashed(library, ask, monkeypatch):
    first, _ = ask(library.plain)
    monkeypatch.setattr(views, "_untouched", lambda start, size: False)
    view = current_view()
    assert view.identity(view.named(library._name)).startswith("bytes ")
    assert ask(library.plain) == (first, False)
    assert ask(library.plain) == (first, True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("allocate", "allacote"),
        lambda text: "",
        lambda text: text.replace("\n{", "\n["),
    ],
    ids="cut misspelt empty list".split(),
)
def test_damaged_files_are_not_believed(library, ask, tmp_path, damage):
    library.mode.value = 0
    first, _ = ask(library.checks)
    for file in kept_files(tmp_path):
        file.write_text(damage(file.read_text()))
    current_view().kept.clear()
    assert ask(library.checks) == (first, False)
    assert ask(library.checks) == (first, True)


def test_answers_that_others_may_have_written_are_not_believed(library, ask, tmp_path):
    ask(library.plain)
    for file in kept_files(tmp_path):
        file.chmod(0o666)
    current_view().kept.clear()
    assert ask(library.plain)[1] is False


def test_a_directory_that_cannot_be_written_is_no_error(library, tmp_path):
    blocked = tmp_path / "kept"
    blocked.write_text("a file stands here")
    address = ctypes.cast(library.plain, ctypes.c_void_p).value
    assert AnswerCache(blocked).decide(address).effects == frozenset()


def test_a_library_that_is_loaded_later_is_seen(library):
    before = current_view()
    assert current_view() is before
    assert before.named(library._name) is not None
    copy = Path(library._name).with_name("libcopy.so")
    copy.write_bytes(Path(library._name).read_bytes())
    ctypes.CDLL(str(copy))
    assert current_view() is not before
    assert current_view().named(str(copy)) is not None


def test_another_process_uses_what_was_kept(tmp_path):
    program = """
import json, sys
from pathlib import Path
from alloccheck.native_answers import AnswerCache
from alloccheck.program.machine.lookup import symbol_address
cache = AnswerCache(Path(sys.argv[1]))
answer = cache.decide(symbol_address("libm.so.6", "exp"))
print(json.dumps([cache.hits, {k: v for k, v in answer.to_json().items() if k != "address"}]))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "kept")]
    runs = [json.loads(subprocess.check_output(command, text=True)) for _ in range(2)]
    assert [hits for hits, _ in runs] == [0, 1]
    assert runs[0][1] == runs[1][1]

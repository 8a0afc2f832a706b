"""The artifact store: what is brought back, what is never brought back, and what is not kept."""

import ctypes
import dataclasses
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numba import njit, types
from numba.core.compiler import Compiler
from numba.core.rewrites import Rewrite, register_rewrite, rewrite_registry
from numba.core.typing import templates
from numba.extending import overload

from alloccheck import (
    AllocCheckError,
    UsageError,
    analyze,
    check,
    check_allocs,
    hermetic,
    nonblocking,
    storage,
)
from alloccheck.cli import main
from alloccheck.compile.job import CompileJob
from alloccheck.container import Container, from_bytes, to_bytes
from alloccheck.errors import Unstorable
from alloccheck.native_cache import default_directory
from alloccheck.oracle.build import cache_root
from alloccheck.policy import Policy
from alloccheck.storage import Storage, user_directory
from alloccheck.store import ArtifactStore
from store_programs import imported, run, wrongly_accepted

PROGRAM = """
import enum
import math
import numpy as np
from numba import njit
import store_helper

GAIN = 2.0
TABLE = np.arange(4.0)

class Mode(enum.IntEnum):
    FAST = 1
    SLOW = 2

MODE = Mode.FAST

@njit
def shaped(x):
    return math.sin(x)

def made(offset):
    def inner(x):
        return x + offset
    return njit(inner)

inner = made(1.0)

def whole(x, by=3.0):
    if x > 1e300:
        raise ValueError("too large", x)
    extra = 7.0 if MODE == Mode.SLOW else 8.0
    return GAIN * shaped(x) + inner(x) + TABLE[1] + by + store_helper.level(x) + extra
"""

HELPER = """
from numba import njit

OFFSET = 5.0

@njit
def level(x):
    return x * OFFSET
"""


@pytest.fixture
def program(tmp_path):
    imported(tmp_path, "store_helper", HELPER)
    yield imported(tmp_path, "store_program", PROGRAM)
    sys.modules.pop("store_helper")
    sys.modules.pop("store_program")


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept"


def state(function):
    (one,) = function.stored.values()
    return one.state


def reason(function):
    (one,) = function.stored.values()
    return one.reason


# --- bringing back --------------------------------------------------------------------------------

SECOND = """
import numpy as np
from alloccheck import check_allocs, nonblocking
from store_subject import *

kept = KEPT
fast = check_allocs(store=kept)(gain)
raising = check_allocs("float64(float64)", store=kept)(half)
callback = nonblocking("float64(float64)", store=kept, entry="c", value_on_raise=-1.0)(half)
out, x = np.zeros(3), np.arange(3.0)
fast(out, x, 2.0)
try:
    raising(-1.0)
    message = None
except ValueError as error:
    message = str(error)
found = {
    "out": out.tolist(),
    "half": raising(3.0),
    "message": message,
    "c": [callback.ctypes(5.0), callback.ctypes(-5.0), callback.last_status() != 0],
    "verified": [bool(one.verify()) for one in (fast, raising, callback)],
    "states": [str(one.state) for f in (fast, raising, callback) for one in f.stored.values()],
    "proved": [r.ok and r.certificate.proved for f in (fast, raising, callback)
               for r in f.reports.values()],
    "digests": [r.certificate.digest for f in (fast, raising, callback)
                for r in f.reports.values()],
    "texts": [str(r) for f in (fast, raising, callback) for r in f.reports.values()],
    "compiled": len(compiled),
    "heavy": sorted({"alloccheck.check", "alloccheck.compile.world", "alloccheck.program.llvm",
                     "elftools"} & set(sys.modules)),
}

@numba.njit
def caller(x):
    return raising(x) + 1.0

found["from jitted code"] = caller(3.0)
found["listing"] = "define" in next(iter(fast.inspect_llvm().values()))
print(json.dumps(found))
"""

SUBJECT = """
import numpy as np

def gain(out, x, g):
    for i in range(x.size):
        out[i] = g * np.cos(x[i])

def half(x):
    if x < 0:
        raise ValueError("negative", x)
    return 0.5 * x
"""


def test_a_second_process_compiles_nothing_and_gives_the_same(tmp_path, kept):
    (tmp_path / "store_subject.py").write_text(SUBJECT)
    text = SECOND.replace("KEPT", repr(str(kept)))
    first, second = run(tmp_path, text), run(tmp_path, text)
    assert first.pop("states") == ["written"] * 3
    assert second.pop("states") == ["loaded"] * 3
    assert first.pop("compiled") >= 3
    assert second.pop("compiled") == 0
    assert second.pop("heavy") == []
    del first["heavy"]
    assert first == second
    assert second["out"] == (2.0 * np.cos(np.arange(3.0))).tolist()
    assert second["message"] == "('negative', -1.0)"
    assert second["c"] == [2.5, -1.0, True]
    assert second["half"] == 1.5
    assert second["from jitted code"] == 2.5
    assert second["listing"]
    assert all(second["verified"]) and all(second["proved"]) and len(second["proved"]) == 3


def test_what_needs_an_object_of_the_interpreter_comes_back_with_it(program, kept):
    def pair(x):
        return np.zeros(3) + x, 2, "text"

    first, second = hermetic(store=kept)(pair), hermetic(store=kept)(pair)
    expected = first(1.0)
    found = second(1.0)
    assert (state(first), state(second)) == ("written", "loaded")
    assert found[0].dtype == expected[0].dtype and found[0].tolist() == [1.0, 1.0, 1.0]
    assert found[1:] == expected[1:] == (2, "text")
    assert bool(second.verify())
    assert second._artifacts.keys() == first._artifacts.keys()
    assert not second.reports


def test_the_default_directory_is_the_users(program, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    proved = check_allocs("float64(float64)", store="user")(program.whole)
    folder = tmp_path / "cache" / "alloccheck" / "artifacts"
    (path,) = folder.iterdir()
    assert next(iter(proved.stored.values())).path == path
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_caches_lie_in_no_folder_that_depends_on_where_one_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ALLOCCHECK_CACHE_DIR", raising=False)
    for chosen in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
        home = tmp_path / ".cache" / "alloccheck"
        assert user_directory() == home / "artifacts"
        assert default_directory() == home / "native"
        assert cache_root() == home


@pytest.mark.parametrize("place", ["", 3, b"folder"])
def test_a_place_that_is_none_is_refused(place):
    with pytest.raises(UsageError, match="store must be 'user', a directory or None"):
        check_allocs(store=place)


def test_a_tampered_byte_of_loaded_code_is_found(program, kept):
    check_allocs("float64(float64)", store=kept)(program.whole)
    loaded = check_allocs("float64(float64)", store=kept)(program.whole)
    assert state(loaded) == "loaded", reason(loaded)
    (artifact,) = loaded.artifacts.values()
    (slot, *_) = artifact.image.slots or (None,)
    changed = dataclasses.replace(artifact, externals={**artifact.externals, "sin": 1})
    loaded._artifacts[next(iter(loaded._artifacts))] = changed
    assert any(one.kind == "symbol" for one in loaded.verify().faults)
    assert slot is None or slot.value


def test_later_changes_of_captured_values_are_found_by_verify(program, kept):
    check_allocs("float64(float64)", store=kept)(program.whole)
    loaded = check_allocs("float64(float64)", store=kept)(program.whole)
    assert bool(loaded.verify())
    program.TABLE[1] = 7.0
    assert any("TABLE" in one.subject for one in loaded.verify().faults)


# --- never stale ----------------------------------------------------------------------------------


def _reimport(program, text):
    folder = Path(program.whole.__code__.co_filename).parent
    program.store_helper = imported(folder, "store_helper", text)


CHANGES = {
    "a global": lambda p: setattr(p, "GAIN", 3.0),
    "the type of a global": lambda p: setattr(p, "GAIN", 2),
    "an array's content": lambda p: p.TABLE.__setitem__(1, 9.0),
    "an enumeration's member": lambda p: setattr(p, "MODE", p.Mode.SLOW),
    "a callee": lambda p: setattr(p, "shaped", njit(lambda x: x * x)),
    "a callee's options": lambda p: setattr(p, "shaped", njit(fastmath=True)(p.shaped.py_func)),
    "a callee's declared signatures": lambda p: setattr(
        p, "shaped", njit("float64(float64)")(p.shaped.py_func)
    ),
    "a closure's variable": lambda p: setattr(p, "inner", p.made(2.0)),
    "a default": lambda p: setattr(p.whole, "__defaults__", (4.0,)),
    "a module's attribute": lambda p: setattr(p.store_helper, "level", njit(lambda x: x)),
    "what a helper's helper refers to": lambda p: setattr(p.store_helper, "OFFSET", 6.0),
    "a helper's file": lambda p: _reimport(p, HELPER.replace("x * OFFSET", "x / OFFSET")),
    "a line of a helper's file": lambda p: _reimport(p, "\n" + HELPER),
    "a builtin that is hidden": lambda p: setattr(p, "ValueError", KeyError),
}


@pytest.mark.parametrize("change", CHANGES)
def test_stale_code_is_never_brought_back(change, program, kept):
    before = check_allocs("float64(float64)", store=kept)(program.whole)
    assert (state(before), reason(before)) == ("written", "there was none")
    again = check_allocs("float64(float64)", store=kept)(program.whole)
    assert state(again) == "loaded", reason(again)
    assert again(1.5) == before(1.5)
    CHANGES[change](program)
    after = check_allocs("float64(float64)", store=kept)(program.whole)
    fresh = check_allocs("float64(float64)")(program.whole)
    assert (state(after), reason(after)) == ("written", "there was none")
    assert after(1.5) == fresh(1.5)
    assert len(Storage(kept).keys()) == 2


BY_TEXT = """
from numba import literal_unroll, njit
import settings_by_text

NAME = "size"

def of_global(x):
    return getattr(settings_by_text, NAME) * x

def in_turn(x):
    total = 0.0
    for name in literal_unroll(("size", "step")):
        total += getattr(settings_by_text, name) * x
    return total

@njit
def read(name, x):
    return getattr(settings_by_text, name) * x

def of_caller(x):
    return read("size", x)
"""


@pytest.mark.parametrize("name", ["of_global", "in_turn", "of_caller"])
def test_what_is_read_by_text_is_part_of_the_question(name, tmp_path, kept, monkeypatch):
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    settings = imported(tmp_path, "settings_by_text", "size = 2.0\nstep = 1.0")
    function = getattr(imported(tmp_path, "reads_by_text", BY_TEXT), name)
    before = check_allocs("float64(float64)", store=kept)(function)
    again = check_allocs("float64(float64)", store=kept)(function)
    assert state(again) == "loaded", reason(again)
    settings.size = 5.0
    after = check_allocs("float64(float64)", store=kept)(function)
    assert (state(after), after(1.0) - before(1.0)) == ("written", 3.0)


OPTIONS = {
    "fastmath": {"fastmath": True},
    "a set of fastmath flags": {"fastmath": {"nnan", "ninf"}},
    "boundscheck": {"boundscheck": True},
    "error_model": {"error_model": "numpy"},
    "nogil": {"nogil": True},
    "locals": {"locals": {"by": types.float32}},
    "ignore_throw": {"ignore_throw": False},
    "first_call": {"first_call": "allow"},
    "guarantee": {"guarantee": "nonblocking"},
    "entry": {"entry": "c"},
    "value_on_raise": {"value_on_raise": 1.0},
}
"""What `check_allocs` takes, with a value that is not the default."""


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_another_question(option, program, kept):
    options = {"on_failure": "report", **OPTIONS[option]}
    check_allocs("float64(float64, float64)", store=kept)(program.whole)
    other = check_allocs("float64(float64, float64)", store=kept, **options)(program.whole)
    assert state(other) != "loaded"
    assert state(check_allocs("float64(float64, float64)", store=kept)(program.whole)) == "loaded"
    assert state(hermetic("float64(float64, float64)", store=kept)(program.whole)) == "written"
    assert state(check_allocs("float64(float32, float64)", store=kept)(program.whole)) == "written"


def test_arrays_that_do_not_overlap_are_another_question(kept):
    def shift(out, x):
        out[1:] = x[:-1]

    types_of_both = "void(float64[::1], float64[::1])"
    made = [
        check_allocs(types_of_both, store=kept, on_failure="report", disjoint=disjoint)(shift)
        for disjoint in (False, ["out", "x"], True, True)
    ]
    assert [state(one) for one in made] == ["not stored", "written", "written", "loaded"]
    assert next(iter(made[3].reports.values())).certificate.conditions
    x = np.arange(4.0)
    with pytest.raises(ValueError, match="overlap"):
        made[3](x, x)


class OwnPipeline(Compiler):
    """A pipeline of somebody else's, which does as Numba's."""


def test_a_pipeline_of_ones_own_is_not_kept(program, kept):
    own = check_allocs("float64(float64)", store=kept, pipeline_class=OwnPipeline)(program.whole)
    assert state(own) == "not stored"
    assert "pipeline of its own" in reason(own)


@pytest.mark.parametrize(
    ("name", "value"),
    [("NUMBA_OPT", "1"), ("NUMBA_BOUNDSCHECK", "1"), ("NUMBA_CPU_NAME", "x86-64"),
     ("NUMBA_LOOP_VECTORIZE", "0"), ("NUMBA_DEBUG_NRT", "1"), ("NUMBA_CPU_FEATURES", "+sse2")],
)  # fmt: skip
def test_each_setting_is_another_question(name, value, program, kept, monkeypatch):
    check_allocs("float64(float64)", store=kept)(program.whole)
    monkeypatch.setenv(name, value)
    other = check_allocs("float64(float64)", store=kept)(program.whole)
    assert (state(other), reason(other)) == ("written", "there was none")
    monkeypatch.undo()
    assert state(check_allocs("float64(float64)", store=kept)(program.whole)) == "loaded"


def test_what_an_extension_registers_is_part_of_the_question(program, kept):
    check_allocs("float64(float64)", store=kept)(program.whole)
    registries = templates.builtin_registry
    before = len(registries.functions), len(registries.globals)

    def chooser(x):
        return (lambda x: x) if x is types.voidptr else None

    for registered, options in (
        (math.gamma, {}),
        (math.lgamma, {}),
        (math.gamma, {"inline": "always"}),
        (math.gamma, {"jit_options": {"fastmath": True}}),
    ):
        try:
            overload(registered, **options)(chooser)
            other = check_allocs("float64(float64)", store=kept)(program.whole)
        finally:
            del registries.functions[before[0] :]
            del registries.globals[before[1] :]
        assert (state(other), reason(other)) == ("written", "there was none")
    assert state(check_allocs("float64(float64)", store=kept)(program.whole)) == "loaded"


def test_what_an_extension_registers_for_its_own_counts_where_it_is_met(kept):
    registries = templates.builtin_registry
    before = len(registries.functions), len(registries.globals)

    def extended(x):
        raise NotImplementedError

    def meets(x):
        return extended(x)

    def does_not(x):
        return x

    def keys(register):
        try:
            register()
            store = ArtifactStore(Storage(kept))
            jobs = [CompileJob(one, None, (types.float64,)) for one in (meets, does_not)]
            return [store.key(one, Policy()) for one in jobs]
        finally:
            del registries.functions[before[0] :]
            del registries.globals[before[1] :]

    ways = [
        lambda: None,
        lambda: overload(extended)(lambda x: lambda x: 2.0 * x),
        lambda: overload(extended)(lambda x: lambda x: 3.0 * x),
        lambda: overload(extended, inline="always")(lambda x: lambda x: 3.0 * x),
    ]
    met, unmet = zip(*map(keys, ways), strict=True)
    assert len(set(met)) == len(ways) and len(set(unmet)) == 1
    assert all(key and not why for key, why in (*met, *unmet))


@register_rewrite("before-inference")
class DoNothing(Rewrite):
    """A rewrite of somebody else's."""

    def match(self, func_ir, block, typemap, calltypes):
        return False


rewrite_registry.rewrites["before-inference"].remove(DoNothing)


def test_a_rewrite_of_somebody_elses_is_part_of_the_question(program, kept):
    check_allocs("float64(float64)", store=kept)(program.whole)
    rewrite_registry.rewrites["before-inference"].append(DoNothing)
    try:
        other = check_allocs("float64(float64)", store=kept)(program.whole)
    finally:
        rewrite_registry.rewrites["before-inference"].remove(DoNothing)
    assert state(other) != "loaded"
    assert state(check_allocs("float64(float64)", store=kept)(program.whole)) == "loaded"


def test_a_change_while_it_compiles_is_noticed(program, kept):
    wanted = ArtifactStore(Storage(kept))
    dispatcher = check_allocs(program.whole)
    job = CompileJob(program.whole, dispatcher, (types.float64,) * 2)

    def prove():
        found = dispatcher._proved(job)
        program.GAIN = 11.0
        return found

    _, _, stored = wanted.answer(job, Policy(), prove)
    assert (stored.state, stored.path) == ("not stored", None)
    assert "changed while it was compiled" in stored.reason
    assert Storage(kept).keys() == ()


def test_a_change_of_our_files_after_the_start_is_noticed(program, kept, monkeypatch):
    from alloccheck.compile import installation

    monkeypatch.setattr(installation, "_LOADED_AT", 0.0)
    installation.fingerprint.cache_clear()
    try:
        proved = check_allocs("float64(float64)", store=kept)(program.whole)
    finally:
        monkeypatch.undo()
        installation.fingerprint.cache_clear()
    assert state(proved) == "not stored"
    assert "changed after this process had started" in reason(proved)


LIBRARY = """
#include <stdlib.h>
double store_twice(double x) { %s return 2 * x; }
"""

CALLER = """
import ctypes
from numba import float64
from numba.core import types
import llvmlite.binding as ll
ll.load_library_permanently(LIBRARY)
from alloccheck import check_allocs, AllocCheckError

twice = types.ExternalFunction("store_twice", float64(float64))

def outer(x):
    return twice(x) + 1.0

proved = check_allocs(store=KEPT)(outer)
try:
    value = proved(3.0)
except AllocCheckError:
    value = None
print(json.dumps([value, [str(one) for one in proved.stored.values()], len(compiled)]))
"""


def test_the_code_of_a_library_is_read_again(tmp_path, kept):
    def process(body):
        source = tmp_path / "lib.c"
        source.write_text(LIBRARY % body)
        library = tmp_path / "lib.so"
        library.unlink(missing_ok=True)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        text = CALLER.replace("LIBRARY", repr(str(library))).replace("KEPT", repr(str(kept)))
        return run(tmp_path, text)

    value, states, compiled = process("")
    assert (value, states) == (7.0, ["written: there was none"]) and compiled
    assert process("") == [7.0, ["loaded"], 0]
    value, states, compiled = process("void *volatile p = malloc(8); free(p);")
    assert value is None and states == [] and compiled


def test_analyze_takes_its_report_from_the_store(program, kept, monkeypatch):
    fresh = analyze(program.whole, "float64(float64)", store=kept)
    assert fresh.ok and len(Storage(kept).keys()) == 1
    monkeypatch.setattr(check, "build", None)
    assert analyze(program.whole, "float64(float64)", store=kept) == fresh
    with pytest.raises(TypeError):
        analyze(program.whole, "float64(float64)")


def test_the_command_line_proves_from_the_store_and_shows_it(tmp_path, monkeypatch):
    (tmp_path / "store_subject.py").write_text(SUBJECT)
    (tmp_path / "pyproject.toml").write_text('[tool.alloccheck]\nstore = "kept"\n')
    monkeypatch.chdir(tmp_path)
    call = ["check", "store_subject.py:half", "--signature", "float64(float64)", "--format", "json"]
    first = CliRunner().invoke(main, call)
    assert first.exit_code == 0, first.output
    sys.modules.pop("store_subject", None)
    monkeypatch.setattr(check, "build", None)
    second = CliRunner().invoke(main, call)
    assert second.exit_code == 0, second.output
    assert second.stdout == first.stdout
    shown = CliRunner().invoke(main, ["store", "list"])
    assert shown.exit_code == 0
    assert "store_subject:half float64(float64) nonallocating" in shown.stdout
    (path,) = (tmp_path / "kept").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    damaged = CliRunner().invoke(main, ["store", "list", "--directory", "kept"])
    assert damaged.exit_code == 1 and "the checksum is wrong" in damaged.stdout
    assert CliRunner().invoke(main, ["store", "clear"]).exit_code == 0
    assert list((tmp_path / "kept").iterdir()) == []
    (tmp_path / "kept").chmod(0o777)
    refused = CliRunner().invoke(main, ["store", "list"])
    assert refused.exit_code == 2 and "may be written by others" in refused.output


# --- never kept -----------------------------------------------------------------------------------

LARGE = np.zeros(200_000)


class Local(Exception):
    """An error that this module knows under another name than its own."""


def test_what_cannot_be_kept_says_why_and_works_all_the_same(kept):
    pointer = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(("fabs", ctypes.CDLL(None)))

    class Hidden(Exception):
        pass

    def large(x):
        return LARGE[0] + x

    def through(x):
        return pointer(x)

    def raising(x):
        if x < 0:
            raise Hidden("negative")
        return x

    def steps(x):
        yield x
        yield 2 * x

    def allocating(x):
        return np.zeros(3)[0] + x

    for function, expected in (
        (large, "compiled in by its address"),
        (through, "whose content another process cannot compare"),
        (raising, "is a builtins.type|another process cannot compare"),
        (steps, "generator"),
        (allocating, "not proved"),
    ):
        made = check_allocs(store=kept, on_failure="report")(function)
        assert list(np.atleast_1d(list(made(1.0)) if function is steps else made(1.0)))
        assert state(made) == "not stored"
        assert any(part in reason(made) for part in expected.split("|")), reason(made)
    assert Storage(kept).keys() == ()


def test_an_overload_of_an_extension_that_is_reached_is_not_kept(kept):
    registries = templates.builtin_registry
    before = len(registries.functions), len(registries.globals)

    def extended(x):
        raise NotImplementedError

    try:
        overload(extended)(lambda x: lambda x: 3.0 * x)

        def caller(x):
            return extended(x)

        made = check_allocs(store=kept)(caller)
        assert made(2.0) == 6.0
    finally:
        del registries.functions[before[0] :]
        del registries.globals[before[1] :]
    assert state(made) == "not stored"
    assert "no function names it" in reason(made)


# --- damaged and hostile files --------------------------------------------------------------------


@pytest.fixture
def stored(program, kept):
    """A stored artifact: its store, key, job, policy and file."""
    first = check_allocs("float64(float64)", store=kept)(program.whole)
    (one,) = first.stored.values()
    store = ArtifactStore(Storage(kept))
    dispatcher = check_allocs(program.whole)
    dispatcher.declared_signatures = first.declared_signatures
    job = CompileJob(program.whole, dispatcher, next(iter(first.stored)), types.float64)
    key, why = store.key(job, Policy())
    assert (key, why) == (one.path.stem, "")
    return store, key, job, one.path


def test_mutations_are_never_accepted(stored):
    store, key, job, path = stored
    content = path.read_bytes()

    def read(data):
        path.write_bytes(data)
        try:
            store.bring_back(key, job, Policy())
        except Unstorable as error:
            return str(error)
        return None

    assert read(content) is None
    assert wrongly_accepted(content, read, range(400)) == []
    assert read(content) is None


def test_a_damaged_file_is_replaced_by_a_fresh_proof(program, kept):
    first = check_allocs("float64(float64)", store=kept)(program.whole)
    path = next(iter(first.stored.values())).path
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    second = check_allocs("float64(float64)", store=kept)(program.whole)
    assert (state(second), reason(second)) == ("written", "damaged: the checksum is wrong")
    assert state(check_allocs("float64(float64)", store=kept)(program.whole)) == "loaded"


def test_a_file_of_another_question_is_not_taken(stored, program, kept):
    store, key, job, path = stored
    hermetic("float64(float64)", store=kept)(program.whole)
    (other,) = [one for one in path.parent.iterdir() if one != path]
    shutil.copy(other, path)
    with pytest.raises(Unstorable, match="it answers another question"):
        store.bring_back(key, job, Policy())


def test_a_file_of_another_cpu_is_not_taken(stored):
    store, key, job, path = stored
    container = from_bytes(path.read_bytes())
    container.record["configuration"]["cpu_features"] += ",+more"
    path.write_bytes(to_bytes(Container(container.record, container.parts)))
    with pytest.raises(Unstorable, match="another configuration"):
        store.bring_back(key, job, Policy())


def _link_file(path):
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def _link_directory(path):
    moved = path.parent.with_name("moved")
    path.parent.rename(moved)
    path.parent.symlink_to(moved)


def _make_pipe(path):
    path.unlink()
    os.mkfifo(path)


ODD = {
    "a file that is a link": (_link_file, "cannot be read"),
    "a directory that is a link": (_link_directory, "cannot be read"),
    "a pipe": (_make_pipe, "not a plain file"),
    "a directory in its place": (lambda p: (p.unlink(), p.mkdir()), "cannot be read"),
    "a file that others may write": (lambda p: p.chmod(0o666), "may be written by others"),
    "a directory that others may write": (
        lambda p: p.parent.chmod(0o777),
        "may be written by others",
    ),
    "a huge file": (lambda p: os.truncate(p, storage.FILE_LIMIT + 1), "is larger than"),
    "an empty file": (lambda p: os.truncate(p, 0), "not a stored artifact"),
}


@pytest.mark.parametrize("oddity", ODD)
def test_odd_files_and_directories_are_refused(oddity, stored):
    store, key, job, path = stored
    change, expected = ODD[oddity]
    change(path)
    with pytest.raises(Unstorable, match=expected):
        store.bring_back(key, job, Policy())


def test_what_belongs_to_another_user_is_refused(program, kept, monkeypatch):
    check_allocs("float64(float64)", store=kept)(program.whole)
    monkeypatch.setattr(os, "geteuid", lambda me=os.geteuid(): me + 1)
    second = check_allocs("float64(float64)", store=kept)(program.whole)
    assert state(second) == "not stored"
    assert "belongs to another user" in reason(second)


# --- the directory --------------------------------------------------------------------------------

WRITER = """
import hashlib, sys
from pathlib import Path
from alloccheck.storage import Storage

kept = Storage(Path(sys.argv[1]))
seen = 0
for i in range(300):
    body = (sys.argv[2] + str(i)).encode() * 4000
    kept.write(f"key{i % 3}", hashlib.sha256(body).digest() + body)
    data = kept.read(f"key{(i + 1) % 3}")
    if data is not None:
        assert hashlib.sha256(data[32:]).digest() == data[:32]
        seen += 1
print(seen)
"""


def _process(text, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_concurrent_writers_never_show_each_other_half_a_file(tmp_path):
    running = [_process(WRITER, str(tmp_path / "kept"), name) for name in "abcd"]
    for one in running:
        output, _ = one.communicate()
        assert one.returncode == 0
        assert int(output) > 100
    assert sorted(one.name for one in (tmp_path / "kept").iterdir()) == [
        f"key{i}.artifact" for i in range(3)
    ]


CRASHING = """
import os, signal, sys
from pathlib import Path
from alloccheck.storage import Storage

step = sys.argv[2]
def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
if step == "while writing":
    whole = os.fdopen
    def half(descriptor, mode):
        file = whole(descriptor, mode)
        os.write(descriptor, b"half of it")
        die()
    os.fdopen = half
elif step == "before renaming":
    os.replace = die
elif step == "before evicting":
    Storage._evict = die
Storage(Path(sys.argv[1])).write("key", b"new" * 1000)
"""


@pytest.mark.parametrize("step", ["while writing", "before renaming", "before evicting"])
def test_a_crash_in_the_middle_leaves_the_old_or_the_new(step, tmp_path):
    kept = Storage(tmp_path / "kept")
    kept.write("key", b"old")
    crashed = _process(CRASHING, str(kept.directory), step)
    crashed.communicate()
    assert crashed.returncode == -signal.SIGKILL
    assert kept.read("key") == (b"new" * 1000 if step == "before evicting" else b"old")
    left = [one for one in kept.directory.iterdir() if one.suffix == storage.TEMPORARY]
    assert len(left) == (0 if step == "before evicting" else 1)
    for one in left:
        os.utime(one, (time.time() - 7200,) * 2)
    kept.write("other", b"x")
    assert sorted(one.name for one in kept.directory.iterdir()) == [
        "key.artifact",
        "other.artifact",
    ]


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    kept = Storage(tmp_path / "kept", size_limit=2500)
    for age, key in ((300, "old"), (200, "used"), (100, "young")):
        kept.write(key, bytes(800))
        os.utime(kept.path(key), (time.time() - age,) * 2)
    assert kept.read("used") == bytes(800)
    kept.write("new", bytes(800))
    assert kept.keys() == ("new", "used", "young")
    kept.write("newer", bytes(1700))
    assert kept.keys() == ("newer", "used") or kept.keys() == ("new", "newer")
    assert sum(one.stat().st_size for one in kept.directory.iterdir()) <= 2500
    with pytest.raises(Unstorable, match="more than a file of the store may have"):
        kept.write("giant", bytes(2501))
    kept.remove("newer")
    assert kept.read("newer") is None


def test_a_directory_that_cannot_be_made_is_a_reason_not_an_error(program, tmp_path):
    (tmp_path / "file").write_text("")
    proved = check_allocs("float64(float64)", store=tmp_path / "file" / "kept")(program.whole)
    assert proved(1.0) == check_allocs("float64(float64)")(program.whole)(1.0)
    assert state(proved) == "not stored"
    assert "cannot be" in reason(proved)


def test_a_failed_proof_raises_as_without_a_store(kept):
    with pytest.raises(AllocCheckError):
        check_allocs("float64(int64)", store=kept)(lambda n: np.zeros(n).sum())
    with pytest.raises(AllocCheckError):
        nonblocking("float64(int64)", store=kept)(lambda n: np.zeros(n).sum())

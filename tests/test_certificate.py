"""Certificates: what they hold, their JSON, verification in memory, comparison, the command."""

import ctypes
import json
import textwrap
from pathlib import Path

import llvmlite.binding as ll
import numpy as np
import pytest
from click.testing import CliRunner
from numba import float64, njit
from numba.experimental import jitclass

from alloccheck import UsageError, VerificationError, analyze, check_allocs
from alloccheck.certificate import Certificate, compare
from alloccheck.cli import main
from alloccheck.compile.provenance import value_digest
from alloccheck.verification import verify

DOCS = Path(__file__).parent.parent / "docs"

TABLE = np.arange(4.0)
GAIN = 2.0


@njit
def inner(x):
    return x * GAIN


@njit(inline="always")
def early(x):
    return x + 1.0


@njit
def unrelated(x):
    return x - 1.0


def root(x):
    return early(inner(x)) + TABLE[1] + np.sin(x) * np.pi


def certificate(function=root, signature="float64(float64)", **options):
    return analyze(function, signature, **options).certificate


# --- what it holds -------------------------------------------------------------------------------


def test_sources_are_all_functions_compiled_in_and_no_others():
    unrelated(1.0)
    names = [one.function.split(":")[1] for one in certificate().sources]
    assert names[0] == "root"
    assert sorted(names) == ["early", "inner", "root"]


def test_source_digests_name_the_text_and_the_bytecode():
    def first(x):
        return x + 1.0

    def second(x):
        return x + 1.0  # the same code in other words

    def third(x):
        return x + 2.0

    a, b, c = (certificate(one).sources[0] for one in (first, second, third))
    assert a.source_digest != b.source_digest
    assert a.code_digest == b.code_digest
    assert a.code_digest != c.code_digest
    assert certificate(eval("lambda x: x")).sources[0].source_digest is None


def test_captures_name_globals_attributes_and_closure_variables():
    offset = 3

    def f(x):
        return root_like(x) + offset

    root_like = inner
    found = {one.name: one for one in certificate(f).captures}
    assert found["closure offset"].note == "int 3"
    assert found["closure offset"].digest == value_digest(3)
    assert found["closure root_like"].digest is None
    assert found["closure root_like"].note.endswith(":inner")
    assert found["GAIN"].note == "float 2.0"
    of_root = {one.name: one for one in certificate().captures}
    assert of_root["np.pi"].digest == value_digest(np.pi)
    assert of_root["TABLE"].digest == value_digest(np.arange(4.0))


def test_methods_of_a_jitclass_are_sources():
    @jitclass([("x", float64)])
    class Counter:
        def __init__(self, x):
            self.x = x

        def add(self, y):
            self.x += y * GAIN

    def f(counter):
        counter.add(1.0)

    found = certificate(f, (Counter.class_type.instance_type,))
    assert any(one.function.endswith("Counter.add") for one in found.sources)
    assert "GAIN" in {one.name for one in found.captures}


def test_externals_are_those_that_the_entry_reaches():
    def f(x):
        return np.sin(x)

    assert [one.symbol for one in certificate(f).externals] == ["sin"]
    assert all(one.reason and one.source for one in certificate(f).externals)


def test_the_same_question_has_the_same_certificate():
    assert certificate() == certificate()


# --- JSON -----------------------------------------------------------------------------------------


def test_json_round_trip():
    found = certificate()
    assert Certificate.from_json(json.loads(json.dumps(found.to_json()))) == found


def conforms(data, schema):
    """Check data against the part of JSON Schema that our schema uses."""
    if "const" in schema:
        return data == schema["const"]
    if "enum" in schema:
        return data in schema["enum"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types = {"string": str, "boolean": bool, "null": type(None), "object": dict, "array": list}
    if not any(isinstance(data, types[one]) for one in kinds):
        return False
    if isinstance(data, list):
        return all(conforms(one, schema["items"]) for one in data)
    if not isinstance(data, dict):
        return True
    known, others = schema.get("properties", {}), schema["additionalProperties"]
    return data.keys() >= set(schema.get("required", ())) and all(
        conforms(one, known[key]) if key in known else bool(others) and conforms(one, others)
        for key, one in data.items()
    )


def test_json_conforms_to_the_documented_schema():
    schema = json.loads((DOCS / "certificate.schema.json").read_text())
    data = certificate().to_json()
    assert data["sources"] and data["captures"] and data["externals"]
    assert conforms(data, schema)
    for key in data:
        assert not conforms({k: v for k, v in data.items() if k != key}, schema)
    assert not conforms({**data, "more": 1}, schema)
    assert not conforms({**data, "proved": "yes"}, schema)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema="alloccheck.certificate/9"), "schema must be"),
        (lambda d: d.pop("digest"), "digest must be a str, found None"),
        (lambda d: d.update(proved="yes"), "proved must be a bool, found 'yes'"),
        (lambda d: d.update(guarantee="fast"), "guarantee must be a guarantee, found 'fast'"),
        (lambda d: d["externals"].append({"symbol": 3}), r"externals\[1\].symbol must be a str"),
        (lambda d: d.update(sources=[7]), r"sources\[0\]. must be an object"),
        (lambda d: d.update(signed=True), "unknown key 'signed'"),
    ],
)
def test_what_is_no_certificate_is_refused_by_name(change, message):
    data = certificate().to_json()
    change(data)
    with pytest.raises(UsageError, match=message):
        Certificate.from_json(data)


# --- verification ---------------------------------------------------------------------------------


@pytest.fixture
def checked():
    table = np.arange(6.0)

    def make(scale):
        @check_allocs("float64(float64, int64)")
        def f(x, i):
            if i > 5:
                raise IndexError("beyond")
            return np.sin(x) * table[i] * scale

        return f

    made = make(3.0)
    made.table = table
    return made


def faults(function):
    return {(one.kind, one.subject.split(" ")[-1]) for one in function.verify().faults}


def artifact_of(function):
    return next(iter(function.artifacts.values()))


def test_an_untouched_function_is_verified(checked):
    checked(1.0, 2)
    checked.ctypes(1.0, 9)
    found = checked.verify()
    assert found.ok and bool(found)
    assert found.code_bytes > 100
    assert found.relocations > 5
    assert "verified" in str(found)


def test_verification_needs_a_signature_when_there_are_several():
    @check_allocs
    def f(x):
        return x

    f(1)
    f(1.0)
    with pytest.raises(TypeError, match="2 compiled signatures"):
        f.verify()
    assert f.verify("float64(float64)").ok
    with pytest.raises(UsageError, match=r"no artifact for \(int8\); it has: int64; float64"):
        f.verify("int8(int8)")


def _write(address, data):
    """Overwrite bytes, also where memory is not writable."""
    page = address & ~4095
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = address + len(data) - page
    assert libc.mprotect(page, size, 7) == 0
    ctypes.memmove(address, data, len(data))


def test_each_tampered_byte_of_code_is_found(checked):
    artifact = artifact_of(checked)
    object_file = artifact.object_file()
    (text,) = [one for one in object_file.sections if one.name == ".ltext"]
    base = artifact.image.sections[".ltext"]
    rng = np.random.default_rng(1)
    for offset in rng.integers(0, len(text.data), 40):
        old = ctypes.string_at(base + int(offset), 1)
        _write(base + int(offset), bytes([old[0] ^ 0x40]))
        found = checked.verify()
        _write(base + int(offset), old)
        assert not found.ok
        assert {one.kind for one in found.faults} <= {"code", "relocation"}
    assert checked.verify().ok


def test_tampering_names_function_and_place(checked):
    artifact = artifact_of(checked)
    old = ctypes.string_at(artifact.address, 1)
    _write(artifact.address, bytes([old[0] ^ 1]))
    (fault,) = checked.verify().faults
    _write(artifact.address, old)
    assert (fault.kind, fault.subject) == ("code", artifact.symbol)
    assert f"{artifact.address:#x}" in fault.message


def test_tampered_constants_are_found(checked):
    artifact = artifact_of(checked)
    base = artifact.image.sections[".lrodata"]
    old = ctypes.string_at(base, 1)
    _write(base, bytes([old[0] ^ 1]))
    found = checked.verify()
    _write(base, old)
    assert [one.kind for one in found.faults] == ["data"]


def test_a_call_that_leads_elsewhere_is_found(checked):
    artifact = artifact_of(checked)
    (place,) = [one for one in artifact.object_file().relocations if one.symbol == "sin"]
    address = artifact.image.sections[place.section] + place.offset
    old = ctypes.string_at(address, 8)
    _write(address, (ll.address_of_symbol("cos")).to_bytes(8, "little"))
    found = checked.verify()
    _write(address, old)
    assert [(one.kind, one.subject) for one in found.faults] == [("relocation", "sin")]


def test_a_rebound_symbol_is_found(checked):
    real = ll.address_of_symbol("sin")
    ll.add_symbol("sin", ll.address_of_symbol("cos"))
    try:
        found = checked.verify()
    finally:
        ll.add_symbol("sin", real)
    assert [(one.kind, one.subject) for one in found.faults] == [("symbol", "sin")]
    assert checked.verify().ok


def test_a_lost_environment_is_found(checked):
    (slot, *_) = artifact_of(checked).image.slots
    word = ctypes.c_uint64.from_address(slot.address)
    word.value += 8
    found = faults(checked)
    word.value -= 8
    assert found == {("slot", slot.symbol)}


def test_changed_captures_are_found(checked):
    checked.table[3] = 100.0
    assert faults(checked) == {("captured", "table")}
    checked.table[3] = 3.0
    assert checked.verify().ok


def test_a_rebound_global_is_found(monkeypatch):
    @check_allocs("float64(float64)")
    def f(x):
        return inner(x) + TABLE[0]

    monkeypatch.setitem(globals(), "GAIN", 5.0)
    (fault,) = f.verify().faults
    assert (fault.kind, fault.subject) == ("captured", f"{__name__}:inner GAIN")
    assert "float 2.0 was compiled in, float 5.0 is there now" in fault.message
    monkeypatch.setitem(globals(), "GAIN", 2.0)
    assert f.verify().ok
    monkeypatch.setitem(globals(), "inner", njit(lambda x: x))
    assert ("captured", "inner") in faults(f)
    monkeypatch.delitem(globals(), "TABLE")
    assert ("captured", "TABLE") in faults(f)


def test_replaced_code_of_a_callee_is_found(monkeypatch):
    def helper(x):
        return x + 1.0

    jitted = njit(helper)

    @check_allocs("float64(float64)")
    def f(x):
        return jitted(x)

    helper.__code__ = (lambda x: x + 2.0).__code__
    assert {one.kind for one in f.verify().faults} == {"captured"}


def test_verify_on_call_refuses_to_run_what_changed():
    table = np.zeros(3)

    @check_allocs(verify_on_call=True)
    def f(i):
        return table[i]

    assert f(1) == 0.0
    assert f(1) == 0.0
    table[2] = 1.0
    with pytest.raises(VerificationError, match=r"table of .* has other content") as caught:
        f(1)
    assert not caught.value.verification.ok
    table[2] = 0.0
    assert f(1) == 0.0


def test_an_exchanged_object_is_found(checked):
    import dataclasses

    def other(x):
        return x

    @check_allocs("float64(float64)")
    def g(x):
        return x

    mixed = dataclasses.replace(artifact_of(checked), object_code=artifact_of(g).object_code)
    assert "digest" in {one.kind for one in verify(mixed).faults}


# --- comparison ----------------------------------------------------------------------------------


def test_comparison_tells_what_changed_and_that_the_verdict_moved():
    def clean(x):
        return x[0]

    def dirty(x):
        return (x + 1.0)[0]

    before = certificate(clean, "float64(float64[::1])")
    after = certificate(dirty, "float64(float64[::1])")
    found = compare(before, after)
    assert found.verdict_moved and not found.same_code
    assert found.changes[0].part == "proved"
    assert any(one.part.startswith("external NRT_") for one in found.changes)
    assert compare(before, before).changes == ()


def test_comparison_names_settings_and_captured_values(monkeypatch):
    def f(x):
        return x * GAIN

    before = certificate(f)
    monkeypatch.setitem(globals(), "GAIN", 4.0)
    from numba.core import config

    monkeypatch.setattr(config, "LOOP_VECTORIZE", 0)
    changes = {one.part: (one.before, one.after) for one in compare(before, certificate(f)).changes}
    assert changes["configuration.settings.LOOP_VECTORIZE"] == ("1", "0")
    name = next(one for one in changes if one.startswith("captured GAIN"))
    assert changes[name][0].startswith("float 2.0")
    assert changes[name][1].startswith("float 4.0")
    assert "digest" in changes


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "signal_path.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from alloccheck import check_allocs

            @check_allocs("float64(float64)")
            def wave(x):
                return np.sin(x)

            def dirty(x):
                return np.ones(3) * x
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["certificate", *map(str, arguments)])


def test_show_of_function_and_file(module):
    shown = run("show", "signal_path.py:wave")
    assert shown.exit_code == 0, shown.output
    assert "proved nonallocating" in shown.stdout
    assert "sin  machine code" in shown.stdout
    as_json = run("show", "signal_path.py:wave", "--format", "json")
    file = module / "wave.json"
    file.write_text(as_json.stdout)
    assert run("show", file).stdout == shown.stdout
    dirty = run("show", "signal_path.py:dirty", "--signature", "float64[::1](float64)")
    assert dirty.exit_code == 1
    assert "NOT proved" in dirty.stdout


def test_verify_and_against(module):
    file = module / "wave.json"
    file.write_text(run("show", "signal_path.py:wave", "--format", "json").stdout)
    good = run("verify", "signal_path.py:wave", "--against", file)
    assert good.exit_code == 0, good.output
    assert "verified: " in good.stdout and "the same as" in good.stdout
    changed = json.loads(file.read_text())
    changed["digest"] = "0" * 64
    file.write_text(json.dumps(changed))
    bad = run("verify", "signal_path.py:wave", "--against", file)
    assert bad.exit_code == 1
    assert "machine code: different" in bad.stdout


def test_diff(module):
    file = module / "wave.json"
    file.write_text(run("show", "signal_path.py:wave", "--format", "json").stdout)
    same = run("diff", file, "signal_path.py:wave")
    assert same.exit_code == 0, same.output
    assert "verdict: unchanged (proved)" in same.stdout
    data = json.loads(file.read_text())
    data["proved"] = False
    data["configuration"]["versions"]["numba"] = "0.61.0"
    file.write_text(json.dumps(data))
    moved = run("diff", file, "signal_path.py:wave")
    assert moved.exit_code == 1
    assert "verdict: not proved -> proved" in moved.stdout
    assert "configuration.versions.numba: 0.61.0 -> " in moved.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "signal_path.py:dirty"), "has no signature"),
        (("show", "signal_path.py:missing"), "missing"),
    ],
)
def test_misuse_exits_with_2(module, arguments, message):
    found = run(*arguments)
    assert found.exit_code == 2
    assert message in found.output


def test_a_file_that_is_no_certificate_exits_with_2(module):
    (module / "x.json").write_text('{"schema": "other"}')
    (module / "y.json").write_text("not json")
    for name in ("x.json", "y.json"):
        found = run("show", module / name)
        assert found.exit_code == 2
        assert name in found.output

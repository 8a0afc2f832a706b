"""Reports as text, JSON and HTML."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path as FilePath
from typing import Any

import pytest

import alloccheck.report
from alloccheck.analysis.summary import Witness
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.findings import Assumption, Report, TypeHint, findings_from, only_seen_in
from alloccheck.report.excerpt import entry_name, trace
from alloccheck.report.html import render_html
from alloccheck.report.json import reports_to_json, to_json
from alloccheck.report.text import render_text
from alloccheck.source import Frame

NUMBA = "/opt/lib/python3.11/site-packages/numba/"
SOURCE = '''\
"""A limiter."""

import numpy as np


def peak(x, g):
    return np.abs(x) * g


def process(x, out, g, log):
    level = peak(x, g)
\tout[1:] = out[:-1]
    log.append(level[0])
    return level
'''.replace("\t", "    ")


def inside(place: str, line: int) -> Frame:
    file, _, function = place.rpartition(":")
    return Frame(NUMBA + file, line, None, function, inlined=True)


@pytest.fixture
def report(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> Report:
    file = tmp_path / "limiter.py"
    file.write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def user(line: int, function: str = "process", inlined: bool = False) -> Frame:
        return Frame(str(file), line, None, function, inlined)

    allocator = (
        inside("np/arrayobj.py:_ol_array_allocate.<locals>.impl", 4705),
        inside("np/arrayobj.py:_call_allocator", 4712),
    )
    every, returning = Occasion.EVERY_CALL, Path.RETURN
    array = Witness(
        Effect.ALLOCATE, returning, every, "NRT_MemInfo_alloc_aligned",
        "takes an aligned block from the allocator", "numba/core/runtime/nrt.cpp:210",
        (*allocator, user(7, "peak", inlined=True), user(11)),
    )  # fmt: skip
    witnesses = [
        array,
        dataclasses.replace(array, backtrace=(*array.backtrace[:-1], user(14))),
        Witness(
            Effect.ALLOCATE, returning, every, "NRT_Allocate", "takes a block",
            "numba/core/runtime/nrt.cpp:300", (user(12),), condition="the slices overlap",
        ),
        Witness(
            Effect.ALLOCATE, returning, every, "numba_list_append", "grows the list",
            "numba/cext/listobject.c:430",
            (inside("typed/listobject.py:impl_append.<locals>.impl", 601), user(13)),
        ),
        only_seen_in(
            Witness(Effect.ALLOCATE, returning, every, "malloc", "takes a block", "libc", ()),
            "machine code",
        ),
    ]  # fmt: skip
    return Report(
        function="limiter:process",
        file=str(file),
        line=10,
        signature="array(float64, 1d, C)(array(float64, 1d, C), array(float64, 1d, C), float64)",
        guarantee=Guarantee.NONALLOCATING,
        ignore_throw=True,
        findings=findings_from(
            witnesses,
            guarantee=Guarantee.NONALLOCATING,
            ignore_throw=True,
            first_call="prepare",
            types=lambda at: TypeHint("array(float64, 1d, C)") if at.line == 7 else None,
        ),
        effects=frozenset({Effect.ALLOCATE, Effect.FREE, Effect.UNKNOWN}),
        assumptions=(
            Assumption("ring:push", (Effect.ALLOCATE, Effect.BLOCK), "see test_ring", used=True),
            Assumption("ring:pop", (Effect.ALLOCATE,), "never <grows>", used=False),
        ),
        notes=("signal handlers are out of scope",),
        timings={"compile": 0.25},
    )


@pytest.fixture
def proved(report: Report) -> Report:
    return dataclasses.replace(report, findings=(), effects=frozenset(), assumptions=(), notes=())


def relative(text: str, report: Report) -> str:
    return text.replace(str(FilePath(report.file).parent) + "/", "")


def test_text_as_stored(report: Report, blessed):
    blessed("limiter.txt", render_text(report))


def test_json_as_stored(report: Report, blessed):
    blessed("limiter.json", relative(reports_to_json([report]), report))


def test_html_as_stored(report: Report, blessed):
    blessed("limiter.html", render_html(report).rstrip("\n"))


def test_shape_of_a_finding(report: Report):
    lines = render_text(report, width=200).splitlines()
    start = lines.index(
        "limiter.py:7:12: AC101 allocates array(float64, 1d, C) on every call: np.abs(x) * g"
    )
    entry = "process(array(float64, 1d, C), array(float64, 1d, C), float64)"
    inwards = (
        "limiter.py:7 peak <- numba/np/arrayobj.py:4712 _call_allocator"
        " <- numba/np/arrayobj.py:4705 impl"
    )
    assert lines[start + 1 : start + 8] == [
        "    7 |     return np.abs(x) * g",
        "      |            ^^^^^^^^^^^^^",
        f"   in {entry} limiter.py:11 <- {inwards}",
        f"   in {entry} limiter.py:14 <- {inwards}",
        "   because NRT_MemInfo_alloc_aligned: takes an aligned block from the allocator"
        " [numba/core/runtime/nrt.cpp:210]",
        "   help: write into a preallocated buffer"
        " (numba takes it as the last positional argument):"
        " `np.abs(x, buf); np.multiply(buf, g, buf)`",
        "",
    ]


def test_proved_is_one_line(proved: Report):
    assert render_text(proved) == f"proved nonallocating  limiter:process  {proved.signature}"


def test_verdict_is_the_last_line(report: Report):
    assert render_text(report).splitlines()[-1].startswith("not proved nonallocating  limiter:")
    assert render_text(report).endswith("  5 findings")


def test_width_wraps_traces_and_help_but_never_sources(report: Report):
    narrow = render_text(report, width=60).splitlines()
    for line in narrow:
        prose = line.startswith("   ") and not re.match(r" +\d* \|", line)
        if prose and len(line) > 60:
            assert line.startswith("   in process("), "only a single frame may stick out"
            assert " <- " not in line
    assert "    7 |     return np.abs(x) * g" in narrow
    assert narrow != render_text(report, width=200).splitlines()


def test_color_adds_only_colour(report: Report):
    coloured = render_text(report, color=True)
    assert "\x1b[" in coloured
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert plain == [line.rstrip() for line in render_text(report).splitlines()]


def test_str_and_notebook_and_json_of_a_report(report: Report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert str(report) == render_text(report)
    assert report._repr_html_() == render_html(report)
    assert report.to_json() == to_json(report)


def test_a_tab_before_the_expression_keeps_the_caret_below_it(tmp_path: FilePath, proved: Report):
    file = tmp_path / "tabs.py"
    file.write_text("def f(a, b):\n\treturn a + b\n")
    witness = Witness(
        Effect.ALLOCATE, Path.RETURN, Occasion.EVERY_CALL, "NRT_MemInfo_alloc_aligned", "", "",
        (Frame(str(file), 2, None, "f"),),
    )  # fmt: skip
    [finding] = findings_from(
        [witness], guarantee=Guarantee.NONALLOCATING, ignore_throw=True, first_call="prepare"
    )
    lines = render_text(dataclasses.replace(proved, findings=(finding,))).splitlines()
    assert lines[1].index("a + b") == lines[2].index("^^^^^")


# --- JSON ------------------------------------------------------------------------------------


SCHEMA = json.loads(
    (FilePath(alloccheck.report.__file__).parent / "schema.json").read_text(encoding="utf-8")
)
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
    "null": type(None),
}  # fmt: skip


def violations(value: Any, schema: dict[str, Any], at: str = "$") -> list[str]:
    """Check a value by the part of JSON Schema that our schema uses, and by no other key."""
    known = {"$ref", "$defs", "$schema", "$id", "title", "oneOf", "enum", "const", "type",
             "required", "properties", "additionalProperties", "items", "minimum", "minLength",
             "pattern", "uniqueItems"}  # fmt: skip
    assert set(schema) <= known, f"this checker does not know {set(schema) - known}"
    found: list[str] = []
    if "$ref" in schema:
        found += violations(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    if "oneOf" in schema:
        fitting = [one for one in schema["oneOf"] if not violations(value, one, at)]
        if len(fitting) != 1:
            found.append(f"{at}: fits {len(fitting)} forms")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} not in {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r} is not {schema['const']!r}")
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        matches = [
            isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool))
            for name in names
        ]
        if not any(matches):
            return [*found, f"{at}: {value!r} is not {names}"]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{at}: no {key}" for key in schema.get("required", []) if key not in value]
        for key, one in value.items():
            if key in properties:
                found += violations(one, properties[key], f"{at}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{at}: unknown {key}")
    if isinstance(value, list):
        for index, one in enumerate(value):
            found += violations(one, schema.get("items", {}), f"{at}[{index}]")
        if schema.get("uniqueItems") and len(set(value)) != len(value):
            found.append(f"{at}: repeats")
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"{at}: {value!r} does not match")
        if len(value) < schema.get("minLength", 0):
            found.append(f"{at}: too short")
    if type(value) is int and value < schema.get("minimum", value):
        found.append(f"{at}: too small")
    return found


def test_json_fits_the_schema(report: Report, proved: Report):
    for one in (report, proved):
        assert violations(to_json(one), SCHEMA) == []
    assert violations(json.loads(reports_to_json([report, proved])), SCHEMA) == []


@pytest.mark.parametrize("key", list(SCHEMA["$defs"]["report"]["required"]))
def test_schema_misses_each_key_that_is_left_out(report: Report, key: str):
    document = to_json(report)
    del document[key]
    assert violations(document, SCHEMA)


def test_schema_knows_every_word_of_the_field():
    definitions = SCHEMA["$defs"]
    finding = definitions["finding"]["properties"]
    assert definitions["effect"]["enum"] == [str(one) for one in Effect]
    assert finding["path"]["enum"] == [str(one) for one in Path]
    assert finding["occasion"]["enum"] == [str(one) for one in Occasion]
    assert definitions["report"]["properties"]["guarantee"]["enum"] == [str(g) for g in Guarantee]


def test_json_leaves_out_what_varies_between_runs(report: Report):
    other = dataclasses.replace(report, timings={"compile": 9.0})
    assert reports_to_json([report]) == reports_to_json([other])


def test_certificate_is_written_as_data(report: Report):
    @dataclasses.dataclass(frozen=True)
    class Certificate:
        digest: bytes
        externals: frozenset[str]
        guarantee: Guarantee

    certificate = Certificate(b"\x01\xff", frozenset({"sin", "cos"}), Guarantee.NONBLOCKING)
    document = to_json(dataclasses.replace(report, certificate=certificate))
    assert document["certificate"] == {
        "digest": "01ff",
        "externals": ["cos", "sin"],
        "guarantee": "nonblocking",
    }
    json.dumps(document)
    assert violations(document, SCHEMA) == []


def test_the_page_on_the_schema_names_every_key():
    page = (FilePath(__file__).parents[1] / "docs" / "json-schema.md").read_text(encoding="utf-8")
    for name, definition in SCHEMA["$defs"].items():
        for key in definition.get("properties", {}):
            assert f"`{key}`" in page, f"{name}.{key}"


# --- HTML ------------------------------------------------------------------------------------


def test_html_escapes_everything_of_the_users(report: Report):
    evil = "<script>alert('&')</script>"
    finding = dataclasses.replace(
        report.findings[0], message=evil, help=evil, reason=evil, source=evil, symbol=evil
    )
    html = render_html(
        dataclasses.replace(
            report,
            function=evil,
            findings=(finding,),
            assumptions=(Assumption(evil, (Effect.FREE,), evil, used=False),),
            notes=(evil,),
        )
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 10


def test_html_is_well_formed(report: Report):
    from xml.etree import ElementTree

    root = ElementTree.fromstring(render_html(report).replace("<br>", "<br/>").replace(" open", ""))
    assert [mark.text for mark in root.iter("mark")] == [
        "np.abs(x) * g",
        "out[1:] = out[:-1]",
        "log.append(level[0])",
    ]


def test_an_entry_without_a_file_is_named_alone(report: Report):
    # As the C entries, which are in no source.
    [finding] = [one for one in report.findings if one.code == "AC103"]
    entry = Frame("", 0, None, "cfunc.process")
    inner = dataclasses.replace(finding, backtrace=(*finding.backtrace, entry))
    first, second, *_ = trace(report, inner)
    assert first == entry_name(report)
    assert second.startswith("limiter.py:13 ")

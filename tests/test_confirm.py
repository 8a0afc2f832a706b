"""Confirming: findings that fire are marked, those that do not are not, and a false proof is loud.

Needs the oracle, so a C compiler; the fixture says so where there is none.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import find, given, settings
from hypothesis import strategies as st
from numba import typeof, types

import alloccheck
import confirm_programs as programs
from alloccheck import analyze
from alloccheck.check import Policy, explained
from alloccheck.cli import main
from alloccheck.compile.target import make_job
from alloccheck.confirm import confirm, subject
from alloccheck.confirm.match import confirmed_by
from alloccheck.confirm.names import signature_text
from alloccheck.confirm.strategies import arguments
from alloccheck.confirm.trial import Plan, run
from alloccheck.effects import Effect, Occasion
from alloccheck.effects import Path as Ending
from alloccheck.errors import ProofRefuted, UsageError
from alloccheck.findings import Confirmation, Finding, Trial
from alloccheck.oracle import CallCounts, Category, Event, Oracle, Place, made_by
from alloccheck.source import Frame
from test_report import SCHEMA, violations

pytestmark = pytest.mark.usefixtures("alloccheck_oracle")


def by_line(report):
    return {one.location.line: one.confirmation for one in report.findings}


def line_of(function, text):
    source = Path(programs.__file__).read_text().splitlines()
    start = function.__code__.co_firstlineno
    return next(n for n, line in enumerate(source[start:], start + 1) if text in line)


# --- findings -------------------------------------------------------------------------------------


def test_a_place_that_fires_is_told_from_one_that_does_not():
    """Both allocate by the same symbol: only the line tables tell them apart."""
    report = analyze(programs.two_places, "(float64[::1], int64)", confirm=True)
    seen = by_line(report)
    function = programs.two_places.py_func
    first = seen[line_of(function, "np.zeros(3)")]
    assert first.confirmed
    assert "malloc" in first.seen
    assert "x=array([], float64)" in first.input
    second = seen[line_of(function, "np.ones(5)")]
    assert second == Confirmation(False, None, f"not seen on {report.trial.inputs} inputs")
    assert report.trial.inputs >= 20
    assert report.trial.returned > 0


def test_generated_arguments_overlap():
    report = analyze(programs.shift, "(float64[::1], float64[::1])", confirm=True)
    [finding] = report.findings
    assert finding.code == "AC102"
    assert finding.confirmation.confirmed
    assert "memory overlaps" in finding.confirmation.input


def test_generated_numbers_are_negative_too():
    report = analyze(programs.negative_copies, "(float64[::1], int32)", confirm=True)
    assert [one.confirmation.confirmed for one in report.findings] == [True]
    assert "n=int32(-" in report.findings[0].confirmation.input


def test_calls_of_one_line_are_told_apart():
    report = analyze(programs.printing, "(int64,)", confirm=[(1,)])
    confirmed = {one.symbol for one in report.findings if one.confirmation.confirmed}
    assert "numba_gil_ensure" in confirmed
    assert "PyErr_WriteUnraisable" not in confirmed


def test_given_arguments_are_the_only_ones():
    report = analyze(
        programs.negative_copies,
        "(float64[::1], int64)",
        confirm=(np.arange(3.0), 1),
    )
    assert report.trial == Trial(1, 1, 0, 0, 0)
    assert not report.findings[0].confirmation.confirmed
    report = analyze(
        programs.negative_copies,
        "(float64[::1], int64)",
        confirm=[(np.arange(3.0), 1), (np.arange(2.0), -1)],
    )
    assert report.trial.inputs == 2
    assert report.findings[0].confirmation.input == "x=array([0.0, 1.0], float64), n=-1"


def test_given_strategies_are_drawn_from():
    report = analyze(
        programs.negative_copies,
        "(float64[::1], int64)",
        confirm=(np.arange(3.0), st.integers(-3, -2)),
    )
    assert report.findings[0].confirmation.confirmed
    assert "n=-" in report.findings[0].confirmation.input
    pairs = st.tuples(st.just(np.arange(2.0)), st.just(5))
    report = analyze(programs.negative_copies, "(float64[::1], int64)", confirm=pairs)
    assert not report.findings[0].confirmation.confirmed
    assert report.trial.inputs == 1


def test_a_proof_stays_a_proof_and_was_tried():
    report = analyze(programs.sums, "(float64[:],)", confirm=True)
    assert report.ok
    assert report.trial.returned == report.trial.inputs > 20


def test_functions_of_every_kind():
    callback = analyze(programs.callback, confirm=[(1.0,)])
    assert any(one.confirmation.confirmed for one in callback.findings)
    decorated = analyze(programs.decorated, "float64(float64[::1])", confirm=[(np.ones(3),)])
    assert all(one.confirmation.confirmed for one in decorated.findings)
    plain = analyze(programs.starred, "(float64, float64, float64)", confirm=True)
    assert plain.trial.inputs > 20
    assert all(one.confirmation.confirmed for one in plain.findings)
    omitted = analyze(programs.plain, "(float64,)", confirm=[(1.0,)])
    assert omitted.trial == Trial(1, 1, 0, 0, 0)


def test_literals_functions_named_tuples_and_records_are_arguments():
    """What Python cannot pass as such, or could not be sent before."""
    questions = [
        (programs.by_mode, (types.float64[::1], types.literal(1))),
        (programs.by_mode, (types.float64[::1], types.literal(0))),
        (programs.of_half, (typeof(programs.halved), types.float64)),
        (programs.of_point, (types.NamedTuple((types.int64, types.float64), programs.Point),)),
        (programs.of_records, (typeof(programs.RECORDS),)),
    ]
    reports = [analyze(function, kinds, confirm=True) for function, kinds in questions]
    assert [one.trial.note for one in reports] == [""] * 5
    assert all(one.trial.returned for one in reports)
    assert [one.ok for one in reports] == [False, True, True, True, True]
    assert all(
        one.confirmation.confirmed for one in reports[0].findings if one.effect == "allocate"
    )


def test_what_c_callbacks_take_is_generated():
    kinds = "float64(CPointer(float64), int64, CPointer(float64), voidptr)"
    clean = analyze(programs.window_sum, kinds, entry="c", confirm=True)
    assert clean.ok
    assert clean.trial.note == ""
    assert clean.trial.returned >= 20
    assert (clean.trial.crashed, clean.trial.late) == (0, 0)
    report = analyze(programs.window_copy, "float64(CPointer(float64), int64)", confirm=True)
    [finding] = report.findings
    assert finding.confirmation.confirmed
    assert "values=array of float64" in finding.confirmation.input


@pytest.mark.parametrize(
    "kind",
    [types.CPointer(types.CPointer(types.int8)), types.CPointer(types.none)],
    ids=str,
)
def test_what_is_behind_other_pointers_is_not_guessed(kind):
    with pytest.raises(UsageError, match="give arguments"):
        arguments([kind])


def test_no_number_beside_a_pointer_leads_out_of_its_memory():
    kinds = [types.CPointer(types.float32), types.int64, types.uint8, types.float64]

    @settings(max_examples=200, database=None)
    @given(arguments(kinds))
    def check(drawn):
        memory, first, second, _ = drawn
        assert memory.dtype == np.float32
        assert 0 <= first * second + max(first, second) <= memory.size

    check()


def test_sets_slices_enumerations_and_generators_are_arguments():
    x, kinds = types.float64[::1], types.Set(types.int64, reflected=True)
    questions = [
        (programs.has_member, (kinds, types.int64)),
        (programs.part, (x, types.slice2_type)),
        (programs.part, (x, types.slice3_type)),
        (programs.by_pace, (x, typeof(programs.Pace.SLOW), typeof(programs.Side.LEFT))),
        (programs.drawn, (types.npy_rng, types.int64)),
    ]
    reports = [analyze(function, kinds, confirm=True) for function, kinds in questions]
    assert [one.trial.note for one in reports] == [""] * 5
    assert all(one.trial.returned >= 20 for one in reports)
    assert [one.ok for one in reports] == [True, False, False, False, False]
    for one in reports[1:4]:
        assert all(f.confirmation.confirmed for f in one.findings if f.code == "AC101")


def test_the_c_entry_is_run():
    report = analyze(programs.two_places, "(float64[::1], int64)", entry="c", confirm=True)
    assert report.trial.inputs > 20
    assert [one.confirmation.confirmed for one in report.findings] == [True, False]


def test_options_reach_the_helper_process():
    """With overlapping arguments the entry guard raises: that refutes nothing."""
    kinds = "(float64[::1], float64[::1])"
    report = analyze(programs.shift_apart, kinds, disjoint=True, fastmath={"nnan"}, confirm=True)
    assert report.ok
    assert report.trial.note == ""
    assert report.trial.returned and report.trial.raised


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (programs.of_arrays_in_a_list, (types.ListType(types.float64[::1]),)),
        (programs.of_arrays_in_a_list, (types.ListType(types.int32[:]),)),
        (
            programs.of_pairs_in_a_dict,
            (types.DictType(types.int64, types.UniTuple(types.float64, 2)), types.int64),
        ),
    ],
)
def test_typed_containers_of_more_than_numbers_are_generated(function, kinds):
    trial = analyze(function, kinds, confirm=True).trial
    assert trial.note == ""
    assert trial.returned > 10


# --- what cannot be run ---------------------------------------------------------------------------


def test_what_cannot_be_generated_or_named_is_a_note():
    inner = analyze(programs.make(), "(float64,)", confirm=True)
    assert inner.trial.inputs == 0
    assert "No module-level name" in inner.trial.note
    assert not inner.findings[0].confirmation.confirmed
    other = analyze(programs.sums, (types.range_iter64_type,), confirm=True)
    assert "give arguments" in other.trial.note


def test_a_script_without_a_guard_does_not_start_itself_for_ever(tmp_path):
    """Its module is imported where it is measured, and would measure there again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from alloccheck import analyze\n"
        "def f(x):\n    return x\n"
        "print(analyze(f, '(float64,)', confirm=True).trial)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stdout


def test_calls_without_end_and_crashes_cost_their_input_alone():
    def plan(function, signature):
        made = make_job(function, signature)
        verdict = explained(made, Policy())
        text = signature_text(verdict.artifact.job.argument_types)
        return Plan(
            made_by(
                subject.checked, "confirm_programs", function.__name__, programs.__file__, text,
                "nonallocating", True, "prepare", "python", (),
            ),
            text,
            "numba",
            verdict.report.certificate.digest,
        )  # fmt: skip

    with Oracle() as oracle:
        tally = run(
            oracle,
            plan(programs.endless, "(int64,)"),
            [(3,), (0,), (3,)],
            None,
            lambda *seen: None,
            timeout=2.0,
            cold_timeout=120.0,
        )
        assert (tally.inputs, tally.returned, tally.late) == (3, 2, 1)
        process = oracle.pid
        far = (np.zeros(2), 1 << 45)
        tally = run(
            oracle,
            plan(programs.wild, "(float64[::1], int64)"),
            [(np.zeros(2), 1), far, (np.zeros(2), 0), far, far, (np.zeros(2), 1)],
            None,
            lambda *seen: None,
            cold_timeout=120.0,
        )
        assert oracle.pid == process
    assert (tally.returned, tally.crashed) == (2, 3)
    assert tally.note


def test_bad_questions_are_one_sentence():
    with pytest.raises(UsageError, match="confirm takes True, a tuple"):
        analyze(programs.sums, "(float64[::1],)", confirm=3.5)
    with pytest.raises(UsageError, match="must give tuples"):
        analyze(programs.sums, "(float64[::1],)", confirm=st.integers())
    with pytest.raises(UsageError, match="cannot be sent"):
        analyze(programs.sums, "(float64[::1],)", confirm=(object(),))


def test_without_hypothesis_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(UsageError, match=r"pip install 'alloccheck\[confirm\]'"):
        analyze(programs.sums, "(float64[::1],)", confirm=True)
    # Given arguments need none.
    assert analyze(programs.sums, "(float64[::1],)", confirm=(np.ones(2),)).trial.inputs == 1
    target = f"{programs.__file__}:sums"
    result = CliRunner().invoke(
        main, ["check", target, "--signature", "(float64[::1],)", "--confirm"]
    )
    assert result.exit_code == 2
    assert "alloccheck[confirm]" in result.stderr


# --- refutation -----------------------------------------------------------------------------------


def false_proof(function, signature, **policy):
    verdict = explained(make_job(function, signature), Policy.of(**policy))
    report = dataclasses.replace(verdict.report, findings=())
    assert report.ok
    return report, verdict.artifact, function, Policy.of(**policy)


def test_a_refuted_proof_is_a_loud_error():
    asked = false_proof(programs.two_places, "(float64[::1], int64)")
    with pytest.raises(ProofRefuted, match="PROOF REFUTED: confirm_programs:two_places") as caught:
        confirm(*asked)
    assert "call 1: allocate by malloc" in str(caught.value)
    assert "bug in alloccheck" in str(caught.value)
    assert caught.value.report.function == "confirm_programs:two_places"


def test_what_a_raising_call_does_refutes_only_proofs_about_raising():
    assert confirm(*false_proof(programs.raising, "(int64,)"), how=[(5,)]).trial.raised == 1
    with pytest.raises(ProofRefuted):
        confirm(*false_proof(programs.raising, "(int64,)", ignore_throw=False), how=[(5,)])


def test_the_command_tells_of_a_refuted_proof(monkeypatch):
    import alloccheck.check as check

    plain = check.explained

    def lying(job, policy):
        verdict = plain(job, policy)
        return dataclasses.replace(verdict, report=dataclasses.replace(verdict.report, findings=()))

    monkeypatch.setattr(check, "explained", lying)
    target = f"{programs.__file__}:two_places"
    result = CliRunner().invoke(
        main, ["check", target, "--signature", "(float64[::1], int64)", "--confirm"]
    )
    assert result.exit_code == 2
    assert "PROOF REFUTED" in result.stderr


# --- what is shown --------------------------------------------------------------------------------


def test_text_json_and_html_show_it():
    target = f"{programs.__file__}:two_places"
    arguments_ = ["check", target, "--signature", "(float64[::1], int64)", "--confirm"]
    text = CliRunner().invoke(main, arguments_)
    assert text.exit_code == 1
    assert "   confirmed: malloc of" in text.stdout
    assert "   unconfirmed: not seen on" in text.stdout
    assert "run to confirm: " in text.stdout
    result = CliRunner().invoke(main, [*arguments_, "--format", "json"])
    document = json.loads(result.stdout)
    assert violations(document, SCHEMA) == []
    [report] = document["reports"]
    assert report["trial"]["inputs"] > 20
    assert [one["confirmation"]["confirmed"] for one in report["findings"]] == [True, False]
    html = analyze(programs.two_places, "(float64[::1], int64)", confirm=[(np.ones(2), 1)])
    assert "<p>confirmed: malloc" in html._repr_html_()
    assert "run to confirm: 1 inputs tried" in html._repr_html_()


def test_a_report_that_was_not_run_does_not_speak_of_it():
    report = analyze(programs.two_places, "(float64[::1], int64)")
    shown = str(report) + json.dumps(report.to_json()) + report._repr_html_()
    for word in ("confirmed:", '"confirmation"', "run to confirm", '"trial"'):
        assert word not in shown


# --- matching -------------------------------------------------------------------------------------


def finding(effect=Effect.ALLOCATE, line=3, symbol="NRT_Allocate", path=Ending.RETURN):
    frames = (
        Frame("/lib/arrayobj.py", 10, None, "impl", True),
        Frame("/u/dsp.py", line, None, "f"),
    )
    return Finding(
        "AC101", effect, path, Occasion.EVERY_CALL, symbol, "allocates", None, None, None, frames,
        "", "", "", location=frames[-1],
    )  # fmt: skip


def event(name="malloc", category=Category.ALLOCATE, caller="NRT_Allocate"):
    return Event(name, category, 8, Place(1, caller, 0, "lib"), None)


def counted(*events, outcome="returned"):
    return CallCounts((), 0, events, outcome, "ValueError: no", None, (), None, True)


def at(*lines):
    return lambda event: lines


def test_an_event_that_two_findings_explain_confirms_neither():
    two = [finding(line=3), finding(line=4)]
    assert confirmed_by(two, counted(event()), at()) == {}
    assert list(confirmed_by(two, counted(event()), at(("arrayobj.py", 10), ("dsp.py", 4)))) == [1]
    assert list(confirmed_by(two[:1], counted(event()), at())) == [0]


def test_events_of_other_effects_confirm_nothing():
    free = event("free", Category.FREE, "NRT_Free")
    assert confirmed_by([finding()], counted(free), at()) == {}
    assert confirmed_by([finding(Effect.DISPATCH)], counted(event()), at()) == {}


def test_what_happens_only_when_raising_needs_a_raise():
    one = [finding(path=Ending.RAISE)]
    assert confirmed_by(one, counted(event()), at()) == {}
    assert list(confirmed_by(one, counted(event(), outcome="raised"), at())) == [0]


def test_a_raise_is_confirmed_by_raising():
    one = [finding(Effect.RAISE, symbol="raise")]
    assert list(confirmed_by(one, counted(outcome="raised"), at())) == [0]
    assert confirmed_by(one, counted(), at()) == {}


def test_the_called_symbol_decides_between_two_of_a_line():
    two = [finding(symbol="PyObject_Str"), finding(symbol="PyLong_FromLong")]
    inner = event(caller="_PyLong_New")
    assert confirmed_by(two, counted(inner), at()) == {}
    found = confirmed_by(two, counted(inner), at(), lambda event: "PyLong_FromLong")
    assert list(found) == [1]


# --- generated arguments --------------------------------------------------------------------------

KINDS = [
    types.int64,
    types.uint8,
    types.float32,
    types.complex128,
    types.boolean,
    types.unicode_type,
    types.none,
    types.Array(types.float64, 1, "C"),
    types.Array(types.float32, 2, "F"),
    types.Array(types.int32, 1, "C", readonly=True),
    types.UniTuple(types.float64, 2),
    types.Tuple((types.int64, types.Array(types.float64, 1, "C"))),
    types.NamedTuple((types.int64, types.float64), programs.Point),
    typeof(b"text"),
    types.NPDatetime("D"),
    types.Array(types.NPTimedelta("s"), 1, "C"),
    types.Array(types.UnicodeCharSeq(3), 1, "C"),
    typeof(programs.RECORDS),
    typeof(programs.RECORDS[0]),
    types.Array(types.boolean, 2, "C"),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_generated_values_are_of_the_type(kind):
    @settings(max_examples=30, database=None, deadline=None)
    @given(arguments([kind]))
    def holds(drawn):
        [value] = drawn
        found = typeof(value)
        if isinstance(kind, types.Array) and found != kind:
            # An array without two elements in a row has every layout at once.
            assert (value.flags.f_contiguous, found.dtype) == (True, kind.dtype)
            assert value.size <= 1 or 1 in value.shape
            return
        assert found == kind

    holds()


def test_generated_arrays_reach_the_corners():
    pair = arguments([types.Array(types.float64, 1, "C")] * 2)
    quick = settings(max_examples=2000, database=None, deadline=None)
    for wanted in (
        lambda a, b: a.size == 0,
        lambda a, b: a.size == 1,
        lambda a, b: a.size % 2 == 1 and a.size > 1,
        lambda a, b: a.size > 1000,
        lambda a, b: a.size != b.size,
        lambda a, b: a.size and np.shares_memory(a, b) and a.ctypes.data == b.ctypes.data,
        lambda a, b: a.size and np.shares_memory(a, b) and a.ctypes.data != b.ctypes.data,
        lambda a, b: bool(np.isnan(a).any()),
        lambda a, b: bool(np.isinf(a).any()),
    ):
        find(pair, lambda drawn, wanted=wanted: wanted(*drawn), settings=quick)
    strided = arguments([types.Array(types.float64, 2, "A")])
    find(strided, lambda drawn: drawn[0].size and drawn[0].strides[0] < 0, settings=quick)
    find(strided, lambda drawn: drawn[0].size and drawn[0].strides[1] == 16, settings=quick)


def test_names_of_types_are_read_back():
    others = [types.Optional(types.int64), types.ListType(types.float64)]
    literals = [types.literal(2), types.literal(True), types.literal("text")]
    for kind in [*KINDS, *others, *literals]:
        from numba.core import sigutils

        text = signature_text([kind], types.none)
        if text is not None:
            assert sigutils.normalize_signature(text) == ((kind,), types.none)
    assert signature_text([types.pyobject]) is None
    assert signature_text([types.Omitted(1)]) == "()"


def test_it_is_part_of_the_public_errors():
    assert alloccheck.ProofRefuted is ProofRefuted

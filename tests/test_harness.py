"""The harness itself: it must see what is missing, what is too much, and what is malformed."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace

import pytest

from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import Refused
from alloccheck.findings import Finding, Report
from alloccheck.source import Frame
from harness import (
    CaseError,
    Key,
    Mismatch,
    answer_of,
    check_case,
    load_case,
    merge,
    parse_annotations,
)

PROGRAM = '''
"""A program that allocates on one line and raises with an argument on another."""


def ENTRY(x):
    y = [x]  # ! allocate
    if x < 0:
        raise ValueError("negative", x)  # ! allocate raise NRT_Allocate
    return y[0]


SIGNATURE = "(float64,)"
RETURNS = "float64"
RAISES = True
'''
ALLOCATING_LINE, RAISING_LINE = 5, 7


@pytest.fixture
def write(tmp_path):
    def write_program(text=PROGRAM, name="program.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return write_program


def finding(
    file,
    line,
    effect=Effect.ALLOCATE,
    path=Path.RETURN,
    occasion=Occasion.EVERY_CALL,
    symbol="NRT_Allocate",
    code="AC101",
):
    backtrace = (
        Frame("/elsewhere/arrayobj.py", 99, None, "_call_allocator", True),
        Frame(str(file), 0, None, "ENTRY", True),
        Frame(str(file), line, None, "ENTRY"),
        Frame(str(file), 1, None, "outer"),
    )
    return Finding(
        code, effect, path, occasion, symbol, "", None, None, None, backtrace, "", "", ""
    )


def answering(findings, signature="float64(float64)", effects=(Effect.ALLOCATE, Effect.RAISE)):
    """A stand-in for `analyze` that finds what it is told, minus raise paths when asked to."""
    questions = []

    def analyze(function, asked_signature, **question):
        questions.append((function, asked_signature, question))
        kept = tuple(f for f in findings if not (question["ignore_throw"] and f.path is Path.RAISE))
        return Report(
            "program:ENTRY",
            "program.py",
            1,
            signature,
            Guarantee(question["guarantee"]),
            question["ignore_throw"],
            kept,
            frozenset(effects),
            certificate=SimpleNamespace(digest="d1"),
        )

    analyze.questions = questions
    return analyze


def exact(path):
    return [finding(path, ALLOCATING_LINE), finding(path, RAISING_LINE, path=Path.RAISE)]


def test_exact_findings_pass(write):
    path = write()
    analyze = answering(exact(path))
    report = check_case(load_case(path), analyze)
    assert len(report.findings) == 2
    (function, signature, first), (_, _, second) = analyze.questions
    assert function(2.0) == 2.0
    assert signature == "(float64,)"
    assert first == {
        "guarantee": "nonallocating",
        "ignore_throw": False,
        "first_call": "prepare",
        "entry": "python",
    }
    assert second == first | {"ignore_throw": True}


def test_missing_finding_fails(write):
    path = write()
    with pytest.raises(Mismatch, match=r"program.py:5: expected 'allocate', not found"):
        check_case(load_case(path), answering(exact(path)[1:]))


def test_extra_finding_fails_and_shows_the_annotation_to_write(write):
    path = write()
    extra = finding(path, 6, Effect.PYTHON, occasion=Occasion.FIRST_CALL, symbol="PyErr_Clear")
    with pytest.raises(Mismatch) as caught:
        check_case(load_case(path), answering([*exact(path), extra]))
    said = str(caught.value)
    assert "program.py:6: found 'python first-call' (PyErr_Clear), not expected" in said
    assert "6 |     if x < 0:  # ! python first-call" in said
    assert "5 |     y = [x]  # ! allocate" in said


def test_wrong_line_fails_twice(write):
    path = write()
    with pytest.raises(Mismatch) as caught:
        check_case(load_case(path), answering([finding(path, 6), exact(path)[1]]))
    assert "program.py:5: expected 'allocate', not found" in str(caught.value)
    assert "program.py:6: found 'allocate'" in str(caught.value)


def test_wrong_path_fails(write):
    path = write()
    with pytest.raises(Mismatch, match="expected 'allocate raise NRT_Allocate', not found"):
        check_case(load_case(path), answering([exact(path)[0], finding(path, RAISING_LINE)]))


def test_wrong_symbol_fails(write):
    path = write()
    other = finding(path, RAISING_LINE, path=Path.RAISE, symbol="malloc")
    with pytest.raises(Mismatch, match="found 'allocate raise' with malloc code=AC101"):
        check_case(load_case(path), answering([exact(path)[0], other]))


def test_finding_without_a_line_of_the_program_fails(write):
    path = write()
    stray = finding("/elsewhere/other.py", 3)
    with pytest.raises(Mismatch, match=r"program.py: \(no line of it\): found 'allocate'"):
        check_case(load_case(path), answering([*exact(path), stray]))


def test_wrong_return_type_and_wrong_raising_fail(write):
    path = write()
    with pytest.raises(Mismatch) as caught:
        check_case(
            load_case(path), answering(exact(path), "int64(float64)", effects=[Effect.ALLOCATE])
        )
    assert "expected to return float64, found int64(float64)" in str(caught.value)
    assert "expected that it may raise" in str(caught.value)


def test_verdict_without_raise_paths_is_asked_for(write):
    path = write(PROGRAM.replace("  # ! allocate\n", "\n"), "raising.py")
    case = load_case(path)
    assert case.proved
    stubborn = answering([finding(path, RAISING_LINE, path=Path.RAISE)])

    def deaf(function, signature, **question):
        return stubborn(function, signature, **(question | {"ignore_throw": False}))

    check_case(case, stubborn)
    with pytest.raises(Mismatch, match="with ignore_throw=True expected to be proved"):
        check_case(case, deaf)


def test_refusal(write):
    path = write(
        """
        \"\"\"Refused.\"\"\"


        def ENTRY(x):
            return x


        SIGNATURE = "(float64,)"
        REFUSED = "object mode"
        """
    )

    def refuse(function, signature, **question):
        raise Refused("object mode cannot be proved")

    def refuse_otherwise(function, signature, **question):
        raise Refused("something else")

    case = load_case(path)
    assert check_case(case, refuse) is None
    assert not case.proved
    with pytest.raises(Mismatch, match="does not match"):
        check_case(case, refuse_otherwise)
    with pytest.raises(Mismatch, match="expected to be refused"):
        check_case(case, answering([]))


def test_findings_of_one_line_are_merged_and_the_stronger_covers_the_weaker(tmp_path):
    file = tmp_path / "m.py"
    found = merge(
        [
            finding(file, 3),
            finding(file, 3, symbol="malloc"),
            finding(file, 3, path=Path.RAISE),
            finding(file, 3, occasion=Occasion.FIRST_CALL),
            finding(file, 3, Effect.PYTHON, path=Path.RAISE),
            finding(file, 4, path=Path.DIVERGE),
        ],
        file,
    )
    assert [(key.line, str(key)) for key in found] == [
        (3, "allocate"),
        (3, "python raise"),
        (4, "allocate diverge"),
    ]
    assert len(found[next(iter(found))]) == 2


def test_neither_of_two_incomparable_findings_covers_the_other():
    raising = Key(1, Effect.ALLOCATE, Path.RAISE, Occasion.EVERY_CALL)
    lazy = Key(1, Effect.ALLOCATE, Path.RETURN, Occasion.FIRST_CALL)
    assert not raising.covers(lazy)
    assert not lazy.covers(raising)
    assert not lazy.covers(lazy)


def test_answers_differ_when_findings_types_or_code_differ(write):
    path = write()
    case = load_case(path)
    base = answer_of(case, case.ask(answering(exact(path))))
    assert base.digest == "d1"
    assert base == answer_of(case, case.ask(answering(exact(path))))
    assert base != answer_of(case, case.ask(answering(exact(path)[:1])))
    assert base != answer_of(case, case.ask(answering(exact(path), "int64(float64)")))


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        ("# !allocate", "starts with '# ! '"),
        ("#! allocate", "starts with '# ! '"),
        ("# ! alocate", "unknown effect 'alocate'"),
        ("# ! ", "empty item"),
        ("# ! allocate;", "empty item"),
        ("# ! allocate raise return", "two values for the path"),
        ("# ! allocate first-call every-call", "two values for the occasion"),
        ("# ! allocate malloc free_it", "two values for the symbol"),
        ("# ! allocate python", "two effects"),
        ("# ! allocate code=101", "'AC' and three digits"),
        ("# ! allocate, python", "unknown effect"),
        ("# ! allocate =malloc", "cannot read"),
        ("# ! allocate; allocate malloc", "stated twice"),
        ("# ! allocate; allocate raise", "covers the other"),
    ],
)
def test_malformed_annotation_is_an_error(comment, complaint):
    with pytest.raises(CaseError, match=f"m.py:2: .*{complaint}"):
        parse_annotations(f"x = 1\ny = 2  {comment}\n", "m.py")


def test_annotation_on_a_line_of_its_own_is_an_error():
    with pytest.raises(CaseError, match="at the end of the line"):
        parse_annotations("# ! allocate\nx = 1\n")


def test_annotation_with_a_caret_is_about_the_line_of_code_above():
    source = (
        "def f(\n    x,\n):\n    y = g(x)  # ! allocate\n    # !^ python\n\n    # !^ free raise\n"
    )
    assert [(e.key.line, str(e)) for e in parse_annotations(source)] == [
        (4, "allocate"),
        (4, "python"),
        (4, "free raise"),
    ]


@pytest.mark.parametrize("source", ["# !^ allocate\n", "x = 1  # !^ allocate\n"])
def test_caret_without_a_line_above_or_at_the_end_of_a_line_is_an_error(source):
    with pytest.raises(CaseError, match="about the line above"):
        parse_annotations(source)


def test_annotations_in_strings_and_plain_comments_are_not_annotations():
    assert parse_annotations('x = "# ! nonsense"  # plain\n') == ()


@pytest.mark.parametrize("missing", ["ENTRY", "SIGNATURE"])
def test_case_without_a_question_is_an_error(write, missing):
    path = write(PROGRAM.replace(missing, "OTHER"), "incomplete.py")
    with pytest.raises(CaseError, match=f"{missing} is missing"):
        load_case(path)

"""Random programs whose proofs the oracle cannot refute; ``python -m tests.fuzz.soak`` has more."""

from __future__ import annotations

import ast
import contextlib
import re

import numpy as np
import pytest

from alloccheck.oracle import RemoteError, WorkerCrashed
from fuzz import soak, statements
from fuzz.minimise import minimised
from fuzz.programs import program
from fuzz.subject import QUESTIONS, setting
from fuzz.trial import Outcome, trial, witness
from fuzz.values import PARAMETERS, SIZES, overlapping

CHUNK = 15
PROGRAMS = 150


@pytest.fixture(scope="module")
def measuring():
    with witness() as found:
        yield found


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_no_proof_of_a_random_program_is_refuted(first, measuring, tmp_path):
    proved = 0
    for seed in range(first, first + CHUNK):
        outcomes = trial(seed, program(seed), tmp_path, measuring, all_programs=False)
        assert [one.question for one in outcomes] == list(QUESTIONS)
        for one in outcomes:
            if one.false_proof:
                pytest.fail(soak.explained(one, tmp_path))
        proved += outcomes[0].proved and outcomes[0].returned > 0
    # What is not proved cannot be refuted: such programs alone would be no test.
    assert proved >= CHUNK // 3


def test_a_seed_gives_one_program_and_another_seed_another():
    assert program(3) == program(3)
    assert len({program(seed) for seed in range(50)}) == 50


def test_every_statement_and_helper_is_used_by_some_program():
    texts = "\n".join(program(seed) for seed in range(3000))
    for line in (*statements.QUIET, *statements.LOUD):
        assert f" {line}\n" in texts, line
    for name in statements.HELPERS:
        assert re.search(rf"\b{name}\b", texts), name
    assert len({str(setting(seed)) for seed in range(500)}) > 40


def test_a_program_has_the_helpers_that_it_names_and_no_others():
    for seed in range(100):
        tree = ast.parse(program(seed))
        defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        named = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
        helpers = [statements.HELPERS[name] for name in named & set(statements.HELPERS)]
        expected = {name for text in helpers for name in re.findall(r"^def (\w+)", text, re.M)}
        assert defined - {"f"} == expected


@pytest.mark.parametrize("size", SIZES)
def test_arguments_overlap_as_the_setting_says(size):
    places = {}
    for overlap in ("same", "shifted", "apart"):
        x, y, s = overlapping(size, overlap)
        assert x.size == y.size == s.size == size
        assert np.shares_memory(x, s)
        places[overlap] = (y.ctypes.data - x.ctypes.data) // 8
    assert places == {"same": 0, "shifted": 1, "apart": size}


def test_a_false_proof_is_found_and_explained_by_the_smallest_program(
    measuring, tmp_path, monkeypatch
):
    """The witness itself: a program that allocates, with a verdict that was tampered with."""
    text = (
        program(2).partition("def f(")[0]
        + f"""
def f({", ".join(PARAMETERS)}):
    acc = a * n
    for i in range(2):
        x[i] = acc
        if n == 0:
            y[0], acc = np.ones(n + 3).sum(), 2.0
        acc += 1.0
    return acc
"""
    )
    seed = next(one for one in range(99) if setting(one)[0] == {} and setting(one)[2] == 0)
    honest = trial(seed, text, tmp_path, measuring, all_programs=True)
    assert not honest[0].proved
    assert any("allocate by" in one and one.startswith("input 1 ") for one in honest[0].refutations)

    def tampered(*asked, **options):
        found = trial(*asked, **{**options, "all_programs": True})
        return [Outcome(**{**vars(one), "proved": True}) for one in found]

    monkeypatch.setattr(soak, "trial", tampered)
    monkeypatch.setattr(soak, "program", lambda seed: text)
    (false, *_) = tampered(seed, text, tmp_path, measuring)
    assert false.false_proof
    told = soak.explained(false, tmp_path)
    assert "FALSE PROOF, nonallocating" in told
    assert "np.ones(" in told
    assert len(told.splitlines()) < 14, told


def test_a_program_is_made_smaller_as_long_as_it_is_interesting():
    asked = []

    def interesting(text):
        asked.append(text)
        return "needle(" in text and "for" in text

    text = "import math\n\ndef f(n):\n    a = 1\n    if n:\n        b = 2\n        for i in n:\n"
    text += "            c = needle(i + 3) * 2\n            d = 4\n    else:\n        e = 5\n"
    small = minimised(text, interesting)
    assert small == "def f(n):\n    for i in n:\n        c = needle(i)\n"
    assert len(asked) == len(set(asked)) < 100


def test_minimising_keeps_what_alone_is_interesting_and_stops_when_told_to():
    text = "a = 1\nb = 2\nc = 3\n"
    assert minimised(text, lambda one: "a" in one and "c" in one) == "a = 1\nc = 3\n"
    asked = []
    minimised(text, lambda one: bool(asked.append(one)), tries=2)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("proved", "returned", "seen", "false_proof", "alarm"),
    [
        (True, 1, ("malloc",), True, False),
        (True, 1, (), False, False),
        (False, 1, ("malloc",), False, False),
        (False, 1, (), False, True),
        (False, 0, (), False, False),
    ],
)
def test_an_outcome_tells_false_proofs_from_false_alarms(
    proved, returned, seen, false_proof, alarm
):
    outcome = Outcome(0, "nonallocating", proved, (), returned, seen)
    assert (outcome.false_proof, outcome.alarm) == (false_proof, alarm)


def test_the_table_counts_what_it_says():
    def outcome(seed, proved, *seen):
        return Outcome(seed, "nonblocking", proved, ("AC101 malloc",), 1, seen)

    found = [
        outcome(1, True),
        outcome(2, False),
        outcome(3, False, "malloc"),
        outcome(4, True, "x"),
    ]
    told = soak.table(found, [soak.Rejected(5, "TypingError", "")])
    assert "programs judged 4, not compiled or not measured 1" in told
    line = (
        "nonblocking: measured 4, proved 2, false proofs 1, never did it 2, of these not proved 1"
    )
    assert line in told
    assert "   1 AC101 malloc" in told


def test_a_crash_of_the_measuring_process_fails_a_soak():
    assert soak.Rejected(1, WorkerCrashed.__name__, "").fatal
    assert not soak.Rejected(1, "TypingError", "").fatal


def test_a_soak_that_was_broken_off_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    tried = []

    def trial(seed, *given, **named):
        tried.append(seed)
        if seed == 2:
            raise RemoteError("no such thing", "TypingError", "")
        return [Outcome(seed, "nonblocking", False, ("AC101 malloc",), 1, ())]

    monkeypatch.setattr(soak, "trial", trial)
    monkeypatch.setattr(soak, "witness", contextlib.nullcontext)
    words = ["soak", "3", "--first", "1", "--record", str(tmp_path / "record")]
    monkeypatch.setattr("sys.argv", [*words, "--seconds", "0"])
    assert soak.main() == 0
    tried.clear()
    monkeypatch.setattr("sys.argv", words)
    for _ in range(2):
        assert soak.main() == 0
        assert tried == [1, 2, 3]
        assert "programs judged 2, not compiled or not measured 1" in capsys.readouterr().out

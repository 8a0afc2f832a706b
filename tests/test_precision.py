"""Kinds of clean code that are proved, each counted as clean by the oracle, with unclean twins."""

from __future__ import annotations

from collections import Counter

import pytest

import precision_programs
from alloccheck import analyze, oracle
from alloccheck.effects import Guarantee
from precision_programs import PROGRAMS


def counted(name):
    program = PROGRAMS[name]
    arguments = [
        oracle.made_by(precision_programs.argument, name, i) for i in range(len(program.signature))
    ]
    counts = oracle.count_effects(oracle.made_by(precision_programs.entry, name), *arguments)
    assert counts.artifact
    assert counts.steady.outcome == "returned"
    return counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_clean_code_is_proved_and_its_twin_is_not(name):
    program = PROGRAMS[name]
    report = analyze(
        program.function, program.signature, guarantee=program.guarantee, **program.options
    )
    assert report.ok is program.clean, str(report)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_oracle_says_the_same(name):
    program, counts = PROGRAMS[name], counted(name)
    if program.clean:
        assert not counts.refutations(Guarantee(program.guarantee)), str(counts)
    else:
        assert counts.first_call.allocations > 0, str(counts)


def test_each_kind_has_two_clean_programs_and_a_twin():
    clean = Counter(one.kind for one in PROGRAMS.values() if one.clean)
    twins = Counter(one.kind for one in PROGRAMS.values() if not one.clean)
    assert set(clean) == set(twins)
    assert min(clean.values()) >= 2
    assert len(clean) >= 11

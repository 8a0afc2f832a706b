"""Random programs whose proofs the oracle cannot refute; ``python -m tests.fuzz.soak`` has more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from alloccheck import oracle
from alloccheck.effects import Guarantee
from fuzz.programs import program
from fuzz.trial import Outcome, trial

SEEDS = (0, 3, 5, 6, 7)


@pytest.fixture(scope="module")
def witness():
    paths = os.pathsep.join((str(Path(__file__).parent), *(one for one in sys.path if one)))
    with oracle.Oracle(environment={"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}) as found:
        yield found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_proof_of_a_random_program_is_refuted(seed, witness, tmp_path):
    outcomes = trial(seed, tmp_path, witness, all_programs=False)
    assert len(outcomes) == len(Guarantee)
    for one in outcomes:
        assert not one.false_proof, "\n".join((*one.refutations, program(seed)))


def test_a_seed_gives_one_program_and_another_seed_another():
    assert program(3) == program(3)
    assert len({program(seed) for seed in range(50)}) == 50


def test_an_outcome_tells_false_proofs_from_false_alarms():
    def outcome(proved, returned, *seen):
        return Outcome(0, Guarantee.NONALLOCATING, proved, (), returned, seen)

    assert outcome(True, 1, "malloc").false_proof
    assert not outcome(True, 1).false_proof
    assert not outcome(False, 1, "malloc").false_proof
    assert outcome(False, 1).alarm
    assert not outcome(False, 0).alarm
    assert not outcome(False, 1, "malloc").alarm

"""Every program under ``tests/cases``: the right findings, whatever happened before.

A program is asked about when nothing of it has been compiled, and again after histories that
change what stock Numba would answer. Findings, types and machine code must be the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import alloccheck
import measured
from alloccheck import oracle
from harness import Answer, Case, answer_of, case_files, check_case, load_case
from preludes import HISTORIES, histories_for, warm_disk_cache

FILES = case_files()
LOADED = {path.stem: load_case(path) for path in FILES}
ANSWERED = [path for path in FILES if LOADED[path.stem].refused is None]


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def named(*stems):
    paths = [path for path in FILES if path.stem in stems]
    assert len(paths) == len(stems)
    return paths


@pytest.fixture(scope="module")
def cold_answer():
    """Answers of programs of which nothing has been compiled, each asked for once."""
    answers: dict[Path, Answer] = {}

    def answer(path: Path) -> Answer:
        if path not in answers:
            case = load_case(path)
            answers[path] = answer_of(case, case.ask(alloccheck.analyze))
        return answers[path]

    return answer


@by_name(FILES)
def test_findings_are_those_annotated_also_after_hostile_histories(path):
    cold = load_case(path)
    report = check_case(cold, alloccheck.analyze)
    if report is None:
        return
    case = load_case(path)
    order = histories_for(case)
    for name in order:
        HISTORIES[name](case)
    found = answer_of(case, case.ask(alloccheck.analyze))
    assert found == answer_of(cold, report), f"after: {', '.join(order)}"


PRELUDES = [(path, name) for path in ANSWERED for name in LOADED[path.stem].preludes]


@pytest.mark.parametrize(
    ("path", "name"), PRELUDES, ids=[f"{path.stem}-{name}" for path, name in PRELUDES]
)
def test_answer_stands_after_the_histories_of_the_program(path, name, cold_answer):
    case = load_case(path)
    case.preludes[name]()
    assert answer_of(case, case.ask(alloccheck.analyze)) == cold_answer(path)


CACHED = named(
    "allocation_in_deep_helper",
    "callee_that_was_rewritten",
    "closures_of_one_name",
    "helper_shared_with_fast_caller",
    "mutual_recursion_int_float",
    "sum_over_row_views",
    "tuple_of_functions",
    "union_find_with_recursion",
)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of each file of a disk cache."""
    return {
        str(file): (file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*.nb[ic]"))
    }


@by_name(CACHED)
def test_disk_cache_is_neither_read_nor_written(path, tmp_path):
    copy = Path(shutil.copy(path, tmp_path))
    cold = load_case(copy)
    before = answer_of(cold, cold.ask(alloccheck.analyze))
    warm_disk_cache(load_case(copy))
    files = contents(tmp_path)
    assert files, "stock Numba wrote no cache: the test shows nothing"

    case = load_case(copy)
    dispatchers = [value for value in vars(case.module).values() if hasattr(value, "stats")]
    for dispatcher in dispatchers:
        dispatcher.enable_caching()
    assert answer_of(case, case.ask(alloccheck.analyze)) == before
    assert contents(tmp_path) == files
    for dispatcher in dispatchers:
        assert not dispatcher.stats.cache_hits
        assert not dispatcher.stats.cache_misses


MAIN = '''
"""A cached function whose callee stands in another file."""

from numba import njit
from rewritten_library import work


@njit(cache=True)
def ENTRY(a):
    return work(a) * 2


SIGNATURE = "(float64,)"
'''
FIRST_LIBRARY = """
import numpy as np
from numba import njit


@njit
def work(a):
    t = np.zeros(4)
    t[int(a)] = a
    return t[0] + t[1]
"""
SECOND_LIBRARY = """
from numba import njit


@njit
def work(a):
    return a + 100.0
"""


def test_rewritten_callee_is_not_taken_from_the_disk_cache(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    main, library = tmp_path / "main.py", tmp_path / "rewritten_library.py"

    def load(source: str) -> Case:
        library.write_text(source)
        sys.modules.pop("rewritten_library", None)
        return load_case(main)

    main.write_text(MAIN)
    assert load(FIRST_LIBRARY).module.ENTRY(1.0) == 2.0
    assert contents(tmp_path)
    stale = load(SECOND_LIBRARY)
    assert stale.module.ENTRY(1.0) == 2.0, "stock Numba is no longer fooled: the test shows nothing"

    case = load(SECOND_LIBRARY)
    assert case.ask(alloccheck.analyze).ok
    assert alloccheck.hermetic(case.entry.py_func)(1.0) == 202.0


FRESH = named(
    "callback_helper_shared_with_fast_caller",
    "dictionary_as_record",
    "helper_shared_with_fast_caller",
    "linear_solve",
    "mathematical_functions",
    "mutual_recursion_int_complex",
    "slice_helper_with_declared_layout",
    "typed_list_append",
)


@by_name(FRESH)
def test_answer_is_that_of_a_fresh_process(path, cold_answer):
    tests = Path(__file__).parent
    sources = Path(alloccheck.__file__).parents[1]
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(tests / "case_answer.py"), str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(sources), str(tests)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == json.loads(json.dumps(asdict(cold_answer(path))))


VALUED = [path for path in ANSWERED if hasattr(LOADED[path.stem].module, "RESULT")]


@by_name(VALUED)
def test_checked_code_gives_the_value_of_the_program(path):
    for history in (None, *LOADED[path.stem].preludes):
        case = load_case(path)
        if history is not None:
            case.preludes[history]()
        function = measured.decorated(case, alloccheck.hermetic(**case.options))
        assert case.arguments is not None
        result = function(*case.arguments())
        assert result == case.module.RESULT, history
        assert type(result) is type(case.module.RESULT), history


COUNTED = [
    path
    for path in ANSWERED
    if LOADED[path.stem].proved and LOADED[path.stem].arguments is not None
]


@by_name(COUNTED)
def test_proved_program_takes_no_memory_when_it_runs(path):
    case = LOADED[path.stem]
    counts = oracle.count_effects(
        oracle.made_by(measured.checked_entry, str(path)),
        *(oracle.made_by(measured.argument, str(path), i) for i in range(len(case.arguments()))),
    )
    assert counts.artifact, "what was counted is not the code that was proved"
    assert counts.allocations == 0, str(counts)


def test_programs_that_pass_and_programs_that_fail_are_balanced():
    verdicts = [case.proved for case in LOADED.values()]
    assert verdicts.count(True) >= 30
    assert verdicts.count(False) >= 30

"""Witnesses become findings: what is dropped, merged, coded, said and advised."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path as FilePath

import pytest

from alloccheck import help
from alloccheck.analysis.summary import Witness
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.expressions import expressions_on, into_buffer, likely_expression
from alloccheck.findings import Finding, TypeHint, findings_from, only_seen_in
from alloccheck.source import Frame

NUMBA = "/opt/lib/python3.11/site-packages/numba/"


def witness(
    symbol: str = "NRT_MemInfo_alloc_aligned",
    backtrace: tuple[Frame, ...] = (),
    effect: Effect = Effect.ALLOCATE,
    path: Path = Path.RETURN,
    occasion: Occasion = Occasion.EVERY_CALL,
    **more: object,
) -> Witness:
    return Witness(effect, path, occasion, symbol, "it does", "nrt.cpp:1", backtrace, **more)  # type: ignore[arg-type]


def find(*witnesses: Witness, **options: object) -> tuple[Finding, ...]:
    settings: dict[str, object] = {
        "guarantee": Guarantee.NONALLOCATING,
        "ignore_throw": True,
        "first_call": "prepare",
    }
    return findings_from(witnesses, **{**settings, **options})  # type: ignore[arg-type]


@pytest.fixture
def at_line(tmp_path: FilePath):
    """Give a backtrace that ends in a user's file of one function with the given line."""

    def build(line: str, *inner: str, column: int | None = None) -> tuple[Frame, ...]:
        file = tmp_path / f"user{len(list(tmp_path.iterdir()))}.py"
        file.write_text(f"def f(a, b, n):\n    {line}\n")
        frames = []
        for place in inner:
            name, _, function = place.rpartition(":")
            frames.append(Frame(NUMBA + name, 100, None, function, inlined=True))
        return (*frames, Frame(str(file), 2, column, "f"))

    return build


ALLOCATOR = ("np/arrayobj.py:_ol_array_allocate.<locals>.impl", "np/arrayobj.py:_call_allocator")
EMPTY = (*ALLOCATOR, "np/arrayobj.py:ol_np_empty.<locals>.impl")


# --- which witnesses count -------------------------------------------------------------------


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_exactly_the_forbidden_effects_are_found(effect: Effect, guarantee: Guarantee):
    found = find(witness(effect=effect), guarantee=guarantee)
    forbidden = {"allocate", "python", "dispatch", "unknown"}
    if guarantee == "nonblocking":
        forbidden |= {"free", "block"}
    assert bool(found) == (str(effect) in forbidden)


def test_raise_path_counts_only_without_ignore_throw():
    raising = witness(path=Path.RAISE)
    assert find(raising) == ()
    [finding] = find(raising, ignore_throw=False)
    assert finding.path is Path.RAISE
    assert "when it raises" in finding.message


def test_diverging_path_counts_always():
    [finding] = find(witness(path=Path.DIVERGE))
    assert "loop that never ends" in finding.message


def test_raise_itself_is_no_allocation():
    assert find(witness(effect=Effect.RAISE, path=Path.RAISE), ignore_throw=False) == ()


@pytest.mark.parametrize(
    ("first_call", "occasion", "prepared", "counts"),
    [
        ("prepare", Occasion.FIRST_CALL, True, False),
        ("prepare", Occasion.FIRST_CALL, False, True),
        ("prepare", Occasion.FIRST_CALL_PER_THREAD, True, True),
        ("prepare", Occasion.EVERY_CALL, True, True),
        ("forbid", Occasion.FIRST_CALL, True, True),
        ("forbid", Occasion.FIRST_CALL_PER_THREAD, True, True),
        ("allow", Occasion.FIRST_CALL, False, False),
        ("allow", Occasion.FIRST_CALL_PER_THREAD, False, False),
        ("allow", Occasion.EVERY_CALL, True, True),
    ],
)
def test_first_call(first_call: str, occasion: Occasion, prepared: bool, counts: bool):
    found = find(
        witness("numba_xxgemv", occasion=occasion),
        first_call=first_call,
        prepared=frozenset({"numba_xxgemv"} if prepared else {"other"}),
    )
    assert bool(found) == counts


def test_per_thread_set_up_names_prepare_thread():
    [finding] = find(witness("numba_get_np_random_state", occasion=Occasion.FIRST_CALL_PER_THREAD))
    assert "prepare_thread()" in finding.help
    assert finding.code == "AC113"
    assert "first call per thread" in finding.message


# --- order and merging -----------------------------------------------------------------------


def test_order_is_by_place_whatever_the_input(at_line):
    first = at_line("return a + b", *ALLOCATOR)
    second = (*first[:-1], Frame(first[-1].file, 7, None, "g"))
    witnesses = [witness(backtrace=second), witness(backtrace=first), witness("malloc")]
    lines = [one.location and one.location.line for one in find(*witnesses)]
    assert lines == [None, 2, 7]
    assert find(*witnesses) == find(*reversed(witnesses))


def test_equal_witnesses_merge_and_the_returning_path_wins():
    found = find(witness(path=Path.DIVERGE), witness(), witness(path=Path.RAISE), witness())
    assert [one.path for one in found] == [Path.RETURN]


def test_several_call_sites_stay_apart(at_line):
    deep = at_line("return a + b", *ALLOCATOR)
    found = find(
        witness(backtrace=(*deep, Frame("main.py", 4, None, "main"))),
        witness(backtrace=(*deep, Frame("main.py", 9, None, "main"))),
    )
    assert [one.backtrace[-1].line for one in found] == [4, 9]


# --- codes and help, by causes as Numba really shows them ------------------------------------

CAUSES = [
    # symbol, line, implementation frames, code, words of help
    ("NRT_MemInfo_alloc_aligned", "return a + b", ALLOCATOR, "AC101", "np.add(a, b, buf)"),
    ("NRT_MemInfo_alloc_aligned", "return np.abs(a)", ALLOCATOR, "AC101", "np.abs(a, buf)"),
    ("NRT_MemInfo_alloc_aligned", "return a[a > 0]", ALLOCATOR, "AC101", "np.greater(a, 0, buf)"),
    ("NRT_MemInfo_alloc_aligned", "return a[b]", ALLOCATOR, "AC101", "indices"),
    ("NRT_MemInfo_alloc_aligned", "return a.astype(n)", ALLOCATOR, "AC101", "element by element"),
    ("NRT_MemInfo_alloc_aligned", "return a.copy()", ALLOCATOR, "AC101", "contiguous"),
    ("NRT_MemInfo_alloc_aligned", "return np.where(a, b, n)", ALLOCATOR, "AC101", "`if`"),
    ("NRT_Allocate", "a[:] = b", (), "AC102", "element by element"),
    ("NRT_Allocate", "a[1:] = a[:-1]", (), "AC102", "element by element"),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.zeros(n)",
        (*EMPTY, "np/arrayobj.py:ol_np_zeros.<locals>.impl"),
        "AC101",
        "scratch",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.arange(n)",
        (*EMPTY, "np/arrayobj.py:np_arange.<locals>.impl"),
        "AC101",
        "range",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.concatenate((a, b))",
        (*ALLOCATOR, "np/arrayobj.py:impl_np_concatenate.<locals>.impl"),
        "AC101",
        "each part",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.sort(a)",
        (*ALLOCATOR, "np/arrayobj.py:impl_np_sort.<locals>.np_sort_impl"),
        "AC101",
        "sort that in place",
    ),
    (
        "NRT_MemInfo_new_varsize_dtor",
        "a.sort()",
        ("misc/quicksort.py:make_quicksort_impl.<locals>.run_quicksort1",),
        "AC112",
        "insertion sort",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return a.T.ravel()",
        (*ALLOCATOR, "np/arrayobj.py:array_flatten.<locals>.imp"),
        "AC101",
        ".flat",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.ascontiguousarray(a)",
        (*ALLOCATOR, "np/arrayobj.py:array_ascontiguousarray.<locals>.impl"),
        "AC101",
        "float64[::1]",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.array((n, n))",
        (*ALLOCATOR, "np/arrayobj.py:impl_np_array.<locals>.impl"),
        "AC101",
        "tuple",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return a.sum(axis=0)",
        (*ALLOCATOR, "np/arraymath.py:array_sum.<locals>.array_sum_impl"),
        "AC101",
        "axis",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.cumsum(a)",
        (*ALLOCATOR, "np/arraymath.py:array_cumsum.<locals>.array_cumsum_impl"),
        "AC101",
        "loop",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return a @ b",
        (*EMPTY, "np/linalg.py:dot_2_mv.<locals>.dot_impl"),
        "AC101",
        "np.dot(A, x, out)",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.dot(a[:, 0], b)",
        (*ALLOCATOR, "np/linalg.py:dot_2_impl.<locals>.<lambda>"),
        "AC101",
        "contiguous",
    ),
    (
        "numba_xxgemm",
        "np.dot(a, b, n)",
        ("np/linalg.py:dot_3.<locals>.<lambda>",),
        "AC107",
        "OpenBLAS",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.linalg.solve(a, b)",
        (*EMPTY, "np/linalg.py:solve_impl.<locals>.solve_impl"),
        "AC107",
        "factorise",
    ),
    (
        "numba_ez_gesdd",
        "return np.linalg.svd(a)",
        ("np/linalg.py:svd_impl.<locals>.svd_impl",),
        "AC107",
        "decomposition",
    ),
    (
        "NRT_MemInfo_alloc_aligned",
        "return np.random.normal(0, 1, n)",
        (*EMPTY, "np/random/legacy.py:np_gauss_impl3.<locals>._impl"),
        "AC101",
        "one at a time",
    ),
    (
        "NRT_MemInfo_alloc",
        "return str(n)",
        (
            "cpython/unicode.py:integer_str.<locals>.impl",
            "cpython/builtins.py:ol_str_generic.<locals>.impl",
        ),
        "AC105",
        "store the number",
    ),
    (
        "NRT_MemInfo_alloc",
        "return a + b",
        (
            "cpython/unicode.py:_empty_string",
            "cpython/unicode.py:unicode_concat.<locals>.concat_impl",
        ),
        "AC105",
        "immutable",
    ),
    ("NRT_Allocate", "raise ValueError('bad', n)", (), "AC106", "constant arguments"),
    (
        "NRT_Allocate",
        "return a[n]",
        ("typed/dictobject.py:impl_getitem.<locals>.impl",),
        "AC106",
        "d.get(key, default)",
    ),
    (
        "NRT_MemInfo_alloc",
        "a[:] = b",
        (
            "cpython/unicode.py:integer_str.<locals>.impl",
            "np/arrayobj.py:ol_raise_with_shape_context_cpu.<locals>.impl",
        ),
        "AC106",
        "shapes",
    ),
    (
        "numba_dict_insert",
        "a[n] = 1.0",
        ("typed/dictobject.py:impl_setitem.<locals>.impl",),
        "AC104",
        "every key beforehand",
    ),
    (
        "numba_dict_new_sized",
        "d = Dict.empty(a, b)",
        ("typed/dictobject.py:impl_new_dict.<locals>.imp",),
        "AC104",
        "pass it in",
    ),
    (
        "numba_list_append",
        "a.append(1.0)",
        ("typed/listobject.py:impl_append.<locals>.impl",),
        "AC103",
        "counter",
    ),
    (
        "numba_list_new",
        "l = List()",
        ("typed/listobject.py:impl_new_list.<locals>.imp",),
        "AC103",
        "outside",
    ),
    ("NRT_MemInfo_varsize_realloc", "l.append(3)", (), "AC103", "counter"),
    ("NRT_MemInfo_new_varsize_dtor", "l = [i for i in a]", (), "AC103", "preallocated"),
    (
        "NRT_MemInfo_new_varsize_dtor",
        "return sorted(a)[0]",
        ("cpython/listobj.py:list_constructor_iterable.<locals>.list_impl",),
        "AC103",
        "`sorted()`",
    ),
    ("NRT_MemInfo_varsize_alloc", "s.add(n)", (), "AC111", "boolean array"),
    ("NRT_MemInfo_alloc_dtor", "return Particle(n).x", (), "AC108", "outside"),
    ("NRT_MemInfo_alloc", "g = lambda: n", (), "AC109", "arguments"),
    ("allocate_sched", "for i in prange(n): a[i] = 0", (), "AC110", "parallel=True"),
    ("malloc", "c_function(a)", (), "AC199", "outside"),
]


@pytest.mark.parametrize(("symbol", "line", "inner", "code", "words"), CAUSES)
def test_cause_has_its_code_and_remedy(at_line, symbol, line, inner, code, words):
    [finding] = find(witness(symbol, at_line(line, *inner)))
    assert (finding.code, words in finding.help) == (code, True), finding.help


OTHER_EFFECTS = [
    (Effect.PYTHON, "PySys_FormatStdout", "print(n)", (), "AC404", "ring buffer"),
    (Effect.PYTHON, "PyObject_CallFunctionObjArgs", "g(n)", (), "AC401", "objmode"),
    (Effect.PYTHON, "PyErr_WriteUnraisable", "g(n)", (), "AC403", "status"),
    (Effect.PYTHON, "numba_get_np_random_state", "g(n)", (), "AC402", "prepare_thread()"),
    (Effect.BLOCK, "numba_gil_ensure", "g(n)", (), "AC301", "interpreter"),
    (Effect.BLOCK, "numba_parallel_for", "g(n)", (), "AC302", "parallel=True"),
    (Effect.BLOCK, "nanosleep", "g(n)", (), "AC303", "sleep"),
    (Effect.BLOCK, "NRT_Allocate", "g(n)", (), "AC304", "allocation"),
    (Effect.FREE, "NRT_decref", "g(n)", (), "AC201", "reference"),
    (Effect.FREE, "NRT_Free", "g(n)", (), "AC202", "same line"),
    (Effect.DISPATCH, "numba.dynamic.globals.7f00", "g(n)", (), "AC502", "assume("),
    (Effect.DISPATCH, "a loaded pointer", "return g(n)", (), "AC501", "by its name"),
    (Effect.DISPATCH, "a loaded pointer", "n = 1", (), "AC599", "assume("),
    (
        Effect.DISPATCH,
        "a loaded pointer",
        "return g.random()",
        ("np/random/generator_core.py:_generate_next_binding",),
        "AC503",
        "prepare_thread()",
    ),
    (Effect.UNKNOWN, "some_library_call", "g(n)", (), "AC801", "contracts"),
    (Effect.UNKNOWN, "inline assembly", "g(n)", (), "AC802", "assume("),
]


@pytest.mark.parametrize(("effect", "symbol", "line", "inner", "code", "words"), OTHER_EFFECTS)
def test_other_effects(at_line, effect, symbol, line, inner, code, words):
    [finding] = find(
        witness(symbol, at_line(line, *inner), effect=effect), guarantee=Guarantee.NONBLOCKING
    )
    assert (finding.code, words in finding.help) == (code, True), finding.help


def test_readers_that_disagree():
    [machine] = find(only_seen_in(witness("malloc"), "machine code"))
    [ir] = find(only_seen_in(witness("malloc"), "IR"))
    assert (machine.code, ir.code) == ("AC901", "AC902")
    assert machine.effect is Effect.UNKNOWN
    assert "may allocate, but only the machine code shows it" in machine.reason


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize("occasion", list(Occasion))
def test_every_effect_has_a_code_of_its_family_whatever_the_symbol(effect, occasion):
    for symbol in ("", "?", "zzz", "NRT_Free", "numba_xxgemm", "PyObject_Str"):
        advice = help.advise(witness(symbol, effect=effect, occasion=occasion))
        assert advice.code.startswith(help.FAMILIES[effect])
        assert advice.code in help.codes()
        assert advice.what
        assert advice.help


def test_rules_are_sound_as_a_table():
    names = [rule.name for rule in help.rules()]
    assert len(set(names)) == len(names)
    used = {rule.code for rule in help.rules()} - {""}
    assert used == set(help.codes()), "every code is used and every used one is listed"
    for rule in help.rules():
        if rule.code and not rule.code.startswith("AC9"):
            families = {help.FAMILIES[effect] for effect in rule.effects}
            assert families == {rule.code[:3]}, rule.name


def test_rules_name_functions_that_numba_has():
    """A pattern of an implementation frame that fits nothing is a rule that never speaks."""
    import numba

    root = FilePath(numba.__file__).parent
    sources = {
        f"numba/{file.relative_to(root).as_posix()}": file.read_text(encoding="utf-8")
        for file in root.rglob("*.py")
        if "tests" not in file.parts
    }
    silent = []
    for rule in help.rules():
        for pattern in rule.within:
            file, _, function = pattern.partition(":")
            files = [name for name in sources if fnmatch.fnmatchcase(name, file)]
            wanted = re.compile(r"def \w*" + function.strip("*").replace("*", r"\w*"))
            if not any(wanted.search(sources[name]) for name in files):
                silent.append(f"{rule.name}: {pattern}")
    assert not silent


# --- messages --------------------------------------------------------------------------------


def test_message_names_type_and_expression(at_line):
    backtrace = at_line("peak = np.abs(a) * n", *ALLOCATOR)
    asked: list[Frame] = []

    def types(frame: Frame) -> TypeHint:
        asked.append(frame)
        return TypeHint("array(float64, 1d, C)")

    [finding] = find(witness(backtrace=backtrace), types=types)
    assert asked == [backtrace[-1]]
    assert finding.message == "allocates array(float64, 1d, C) on every call: np.abs(a) * n"
    assert finding.type == "array(float64, 1d, C)"
    assert finding.help.endswith("`np.abs(a, buf); np.multiply(buf, n, buf)`")


def test_message_gives_size_when_no_type_is_known():
    [finding] = find(witness("malloc", size=64))
    assert finding.message == "allocates 64 bytes on every call"


def test_message_counts_one_byte():
    [finding] = find(witness("malloc", size=1))
    assert finding.message == "allocates 1 byte on every call"


def test_message_gives_condition():
    [finding] = find(witness("numba_dict_insert", condition="only when the table is full"))
    assert finding.message == (
        "may allocate room for a new key of a dict on every call (only when the table is full)"
    )


def test_remedy_is_a_sentence_where_there_is_no_rewriting(at_line):
    inner = ALLOCATOR
    [finding] = find(witness(backtrace=at_line("return np.abs(a) * np.abs(a)", *inner)))
    assert finding.help == (
        "write into a preallocated buffer (numba takes it as the last positional argument), or "
        "loop over the elements"
    )


@pytest.mark.parametrize(("effect", "code"), [(Effect.FREE, "AC299"), (Effect.BLOCK, "AC399")])
def test_linear_algebra_is_named_in_its_other_effects(effect, code):
    [finding] = find(witness("numba_xxgemv", effect=effect), guarantee=Guarantee.NONBLOCKING)
    assert finding.code == code
    assert "BLAS" in finding.message
    assert "linear algebra" in finding.help


@pytest.mark.parametrize(
    ("effect", "symbol", "message"),
    [
        (Effect.FREE, "NRT_decref", "may free the object of a reference that may be the last one"),
        (Effect.BLOCK, "numba_gil_ensure", "may wait for the interpreter lock"),
        (Effect.PYTHON, "PyList_New", "enters the interpreter at PyList_New"),
        (Effect.DISPATCH, "?", "calls through a pointer, whose target is not known"),
        (Effect.UNKNOWN, "rt_push", "reaches rt_push, which no contract describes"),
        (Effect.UNKNOWN, "inline assembly", "reaches inline assembly, which could not be read"),
    ],
)
def test_message_of_each_effect(effect, symbol, message):
    [finding] = find(witness(symbol, effect=effect), guarantee=Guarantee.NONBLOCKING)
    always = effect not in (Effect.DISPATCH, Effect.UNKNOWN)
    assert finding.message == message + (" on every call" if always else "")


def test_compiler_knows_the_expression_better(at_line):
    [finding] = find(
        witness(backtrace=at_line("x = a + b", *ALLOCATOR)),
        types=lambda frame: TypeHint("array(int64, 1d, C)", "a + b + 1"),
    )
    assert finding.expression == "a + b + 1"


def test_location_is_the_innermost_user_frame_with_a_line(at_line):
    backtrace = at_line("return a + b", *ALLOCATOR)
    lost = Frame(backtrace[-1].file, 0, None, "helper")
    [finding] = find(witness(backtrace=(*backtrace[:-1], lost, backtrace[-1])))
    assert finding.location is not None
    assert (finding.location.line, finding.location.column, finding.end_column) == (2, 12, 17)


def test_frames_of_c_code_are_nobodys_line():
    assert help.user_frame((Frame("libc.so.6", 0, None, "malloc"),)) is None


# --- expressions -----------------------------------------------------------------------------


def one_file(tmp_path: FilePath, source: str) -> str:
    file = tmp_path / "source.py"
    file.write_text(source, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = a + b * c", "a + b * c"),
        ("y = g(a + b)", "g(a + b)"),
        ("y[1:] = x", "y[1:] = x"),
        ("a += b", "a += b"),
        ("return x.sum(axis=0)", "x.sum(axis=0)"),
        ("y = (a + b, a - b)", "y = (a + b, a - b)"),
        ("y = 1", "y = 1"),
        ("raise ValueError(n)", "raise ValueError(n)"),
        ("for i in range(n): pass", "range(n)"),
    ],
)
def test_without_a_column_the_only_outermost_candidate_or_the_statement(tmp_path, line, expected):
    file = one_file(tmp_path, f"def f():\n    {line}\n")
    found = likely_expression(file, 2)
    assert found is not None
    assert found.text == expected
    assert found.column == 5 + line.index(expected)


def test_the_column_decides_and_counts_characters(tmp_path):
    file = one_file(tmp_path, "y = 'äöü', a + b, c - d\n")
    found = likely_expression(file, 1, 19)
    assert found is not None
    assert (found.text, found.column, found.end_column) == ("c - d", 19, 24)


def test_kinds_decide_where_the_column_is_unknown(tmp_path):
    file = one_file(tmp_path, "y = np.sort(a), b + c\n")
    found = likely_expression(file, 1, None, frozenset({"sort"}))
    assert found is not None
    assert found.text == "np.sort(a)"


def test_expression_over_several_lines(tmp_path):
    file = one_file(tmp_path, "y = g(\n    a,\n    b + c,\n)\n")
    found = likely_expression(file, 3)
    assert found is not None
    assert found.text == "g(a, b + c)"


def test_compound_statement_shows_its_line_only(tmp_path):
    file = one_file(tmp_path, "def f(a):\n    while a:\n        a.append(1)\n")
    found = likely_expression(file, 2)
    assert found is not None
    assert (found.text, found.column, found.end_column) == ("while a:", 5, 13)


def test_deep_nesting_and_edited_files_do_no_harm(tmp_path):
    file = one_file(tmp_path, "y = " + " + ".join(["a"] * 2000) + "\n")
    found = likely_expression(file, 1)
    assert found is None or found.column == 5
    FilePath(file).write_text("y = a - longer\n")
    found = likely_expression(file, 1)
    assert found is not None
    assert found.text == "a - longer"


def test_a_file_that_no_longer_parses_gives_nothing(tmp_path):
    file = one_file(tmp_path, "def f(:\n")
    assert expressions_on(file, 1) == ()
    assert likely_expression(file, 1) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-a", "np.negative(a, buf)"),
        ("a > 0", "np.greater(a, 0, buf)"),
        ("np.sqrt(a * a)", "np.multiply(a, a, buf); np.sqrt(buf, buf)"),
        ("a ** -1", "np.power(a, -1, buf)"),
        ("x.f + y[0]", "np.add(x.f, y[0], buf)"),
        ("a * b + c * d", None),
        ("np.sum(a * b)", None),  # no ufunc: a second argument is not its result
        ("-np.sum(a)", None),
        ("np.zeros(3) + a", None),
        ("np.add(a, b, c) * d", None),  # has its result
        ("np.modf(a)", None),  # two results
        (
            "a + b + c + d + e",
            "np.add(a, b, buf); np.add(buf, c, buf); np.add(buf, d, buf); np.add(buf, e, buf)",
        ),
        ("a + b + c + d + e + f", None),  # not easier to read than a loop
        (" + ".join(["a"] * 3000), None),
        ("f(a)", None),
        ("a +", None),
    ],
)
def test_rewriting_into_a_buffer(before, after):
    assert into_buffer(before) == after


def test_rewritten_expressions_compute_the_same():
    import numpy as np

    a, b = np.array([1.0, 4.0, 9.0]), np.array([2.0, 3.0, 5.0])
    for expression in ("np.abs(a) * b", "-(a + b)", "np.sqrt(a * b) - 1.0", "a / b"):
        buf = np.empty(3)
        steps = into_buffer(expression)
        assert steps is not None
        exec(steps, {"np": np, "a": a, "b": b, "buf": buf})
        expected = eval(expression, {"np": np, "a": a, "b": b})
        assert np.array_equal(buf, expected)


# --- remedies, tried on Numba itself ---------------------------------------------------------


REMEDIES = {
    "np.abs(x, buf)": "np.abs(x, buf)",
    "steps of an operator": "np.abs(x, buf); np.multiply(buf, g, buf)",
    "comparison": "np.greater(x, 0, flags)",
    "np.clip(x, low, high, buf)": "np.clip(x, -1.0, 1.0, buf)",
    "np.dot(A, x, out)": "np.dot(A, x, buf)",
    "contiguous reshape and ravel": "buf[0] = A.reshape(9)[1] + A.ravel()[2]",
    ".flat": "buf[0] = A.flat[1]",
    "element loop": "for i in range(2): buf[i + 1] = buf[i]",
    "d.get(key, default)": "buf[0] = d.get(5, 0.0)",
    "setting an existing key": "d[1] = 2.0",
    "setting a field of an instance": "p.x = g",
}


@pytest.fixture(scope="module")
def arguments():
    import numpy as np
    from numba import float64, types
    from numba.experimental import jitclass
    from numba.typed import Dict

    class Point:
        def __init__(self, x):
            self.x = x

    d = Dict.empty(types.int64, types.float64)
    d[1] = 1.0
    x = np.array([1.0, -2.0, 3.0])
    flags = np.zeros(3, np.bool_)
    return x, np.eye(3), 2.0, np.empty(3), flags, d, jitclass([("x", float64)])(Point)(1.0)


@pytest.mark.parametrize("remedy", list(REMEDIES))
def test_remedy_compiles_and_takes_no_memory_from_the_runtime(arguments, remedy: str):
    import numpy as np
    from numba import njit
    from numba.core.runtime import _nrt_python, rtsys

    scope: dict[str, object] = {"np": np}
    exec(
        f"def tried(x, A, g, buf, flags, d, p):\n    {REMEDIES[remedy]}\n"
        "def idle(x, A, g, buf, flags, d, p):\n    pass\n",
        scope,
    )

    def taken(function) -> int:
        compiled = njit(function)
        compiled(*arguments)
        before = rtsys.get_allocation_stats()
        compiled(*arguments)
        after = rtsys.get_allocation_stats()
        return (after.alloc - before.alloc) + (after.mi_alloc - before.mi_alloc)

    was_on = _nrt_python.memsys_stats_enabled()
    _nrt_python.memsys_enable_stats()
    try:
        # Passing the arguments in from Python takes memory as well, hence the idle function.
        assert taken(scope["tried"]) == taken(scope["idle"])
    finally:
        if not was_on:
            _nrt_python.memsys_disable_stats()


def test_every_code_stands_in_the_documentation_with_its_title():
    page = (FilePath(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    for code, title in help.codes().items():
        assert f"| {code} | {title} |" in page


# --- functions that Numba makes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("__numba_parfor_gufunc_0x7f7defe32090", "__numba_parfor_gufunc"),
        ("__numba_stencil_0x7f7e00dc92d0_1", "__numba_stencil"),
        ("__gufunc__._ZN13_3cdynamic_3e36__numba_parfor_gufunc_0x7f7d0B3v14B1", "__gufunc__"),
        ("my_0x7f_table", "my_0x7f_table"),
    ],
)
def test_names_of_functions_have_no_addresses_of_this_process(name, shown):
    [finding] = find(witness(backtrace=(Frame("user.py", 1, None, name),)))
    assert [frame.function for frame in finding.backtrace] == [shown]
    assert finding.location is not None and finding.location.function == shown


def test_code_that_was_made_as_text_is_located_where_it_is_called(at_line):
    backtrace = at_line("return a + b", *ALLOCATOR)
    made = Frame("<string>", 3, None, "__numba_stencil")
    [finding] = find(witness(backtrace=(*backtrace[:-1], made, backtrace[-1])))
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == (backtrace[-1].file, 2)
    assert help.user_frame((made,)) == made


@pytest.mark.parametrize("symbol", ["do_scheduling_unsigned", "numba_list_new", "aligned_alloc"])
def test_what_is_no_number_of_bytes_is_not_called_one(symbol):
    [finding] = find(witness(symbol, size=3))
    assert finding.size is None and "byte" not in finding.message

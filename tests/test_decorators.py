"""What the decorators accept, refuse and promise."""

import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from numba import cfunc, njit, objmode, types
from numba.core import ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.errors import TypingError
from numba.core.untyped_passes import IRProcessing
from numba.experimental import jitclass

from alloccheck import (
    AllocCheckError,
    AllocCheckWarning,
    CheckedDispatcher,
    CompileError,
    Refused,
    UsageError,
    analyze,
    check_allocs,
    hermetic,
    nonblocking,
)


def scale(out, x, g):
    for i in range(x.size):
        out[i] = g * x[i]


def doubled(x):
    return x + x


# --- ways to decorate -------------------------------------------------------------------------


ARRAY = "float64[::1]"


@pytest.mark.parametrize("decorator", [check_allocs, nonblocking, hermetic])
@pytest.mark.parametrize(
    "signature",
    [
        f"void({ARRAY}, {ARRAY}, float64)",
        f"({ARRAY}, {ARRAY}, float64)",
        (types.float64[::1], types.float64[::1], types.float64),
        types.void(types.float64[::1], types.float64[::1], types.float64),
    ],
)
def test_a_signature_is_proved_at_definition(decorator, signature):
    checked = decorator(signature)(scale)
    assert isinstance(checked, CheckedDispatcher)
    assert len(checked.artifacts) == 1
    out = np.zeros(3)
    checked(out, np.arange(3.0), 2)
    np.testing.assert_array_equal(out, [0.0, 2.0, 4.0])
    with pytest.raises(TypeError, match="No matching definition"):
        checked(out, np.arange(3.0), "x")


def test_a_list_of_signatures_is_chosen_from_as_with_njit():
    signatures = ["int64(int64)", "float64(float64)", "complex128(complex128)"]
    checked, plain = hermetic(signatures)(doubled), njit(signatures)(doubled)
    assert [str(s) for s in checked.nopython_signatures] == [
        str(s) for s in plain.nopython_signatures
    ]
    for value in (3, 2.5, 1j, np.float32(0.5), np.int8(100)):
        found, expected = checked(value), plain(value)
        assert (type(found), found) == (type(expected), expected)


def test_an_empty_list_of_signatures_is_as_njit_has_it():
    # Numba accepts the list and then has nothing to call.
    with pytest.raises((AssertionError, UsageError)):
        hermetic([])(doubled)


def test_a_signature_may_leave_out_defaults():
    # Numba's C dispatcher takes omitted floats for one another, whatever their values.
    assert hermetic(lambda x, y=1.0: x * y)(3.0) == 3.0
    checked = check_allocs("float64(float64)")(lambda x, y=2.0: x * y)
    assert checked(3.0) == checked(3) == 6.0
    with pytest.raises(TypeError, match="No matching definition"):
        checked("x")
    assert len(checked.signatures) == 1
    with pytest.raises(TypeError):
        checked(3.0, 4.0)


def test_a_declared_return_type_is_kept():
    checked = check_allocs("int32(float64)")(lambda x: x * 2)
    assert checked(2.9) == 5
    assert checked.nopython_signatures[0].return_type == types.int32


@pytest.mark.parametrize("decorator", [check_allocs, nonblocking, hermetic])
def test_bare_and_with_empty_brackets(decorator):
    for checked in (decorator(doubled), decorator()(doubled)):
        assert checked(2) == 4 and checked(2.5) == 5.0
        assert len(checked.artifacts) == 2


def test_the_guarantee_follows_the_decorator():
    assert check_allocs(doubled).guarantee == "nonallocating"
    assert nonblocking(doubled).guarantee == "nonblocking"
    assert hermetic(doubled).guarantee is None
    assert check_allocs(doubled, ignore_throw=False).ignore_throw is False


def test_decorating_a_checked_function_again_replaces_the_question():
    inner = check_allocs("float64(float64)")(doubled)
    outer = nonblocking(inner)
    assert outer.py_func is doubled
    assert outer(1.5) == 3.0
    assert outer.guarantee == "nonblocking" and inner.guarantee == "nonallocating"


def test_a_cfunc_can_be_analysed_and_its_function_decorated():
    callback = cfunc("float64(float64)")(doubled)
    assert analyze(callback).ok
    assert check_allocs(callback)(2.0) == 4.0


# --- failures ---------------------------------------------------------------------------------


def fresh(n):
    return np.zeros(n)


def test_on_failure_raise_runs_nothing_and_keeps_nothing():
    ran = np.zeros(1)

    @check_allocs
    def touch(x):
        x[0] = 1.0
        return x.copy()

    for _ in range(2):
        with pytest.raises(AllocCheckError) as caught:
            touch(ran)
    assert ran[0] == 0.0
    assert not caught.value.report.ok
    assert "AC101" in str(caught.value) and "x.copy()" in str(caught.value)
    assert touch.overloads == {} and dict(touch.artifacts) == {}
    assert len(touch.reports) == 1


def test_on_failure_warn_points_at_the_caller_and_runs():
    checked = check_allocs(on_failure="warn")(fresh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert checked(2).tolist() == [0.0, 0.0]
        assert checked(3).shape == (3,)
    (warning,) = [one for one in caught if one.category is AllocCheckWarning]
    assert "AC101" in str(warning.message)
    assert warning.filename == __file__


def test_on_failure_report_is_silent_and_runs():
    checked = check_allocs(on_failure="report")(fresh)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(2).tolist() == [0.0, 0.0]
    (report,) = checked.reports.values()
    assert not report.ok


def test_a_failed_signature_does_not_spoil_another():
    @check_allocs
    def work(x):
        return x * 2

    with pytest.raises(AllocCheckError):
        work(np.ones(2))
    assert work(4) == 8
    with pytest.raises(AllocCheckError):
        work(np.ones(2))
    assert len(work.artifacts) == 1


def test_a_failure_at_definition_defines_nothing():
    with pytest.raises(AllocCheckError) as caught:

        @check_allocs("float64[::1](int64)")
        def made(n):
            return np.zeros(n)

    assert caught.value.report.findings
    assert "made" not in locals()


def test_raising_paths_count_when_asked():
    def guarded(x):
        if x < 0:
            raise ValueError(str(x))
        return x

    assert analyze(guarded, "int64(int64)").ok
    assert not analyze(guarded, "int64(int64)", ignore_throw=False).ok


def test_a_generator_is_judged_by_its_body():
    def allocating(n):
        for i in range(n):
            yield np.ones(n).sum() + i

    def counting(n):
        for i in range(n):  # noqa: UP028  (Numba has no `yield from`)
            yield i

    assert analyze(counting, "(int64,)").ok
    report = analyze(allocating, "(int64,)")
    assert {one.code for one in report.findings} >= {"AC101"}
    assert list(hermetic(allocating)(2)) == [2.0, 3.0]
    assert list(check_allocs(counting)(3)) == [0, 1, 2]


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("decorator", [check_allocs, hermetic])
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cache": True}, Refused, "cache=True is refused"),
        ({"forceobj": True}, Refused, "forceobj=True is refused"),
        ({"nopython": False}, Refused, "nopython=False is refused"),
        ({"looplift": True}, Refused, "loop lifting"),
        ({"fastmth": True}, UsageError, "did you mean 'fastmath'"),
        ({"zzz": 1}, UsageError, "unknown option 'zzz'"),
    ],
)
def test_options_that_are_refused(decorator, options, error, words):
    with pytest.raises(error) as caught:
        decorator(**options)(doubled)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"cache": False}, {"nopython": True}, {"forceobj": False}, {"locals": {}}]
)
def test_options_that_change_nothing(options):
    assert check_allocs(**options)(doubled)(2) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_failure": "ignore"}, "raise, warn, report"),
        ({"guarantee": "none"}, "nonallocating, nonblocking"),
        ({"first_call": "maybe"}, "prepare, forbid, allow"),
        ({"entry": "rust"}, "python, c"),
        ({"ignore_throw": 1}, "True or False"),
    ],
)
def test_words_that_are_unknown(options, words):
    with pytest.raises(UsageError) as caught:
        check_allocs(**options)(doubled)
    assert words in str(caught.value)


def test_a_dispatcher_that_caches_can_be_checked(tmp_path):
    (tmp_path / "cached.py").write_text(
        "from numba import njit\n\n\n@njit(cache=True)\ndef f(x):\n    return x + 1\n"
    )
    script = (
        "import cached, alloccheck\nassert alloccheck.check_allocs(cached.f)(2) == 3\n"
        "assert alloccheck.analyze(cached.f, 'int64(int64)').ok\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert not list(tmp_path.rglob("*.nbi"))


def test_an_object_mode_dispatcher_is_refused():
    from numba import jit

    dispatcher = jit(forceobj=True)(doubled)
    with pytest.raises(Refused, match="object mode"):
        check_allocs(dispatcher)
    with pytest.raises(Refused, match="object mode"):
        analyze(dispatcher, "int64(int64)")


def test_objmode_is_refused_before_anything_runs():
    def block(x):
        x[0] = 1.0
        with objmode(y="float64"):
            y = float(len(str(x)))
        return y

    x = np.zeros(1)
    for checked in (hermetic(block), check_allocs(on_failure="report")(block)):
        with pytest.raises(Refused, match="objmode"):
            checked(x)
        assert checked.overloads == {}
    with pytest.raises(Refused, match="objmode"):
        analyze(block, f"({ARRAY},)")
    assert x[0] == 0.0


def test_an_unresolved_symbol_is_refused_before_anything_runs():
    missing = types.ExternalFunction("alloccheck_no_such_symbol", types.float64(types.float64))

    def call(x, wanted):
        x[0] = 1.0
        return missing(x[0]) if wanted else 0.0

    x = np.zeros(1)
    checked = hermetic(call)
    with pytest.raises(Refused, match="alloccheck_no_such_symbol"):
        checked(x, False)
    assert x[0] == 0.0 and checked.overloads == {}


# --- jitclasses -------------------------------------------------------------------------------


def make_counter(decorator):
    @decorator
    @jitclass([("n", types.int64), ("history", types.float64[::1])])
    class Counter:
        def __init__(self, size):
            self.n = 0
            self.history = np.zeros(size)

        def push(self, x):
            self.history[self.n] = x
            self.n += 1
            return self.n

        def snapshot(self):
            return self.history.copy()

        @property
        def last(self):
            return self.history[self.n - 1]

        @staticmethod
        def twice(x):
            return 2 * x

        def __len__(self):
            return self.n

    return Counter


def test_methods_of_a_jitclass_are_checked():
    counter = make_counter(check_allocs)(4)
    assert counter.push(2.5) == 1
    assert counter.last == 2.5
    assert len(counter) == 1
    with pytest.raises(AllocCheckError, match="snapshot"):
        counter.snapshot()


def test_chosen_methods_of_a_jitclass_are_checked():
    owner = make_counter(check_allocs(methods=["push"]))
    counter = owner(4)
    counter.push(1.0)
    np.testing.assert_array_equal(counter.snapshot(), [1.0, 0.0, 0.0, 0.0])
    assert isinstance(owner.class_type.jit_methods["push"], CheckedDispatcher)

    @njit
    def use(c):
        c.push(7.0)
        return c.last

    assert use(counter) == 7.0


def test_hermetic_jitclass():
    owner = make_counter(hermetic)
    counter = owner(2)
    assert counter.push(1.0) == 1
    assert counter.snapshot().tolist() == [1.0, 0.0]


def test_jitclass_mistakes():
    with pytest.raises(UsageError, match="no method pull"):
        make_counter(check_allocs(methods=["pull"]))

    class Plain:
        pass

    with pytest.raises(UsageError, match="not a jitclass"):
        check_allocs(Plain)


# --- callees with declared signatures -----------------------------------------------------------


@njit("int32(int64)")
def narrowing(x):
    return x


@njit(["float64(float64)", "int8(int64)"])
def several(x):
    return x * 2


def test_a_callees_declared_return_type_narrows():
    def use(x):
        return narrowing(x) + 0

    big = 2**40 + 5
    assert hermetic(use)(big) == njit(use)(big) == 5


def test_a_callees_declared_signatures_are_chosen_from():
    def use(x):
        return several(x) + 0

    for value in (100, 1.5, np.int8(3), True):
        assert hermetic(use)(value) == njit(use)(value)

    def wrong(x):
        return several(x)

    with pytest.raises(TypingError):
        hermetic(wrong)(np.ones(2))


def test_first_call_of_checked_code_in_a_fresh_process_needs_no_other_import():
    script = """
        from alloccheck import check_allocs
        @check_allocs
        def f(x):
            return x + 1
        assert f(1) == 2
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_errors_in_user_code_are_numbas_and_ours():
    @check_allocs
    def broken(x):
        return x.no_such_attribute

    with pytest.raises(TypingError, match="no_such_attribute") as caught:
        broken(np.ones(1))
    assert isinstance(caught.value, CompileError)
    assert "broken" in str(caught.value) and "array(float64, 1d, C)" in str(caught.value)


def test_functions_without_a_module_are_checked_as_njit_compiles_them():
    names = {"njit": njit}
    exec("@njit\ndef helper(x):\n    return 2 * x\n\ndef f(x):\n    return helper(x)", names)
    assert names["f"].__module__ is None
    assert check_allocs(names["f"])(4) == 8


@register_pass(mutates_CFG=False, analysis_only=False)
class _TenTimesSeven(FunctionPass):
    _name = "alloccheck_test_ten_times_seven"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        found = [
            statement.value
            for block in state.func_ir.blocks.values()
            for statement in block.find_insts(ir.Assign)
            if isinstance(statement.value, ir.Const) and statement.value.value == 7
        ]
        for constant in found:
            constant.value = 70
        return bool(found)


class _OwnPipeline(CompilerBase):
    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_TenTimesSeven, IRProcessing)
        passes.finalize()
        return [passes]


@pytest.mark.parametrize(
    "make",
    [
        lambda f: hermetic(njit(pipeline_class=_OwnPipeline)(f)),
        lambda f: check_allocs(njit(pipeline_class=_OwnPipeline)(f)),
        lambda f: hermetic(njit(pipeline_class=_OwnPipeline)(f), fastmath=True),
        lambda f: hermetic(pipeline_class=_OwnPipeline)(f),
        lambda f: check_allocs("int64(int64)", pipeline_class=_OwnPipeline)(f),
    ],
)
def test_a_pipeline_of_ones_own_is_kept(make):
    def add_seven(x):
        return x + 7

    assert hermetic(add_seven)(1) == 8
    assert make(add_seven)(1) == 71

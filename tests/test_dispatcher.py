"""Whatever works with Numba's `njit` works the same with `hermetic` and `check_allocs`.

Expected values come from the interpreted function or from `njit` itself.
"""

import copy
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings

import cloudpickle
import numpy as np
import pytest
from numba import cfunc, literally, njit, prange, typed, types, vectorize
from numba.core import config, event
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys
from numba.core.typing import templates
from numba.experimental import jitclass
from numba.extending import overload, register_jitable

from alloccheck import (
    Refused,
    check_allocs,
    hermetic,
)

reported = check_allocs(on_failure="report")


@pytest.fixture
def counting():
    """Allocation statistics of Numba's run time."""
    was = _nrt_python.memsys_stats_enabled()
    _nrt_python.memsys_enable_stats()
    yield rtsys.get_allocation_stats
    if not was:
        _nrt_python.memsys_disable_stats()


@pytest.fixture(params=["hermetic", "check_allocs"])
def decorate(request):
    return hermetic if request.param == "hermetic" else reported


# --- calls -----------------------------------------------------------------------------------


def affine(x, scale=2.0, shift=None):
    """Scale and shift."""
    if shift is None:
        return x * scale
    return x * scale + shift


def gather(first, *rest):
    return first, rest, len(rest)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((3.0,), {}),
        ((3.0, 4.0), {}),
        ((3,), {"scale": 5}),
        ((), {"x": 1.5, "shift": 2}),
        ((3.0, 4.0, 5.0), {}),
        ((3.0,), {"shift": None}),
        ((3.0,), {"shift": 1.0, "scale": 0.5}),
    ],
)
def test_keywords_defaults_and_omitted_arguments(decorate, args, kwargs):
    assert decorate(affine)(*args, **kwargs) == affine(*args, **kwargs)


@pytest.mark.parametrize("args", [(1,), (1, 2), (1, 2.5, 3)])
def test_star_arguments(decorate, args):
    assert decorate(gather)(*args) == gather(*args)


def test_optional_argument_of_a_declared_signature(decorate):
    def pick(x):
        return -1.0 if x is None else x

    checked = decorate(pick)
    checked.compile((types.Optional(types.float64),))
    checked.disable_compile()
    assert checked(None) == -1.0
    assert checked(2.5) == 2.5


def test_optional_result(decorate):
    def maybe(x):
        if x > 0:
            return x
        return None

    checked = decorate(maybe)
    assert checked(3) == 3
    assert checked(-3) is None


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3, 4), {}), ((1,), {"wrong": 2}), ((1,), {"x": 2})],
)
def test_wrong_calls_have_the_message_of_njit(decorate, args, kwargs):
    def message(function):
        with pytest.raises(TypeError) as caught:
            function(*args, **kwargs)
        return str(caught.value)

    assert message(decorate(affine)) == message(njit(affine))


def test_declared_signatures_refuse_other_types_as_njit_does(decorate):
    def first(x):
        return x[0]

    def message(function):
        function.compile("float64(float64[::1])")
        function.disable_compile()
        with pytest.raises(TypeError) as caught:
            function(np.zeros((2, 2)))
        return str(caught.value)

    assert message(decorate(first)) == message(njit(first))


def test_conversion_to_a_declared_signature(decorate):
    checked = decorate(affine)
    checked.compile("float64(float64, float64, none)")
    checked.disable_compile()
    assert checked(3, 4, None) == 12.0
    assert checked.signatures == [(types.float64, types.float64, types.none)]


def test_metadata(decorate):
    checked = decorate(affine)
    assert checked.__name__ == "affine"
    assert checked.__doc__ == affine.__doc__
    assert checked.__qualname__ == affine.__qualname__
    assert checked.__module__ == affine.__module__
    assert checked.__wrapped__ is affine
    assert checked.py_func is affine
    assert "affine" in repr(checked)


def test_method_of_a_plain_class(decorate):
    class Scale:
        factor = 3

        @decorate
        def apply(x, y):
            return x, y

        @staticmethod
        @decorate
        def double(x):
            return 2 * x

    assert Scale.double(4) == 8
    assert Scale().double(4) == 8
    assert Scale.apply(1, 2) == (1, 2)
    bound = Scale().apply
    assert bound.__func__ is Scale.apply
    with pytest.raises(TypingError):
        bound(2)


def test_on_an_existing_dispatcher_keeps_options_and_leaves_it_alone(decorate):
    @njit(error_model="numpy", boundscheck=True)
    def divide(x, y):
        return x[0] / y

    checked = decorate(divide)
    assert checked(np.array([1.0]), 0.0) == np.inf
    with pytest.raises(IndexError):
        checked(np.empty(0), 1.0)
    assert divide.overloads == {}
    assert checked is not divide


def test_locals_and_options_pass_through():
    def small(x):
        y = x
        return y

    narrow = hermetic(locals={"y": types.int8})(small)
    assert narrow(300) == 300 - 256

    def divide(x):
        return 1.0 / x

    assert hermetic(error_model="numpy")(divide)(0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        hermetic(divide)(0.0)


# --- identity, pickling, copying --------------------------------------------------------------


def test_copy_of_the_dispatcher_is_njits(decorate):
    checked = decorate(affine)
    assert copy.copy(checked)(3.0) == 6.0
    assert copy.deepcopy(checked)(3.0) == 6.0


module_level_hermetic = hermetic(affine)
module_level_checked = check_allocs(guarantee="nonblocking", on_failure="report")(affine)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
@pytest.mark.parametrize("name", ["module_level_hermetic", "module_level_checked"])
def test_pickling_within_the_process(pickler, name):
    original = globals()[name]
    again = pickle.loads(pickler.dumps(original))
    assert again is original


def test_pickling_to_another_process_keeps_policy_and_signatures(tmp_path):
    @check_allocs("float64(float64[::1])", guarantee="nonblocking", fastmath=True)
    def total(x):
        s = 0.0
        for v in x:
            s += v
        return s

    @hermetic
    def twice(x):
        return 2 * x

    (tmp_path / "data").write_bytes(cloudpickle.dumps((total, twice)))
    script = """
        import pickle, sys, numpy as np
        total, twice = pickle.load(open(sys.argv[1], "rb"))
        assert total(np.ones(4)) == 4.0
        assert total.guarantee == "nonblocking" and total.targetoptions["fastmath"]
        assert [str(s) for s in total.nopython_signatures] == ["(Array(float64, 1, 'C', False, \
aligned=True),) -> float64"] or len(total.signatures) == 1
        try:
            total(np.ones(4, np.complex128))
        except TypeError as error:
            assert "No matching definition" in str(error)
        else:
            raise AssertionError("another signature was accepted")
        assert total.reports[total.signatures[0]].ok
        assert twice(21) == 42 and twice.guarantee is None
        print(total.artifacts[total.signatures[0]].digest)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == total.artifacts[total.signatures[0]].digest


# --- threads --------------------------------------------------------------------------------


def test_first_call_from_sixteen_threads(decorate):
    def collatz(n):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    checked = decorate(collatz)
    gate = threading.Barrier(16)
    found, errors = [], []

    def work():
        try:
            gate.wait()
            found.append(checked(27))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not errors
    assert found == [collatz(27)] * 16
    assert len(checked.artifacts) == len(checked.overloads) == 1


def stir(n):
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2147483647
    return x


@pytest.mark.parametrize("release", [True, False])
def test_nogil_lets_another_thread_run(release):
    checked = hermetic(nogil=release)(stir)
    checked(10)
    steps, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            steps[0] += 1
            time.sleep(0)

    helper = threading.Thread(target=count)
    helper.start()
    try:
        while steps[0] == 0:
            time.sleep(0.001)
        before = steps[0]
        checked(30_000_000)
        during = steps[0] - before
    finally:
        stop.set()
        helper.join()
    # With the GIL held the other thread gets at most the turns around the call.
    assert (during > 100) == release


# --- values that outlive the function ----------------------------------------------------------


@jitclass([("value", types.float64), ("items", types.float64[::1])])
class Box:
    def __init__(self, value):
        self.value = value
        self.items = np.full(3, value)

    def total(self):
        return self.value + self.items.sum()


def make_array():
    return np.arange(5) * 2.0


def make_tuple():
    return (1, 2.5, np.ones(2))


def make_none():
    return None


def make_string():
    return "ab" * 2 + "é"


def make_reflected():
    return [1.5, 2.5]


def make_set():
    return {1, 2, 3}


@pytest.mark.parametrize(
    "maker", [make_array, make_tuple, make_none, make_string, make_reflected, make_set]
)
def test_plain_results_outlive_the_function(decorate, maker):
    checked = decorate(maker)
    result = checked()
    del checked
    gc.collect()
    expected = maker()
    if isinstance(expected, tuple):
        assert result[:2] == expected[:2]
        np.testing.assert_array_equal(result[2], expected[2])
    else:
        np.testing.assert_array_equal(result, expected)


def make_list():
    made = typed.List()
    for i in range(4):
        made.append(np.full(2, i))
    return made


def make_dict():
    made = typed.Dict()
    for i in range(20):
        made[i] = np.full(2, i)
    return made


def make_box():
    return Box(2.0)


def generate():
    scratch = np.arange(3.0)
    for i in range(3):
        yield scratch[i]


def test_values_with_code_behind_them_outlive_the_function(decorate):
    list_, dict_, box, generator = (
        decorate(one)() for one in (make_list, make_dict, make_box, generate)
    )
    gc.collect()
    list_.append(np.full(2, 9))
    del list_[0]
    assert [int(one[0]) for one in list_] == [1, 2, 3, 9]
    dict_[100] = np.zeros(2, np.int64)
    assert dict_[7][0] == 7
    del dict_[7]
    assert len(dict_) == 20
    assert box.total() == 8.0
    box.items = np.zeros(1)
    assert box.total() == 2.0
    assert next(generator) == 0.0
    assert list(generator) == [1.0, 2.0]
    del list_, dict_, box, generator
    gc.collect()


def test_generator_that_is_not_run_to_its_end(decorate, counting):
    def holding(x):
        kept = x + 1.0
        yield kept[0]
        yield kept[1]

    def left_behind(generator):
        list(generator(np.ones(2)))
        gc.collect()
        before = counting()
        made = generator(np.ones(2))
        assert next(made) == 2.0
        del made
        gc.collect()
        after = counting()
        return (after.mi_alloc - before.mi_alloc) - (after.mi_free - before.mi_free)

    # Numba's finalizer drops the arguments, and forgets what the generator itself has made.
    assert left_behind(decorate(holding)) == left_behind(njit(holding)) == 1


def test_generator_as_the_root_with_arguments(decorate):
    def countdown(x, step=1):
        for i in range(x.size - 1, -1, -step):
            yield x[i]

    x = np.arange(6.0)
    checked = decorate(countdown)
    assert list(checked(x)) == list(countdown(x))
    assert list(checked(x, step=2)) == list(countdown(x, step=2))
    first, second = checked(x), checked(x)
    assert [next(first), next(second), next(first)] == [5.0, 5.0, 4.0]


def test_references_are_balanced(decorate, counting):
    def shuffle(x, many):
        kept = x[1:]
        made = typed.List()
        for i in range(many):
            made.append(kept + i)
        if many > 3:
            raise ValueError("many")
        return made[0], kept

    checked = decorate(shuffle)
    x = np.ones(4)
    checked(x, 1)
    with pytest.raises(ValueError, match="many"):
        checked(x, 5)
    gc.collect()
    before, references = counting(), sys.getrefcount(x)
    for _ in range(10):
        checked(x, 2)
    gc.collect()
    after = counting()
    assert after.alloc - before.alloc == after.free - before.free > 0
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free > 0
    assert sys.getrefcount(x) == references


# --- exceptions -----------------------------------------------------------------------------


class CustomError(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


def fail(kind, x, values):
    if kind == 0:
        raise ValueError("constant", 3)
    if kind == 1:
        raise CustomError(x, "run time")
    if kind == 2:
        return values[10]
    if kind == 3:
        return 1 // x
    if kind == 4:
        raise KeyError
    if kind == 5:
        raise StopIteration
    if kind == 6:
        raise IndexError(x, (x, "deep"), 1.5)
    if kind == 7:
        raise OverflowError("text " + str(x))
    try:
        raise RuntimeError("inner")
    except Exception:
        return -1
    return 0


def _raised(function, *args):
    try:
        function(*args)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return type(error), error.args, last.name, last.lineno, last.filename
    return None


def test_exceptions_have_type_arguments_and_line_of_njit(decorate):
    values = np.zeros(3)
    checked = (
        decorate(boundscheck=True)(fail)
        if decorate is hermetic
        else check_allocs(on_failure="report", boundscheck=True)(fail)
    )
    plain = njit(boundscheck=True)(fail)
    for kind in range(8):
        found, expected = _raised(checked, kind, 0, values), _raised(plain, kind, 0, values)
        assert expected is not None, kind
        assert found == expected, kind
    assert checked(9, 0, values) == -1


def test_a_caught_exception_leaves_the_function_usable(decorate):
    def positive(x):
        if x < 0:
            raise ValueError(x)
        return x

    checked = decorate(positive)
    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            checked(-2)
        assert caught.value.args == (-2,)
        assert checked(2) == 2


# --- other callers ----------------------------------------------------------------------------


@hermetic
def cubed(x):
    y = x * x
    for _ in range(3):
        y = np.sqrt(y * y)
    return y * x


def test_call_from_njit_code_goes_to_the_artifact_by_address():
    @njit
    def caller(x):
        return cubed(x) + 1.0

    assert caller(3.0) == 28.0
    text = caller.inspect_llvm(caller.signatures[0])
    assert not any("cubed" in line for line in text.splitlines() if line.startswith("define"))
    artifact = cubed.artifacts[(types.float64,)]
    # It cannot raise: the entry that returns its value is all of it.
    assert artifact.direct
    assert str(artifact.c_address) in text


def test_a_njit_caller_is_not_cached_on_disk(tmp_path, monkeypatch):
    module = tmp_path / "cached_caller.py"
    module.write_text(
        textwrap.dedent(
            """
            from numba import njit
            from alloccheck import hermetic

            @hermetic
            def inner(x):
                return x * 2.0

            @njit(cache=True)
            def caller(x):
                return inner(x) + 1.0
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import cached_caller

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert cached_caller.caller(2.0) == 5.0
    assert any("Cannot cache" in str(one.message) for one in caught)
    assert not list(tmp_path.rglob("*.nbc"))


def test_exceptions_and_tuples_pass_through_njit_callers(decorate):
    @decorate
    def split(x):
        if x < 0:
            raise ValueError("negative")
        return x, 0.5 * x

    @njit
    def caller(x):
        try:
            a, b = split(x)
        except Exception:
            return -1.0
        return a + b

    @njit
    def plain_caller(x):
        return split(x)

    assert caller(2.0) == 3.0
    assert caller(-2.0) == -1.0
    assert plain_caller(4.0) == (4.0, 2.0)
    with pytest.raises(ValueError, match="negative"):
        plain_caller(-4.0)


def test_defaults_and_keywords_from_njit_callers(decorate):
    checked = decorate(affine)

    @njit
    def caller(x):
        return checked(x), checked(x, shift=1.0), checked(x, 3.0, shift=None)

    assert caller(2.0) == (4.0, 5.0, 6.0)


def test_arrays_optionals_and_none_through_njit_callers(decorate, counting):
    @decorate
    def maybe(x):
        if x[0] > 0:
            return x * 2
        return None

    @decorate
    def fill(x, v):
        x[:] = v

    @njit
    def caller(x):
        y = maybe(x)
        fill(x, 7.0)
        if y is None:
            return x
        return y

    before = counting()
    np.testing.assert_array_equal(caller(np.ones(2)), [2.0, 2.0])
    np.testing.assert_array_equal(caller(-np.ones(2)), [7.0, 7.0])
    after = counting()
    assert after.alloc - before.alloc == after.free - before.free


def test_generator_of_a_checked_function_in_njit_code(decorate):
    checked = decorate(generate)

    @njit
    def caller():
        s = 0.0
        for v in checked():
            s += v
        return s

    assert caller() == 3.0


def test_the_type_of_a_generator_can_be_pickled(decorate):
    one, other = decorate(generate), decorate(generate)
    kinds = []
    for checked in (one, other):
        list(checked())
        (signature,) = checked.nopython_signatures
        kinds.append(signature.return_type)
    assert kinds[0] != kinds[1]
    for kind in kinds:
        assert pickle.loads(pickle.dumps(kind)) is kind


def test_a_checked_function_is_inlined_into_checked_code(decorate):
    inner = decorate(lambda x: x * 3.0)

    @check_allocs
    def outer(x):
        return inner(x) + 1.0

    assert outer(2.0) == 7.0
    (artifact,) = outer.artifacts.values()
    assert all(name.startswith("Py") for name in artifact.externals)
    assert not inner.overloads


def test_calls_from_vectorize_cfunc_and_overloads(decorate):
    inner = decorate(lambda x: x * 3.0 + 1.0)

    @vectorize
    def kernel(x):
        return inner(x)

    np.testing.assert_array_equal(kernel(np.arange(3.0)), [1.0, 4.0, 7.0])

    @cfunc("float64(float64)")
    def callback(x):
        return inner(x)

    assert callback.ctypes(2.0) == 7.0

    def api(x):
        raise NotImplementedError

    @overload(api)
    def api_overload(x):
        return lambda x: inner(x)

    assert njit(lambda x: api(x))(2.0) == 7.0
    assert hermetic(lambda x: api(x))(2.0) == 7.0

    @overload(api)
    def unused(x, y):
        return inner


def test_first_class_function_arguments(decorate):
    inner = decorate(lambda x: x * 3.0)
    other = decorate(lambda x: x + 1.0)
    for one in (inner, other):
        one.compile("float64(float64)")
        one.disable_compile()

    @njit
    def choose(flag, functions, x):
        return functions[0](x) if flag else functions[1](x)

    assert choose(True, (inner, other), 2.0) == 6.0
    assert choose(False, (inner, other), 2.0) == 3.0

    @njit("float64(FunctionType(float64(float64)), float64)")
    def apply(function, x):
        return function(x)

    assert apply(inner, 2.0) == 6.0
    assert apply(other, 2.0) == 3.0

    checked = decorate(lambda function, x: function(x) + 0.5)
    assert checked(inner, 2.0) == 6.5
    assert checked(other, 2.0) == 3.5
    checked = decorate(lambda function, x: function(x) + 0.5)
    checked.compile("float64(FunctionType(float64(float64)), float64)")
    checked.disable_compile()
    assert checked(inner, 2.0) == 6.5
    assert checked(njit("float64(float64)")(lambda x: x - 1.0), 2.0) == 1.5


def test_literally_asks_for_a_literal(decorate):
    @register_jitable
    def power(x, n):
        return x**n

    def choose(x, n):
        return power(x, literally(n))

    checked = decorate(choose)
    assert checked(3.0, 2) == 9.0
    assert checked(3.0, 3) == 27.0
    assert sorted(str(one[1]) for one in checked.signatures) == sorted(
        str(one[1]) for one in _signatures_of(njit(choose))
    )

    @njit
    def caller(x):
        return checked(x, 4)

    assert caller(2.0) == 16.0


def _signatures_of(function):
    function(3.0, 2)
    function(3.0, 3)
    return function.signatures


@vectorize(identity="reorderable")
def smaller(a, b):
    return min(a, b)


@vectorize(identity=0)
def plus(a, b):
    return a + b


def reduce_all(x):
    return smaller.reduce(x, axis=(0, 1)), plus.reduce(x, axis=0), plus.nin, plus.identity


def add_at(x, places):
    plus.at(x, places, 10)
    return plus.reduceat(x, places)


@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaWarning")
def test_methods_and_attributes_of_ufuncs(decorate):
    table = np.arange(8).reshape(2, 2, 2) - 3
    places = np.array([0, 2])
    expected = njit(reduce_all)(table)
    line = np.arange(4)
    after = njit(add_at)(line, places)
    registered = len(templates.builtin_registry.attributes)
    for _ in range(2):
        found = decorate(reduce_all)(table)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        other_line = np.arange(4)
        np.testing.assert_array_equal(decorate(add_at)(other_line, places), after)
        np.testing.assert_array_equal(other_line, line)
    # Each world's counterpart of a ufunc has overloads of its own; none of them stays with Numba.
    assert len(templates.builtin_registry.attributes) == registered


# --- inspection -------------------------------------------------------------------------------


def test_inspection(decorate, capsys):
    checked = decorate(affine)
    checked(2.0)
    (signature,) = checked.signatures
    assert checked.nopython_signatures[0].return_type == types.float64
    assert f"@{checked.artifacts[signature].symbol}(" in checked.inspect_llvm(signature)
    assert set(checked.inspect_llvm()) == {signature}
    assert f"{checked.artifacts[signature].symbol}:" in checked.inspect_asm(signature)
    assert "digraph" in checked.inspect_cfg(signature).dot
    checked.inspect_types()
    shown = capsys.readouterr().out
    assert "$" in shown and "float64" in shown and "x * scale" in shown
    assert checked(2.0) == 4.0
    assert checked.get_metadata(signature)["timers"]["llvm_lock"] > 0.0
    assert checked.get_metadata().keys() == {signature}
    assert checked.stats.cache_path is None
    assert checked.get_overload(signature) is checked.overloads[signature].entry_point


def test_compile_events_name_the_users_dispatcher(decorate):
    inner = njit(lambda x: x + 1.0)
    checked = decorate(lambda x: inner(x) * 2.0)
    with event.install_recorder("numba:compile") as recorder:
        checked(2.0)
        checked(3.0)
    told = [(one.is_start, one.data["dispatcher"], one.data["args"]) for _, one in recorder.buffer]
    assert told == [(True, checked, (types.float64,)), (False, checked, (types.float64,))]
    assert event.trigger_event.__module__ == "numba.core.event"


def test_parallel_diagnostics(capsys):
    @hermetic(parallel=True)
    def double(x):
        for i in prange(x.size):
            x[i] *= 2.0

    double(np.ones(3))
    double.parallel_diagnostics(level=1)
    assert (
        "Parallel loop listing for  Function test_parallel_diagnostics" in capsys.readouterr().out
    )


def test_types_are_not_told_of_a_compile_under_other_settings(decorate, monkeypatch):
    checked = decorate(affine)
    checked(2.0)
    monkeypatch.setattr(config, "EXTEND_VARIABLE_LIFETIMES", 1)
    with pytest.raises(Refused, match="EXTEND_VARIABLE_LIFETIMES was '0' and is '1' now"):
        checked.inspect_types()


def test_a_level_of_optimisation_may_be_a_plain_number(decorate, monkeypatch):
    monkeypatch.setattr(config, "OPT", 1)
    checked = decorate(affine)
    assert checked(2.0) == 4.0
    (artifact,) = checked.artifacts.values()
    assert dict(artifact.configuration.settings)["OPT"] == "1"
    assert type(config.OPT) is int


def _arrays_up_to(n):
    for size in range(n):
        yield np.arange(size)


def test_a_generator_of_another_function_is_returned_with_its_constants():
    # The wrapper of its `next` makes arrays, with a dtype that the environment holds.
    inner = njit(_arrays_up_to)

    @hermetic
    def returned(n):
        return inner(n)

    assert [one.tolist() for one in returned(3)] == [[], [0], [0, 1]]
    (before,) = returned.artifacts.values()
    returned.recompile()
    (after,) = returned.artifacts.values()
    assert before.digest == after.digest
    assert [one.tolist() for one in returned(3)] == [[], [0], [0, 1]]

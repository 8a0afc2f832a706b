"""Wrong questions: one clear message each, nothing half-registered, and the next one works."""

import math
import os
import subprocess
import sys
import textwrap
import types as python_types

import numba
import numpy as np
import pytest
from numba import float64, int64, njit, types
from numba.core.errors import TypingError

import alloccheck.compile.numba_internals as gate
from alloccheck import (
    AllocCheckException,
    CompileError,
    UsageError,
    analyze,
    check_allocs,
    check_call,
    hermetic,
)
from alloccheck.compile import contexts


def add(x, y=1.0):
    return x + y


# --- signatures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("float64(int65)", "int65"),
        ("float64(", "float64("),
        ("", "''"),
        ("float64[:]", "float64[:]"),
        ("import os", "import os"),
        ("print(1)", "print(1)"),
        (3, "3"),
        (object(), "object"),
        ((int, float), "expected a type instance, got <class 'int'>"),
        ((int64, "float64"), "expected a type instance, got 'float64'"),
        (None, "no signature given"),
        ("float64(float64, float64, float64)", "3 argument types"),
        ("float64()", "0 argument types"),
    ],
)
def test_a_wrong_signature_is_named(signature, words):
    with pytest.raises(UsageError) as caught:
        analyze(add, signature)
    assert words in str(caught.value)
    assert analyze(add, "float64(float64)").ok


@pytest.mark.parametrize(
    "signature", ["float64(int65)", "float64[:]", ["float64(float64)", "nonsense("]]
)
@pytest.mark.parametrize("decorator", [check_allocs, hermetic])
def test_a_wrong_signature_of_a_decorator_is_named(decorator, signature):
    with pytest.raises(UsageError, match="cannot understand the signature"):
        decorator(signature)(add)
    assert decorator("float64(float64, float64)")(add)(1.0, 2.0) == 3.0


@pytest.mark.parametrize("decorator", [check_allocs, hermetic])
def test_a_signature_that_does_not_fit_is_named(decorator):
    with pytest.raises(UsageError, match="3 argument types, but add"):
        decorator("float64(float64, float64, float64)")(add)


# --- targets ------------------------------------------------------------------------------------


class Callable:
    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    "target", [len, 3, None, "text?", np.sin, Callable(), Callable, [1, 2], print]
)
def test_a_target_that_numba_cannot_compile_is_named(target):
    with pytest.raises(UsageError) as caught:
        analyze(target, "float64(float64)")
    assert "expected a Python function" in str(caught.value)
    with pytest.raises(UsageError):
        check_call(target, 1.0)


@pytest.mark.parametrize("target", [len, 3, np.sin, Callable(), Callable])
@pytest.mark.parametrize("decorator", [check_allocs, hermetic])
def test_a_decorated_target_that_numba_cannot_compile_is_named(decorator, target):
    with pytest.raises(UsageError):
        decorator(target)


# --- arguments ----------------------------------------------------------------------------------


def test_an_argument_without_a_type_is_named():
    with pytest.raises(UsageError, match="argument 'y' of add has no Numba type"):
        check_call(add, 1.0, object())
    with pytest.raises(TypingError, match="argument 1"):
        hermetic(add)(1.0, object())
    assert check_call(add, 1.0, 2.0).ok


def test_arguments_that_do_not_fit_are_named():
    for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"z": 2})]:
        with pytest.raises(UsageError, match="do not fit add"):
            check_call(add, *args, **kwargs)


def test_check_call_understands_literally():
    from numba import literally

    def power(x, n):
        return x ** literally(n)

    assert check_call(power, 2.0, 3).ok
    with pytest.raises(CompileError, match=r"needs the value of n .*literal"):
        analyze(power, "float64(float64, int64)")
    assert analyze(power, (float64, types.literal(3))).ok


# --- code that does not compile -------------------------------------------------------------------


def unknown_attribute(x):
    return x.nothing


def unknown_name(x):
    return nothing_of_this_name(x)  # noqa: F821


def mixed(x):
    if x > 0:
        return x
    return "text"


def unsupported(x):
    with open("file") as stream:
        return stream.read()


def python_class(x):
    class Inner:
        pass

    return x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unknown_attribute, "nothing"),
        (unknown_name, "nothing_of_this_name"),
        (mixed, "unify"),
        (unsupported, "context manager"),
        (python_class, "LOAD_BUILD_CLASS"),
    ],
)
def test_code_that_does_not_compile_is_explained(function, words):
    with pytest.raises(CompileError) as caught:
        analyze(function, "(float64,)")
    text = str(caught.value)
    assert f"{function.__name__} does not compile for (float64)" in text
    assert "Numba says:" in text and words in text
    frames = []
    trace = caught.value.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert not [one for one in frames if "/numba/" in one]
    assert caught.value.__suppress_context__

    checked = hermetic(function)
    with pytest.raises(CompileError) as caught:
        checked(1.0)
    assert words in str(caught.value)
    assert not checked.overloads and not checked.is_compiling
    assert hermetic(add)(1.0) == 2.0


def test_code_that_nests_too_deeply_is_explained():
    space = {"__name__": __name__}
    exec(f"def sums(x):\n    return {' + '.join(['x'] * 1000)}", space)
    for ask in (analyze, lambda f, types: hermetic(f).compile(types)):
        with pytest.raises(
            CompileError, match=r"sums does not compile for .*nests deeper"
        ) as caught:
            ask(space["sums"], (float64[::1],))
        assert isinstance(caught.value, RecursionError)  # as it is with njit


def test_a_missing_scipy_is_explained(monkeypatch):
    def product(a, b):
        return np.dot(a, b)

    monkeypatch.setitem(sys.modules, "scipy.linalg.cython_blas", None)
    monkeypatch.setenv("ALLOCCHECK_CANONICAL_CACHE", "0")
    for ask in (analyze, lambda f, types: hermetic(f).compile(types)):
        with pytest.raises(CompileError, match=r"does not compile(.|\n)*scipy.*is required"):
            ask(product, (float64[:, ::1], float64[::1]))


def test_a_typing_error_lets_numba_try_the_next_candidate():
    from numba.extending import overload

    only_arrays = hermetic(lambda x: x.size)

    def measure(x):
        raise NotImplementedError

    @overload(measure)
    def measure_array(x):
        return lambda x: only_arrays(x)

    @overload(measure)
    def measure_scalar(x):
        if isinstance(x, types.Float):
            return lambda x: 1
        return None

    use = njit(lambda x: measure(x))
    assert use(np.ones(3)) == 3
    assert use(2.0) == 1


# --- the process ----------------------------------------------------------------------------------


def run(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_switched_off_numba_is_refused():
    done = run(
        """
        from alloccheck import analyze, check_allocs, hermetic, Refused
        def f(x):
            return x
        for attempt in (lambda: analyze(f, "int64(int64)"), lambda: check_allocs(f),
                        lambda: hermetic(f), lambda: check_allocs("int64(int64)")(f)):
            try:
                attempt()
            except Refused as error:
                assert "NUMBA_DISABLE_JIT" in str(error)
            else:
                raise AssertionError("not refused")
        """,
        NUMBA_DISABLE_JIT="1",
    )
    assert done.returncode == 0, done.stderr


def test_numba_switched_off_after_the_decoration_is_refused(monkeypatch):
    from numba.core import config

    checked = check_allocs(add)
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    with pytest.raises(AllocCheckException, match="NUMBA_DISABLE_JIT"):
        checked(1.0, 2.0)


@pytest.mark.parametrize("version", ["0.60.0", "0.67.1", "0.69.0", "1.0", "0.6.8", "0.680.0"])
def test_another_numba_is_refused(version):
    with pytest.raises(UsageError) as caught:
        gate.require_known_numba(version)
    assert version in str(caught.value) and "pip install" in str(caught.value)


@pytest.mark.parametrize(
    ("module", "dotted"),
    [
        ("numba.core.types", "Dispatcher.dispatcher"),
        ("numba.core.typing.context", "CallFrame"),
        ("numba.core.typeinfer", "TypeInferer.return_types_from_partial"),
        ("numba.np.ufunc.gufunc", "GUFunc.build_ufunc"),
    ],
)
def test_a_missing_internal_is_refused(monkeypatch, module, dotted):
    import importlib

    owner = importlib.import_module(module)
    *path, last = dotted.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.delattr(owner, last)
    assert gate.missing_internals() == (f"{module}.{dotted} does not exist",)
    with pytest.raises(UsageError, match=f"{last} does not exist"):
        gate.require_known_numba()


def test_a_changed_signature_is_refused(monkeypatch):
    from numba.core.typing.context import CallStack

    monkeypatch.setattr(CallStack, "register", lambda self, target, other: None)
    with pytest.raises(UsageError, match=r"CallStack\.register takes .*expected"):
        gate.require_known_numba()


def test_a_changed_numba_stops_the_import():
    done = run(
        """
        from numba.core.typing import context
        del context.CallFrame
        import alloccheck.compile.job
        """
    )
    assert done.returncode != 0
    assert "CallFrame does not exist" in done.stderr.splitlines()[-1]


@numba.vectorize("float64(float64)")
def closed_ufunc(x):
    return -x


def _raising():
    pass


@numba.extending.overload(_raising)
def _overload_raising():
    raise KeyError("no such thing")


class Wordless(Exception):
    def __new__(cls, needed):
        return super().__new__(cls)

    def __str__(self):
        return "own words"


def _wordless():
    pass


@numba.extending.overload(_wordless)
def _overload_wordless():
    raise Wordless(1)


def at_of_a_closed_ufunc(x, i):
    closed_ufunc.at(x, i)


def missing_attribute(x):
    return math.no_such(x)


def missing_attribute_by_name(x):
    return getattr(math, "no_such")(x)


def calls_raising():
    _raising()


def calls_wordless():
    _wordless()


FOREIGN = [
    (at_of_a_closed_ufunc, "void(complex128[::1], int64[::1])", RuntimeError, "disabled"),
    (missing_attribute, "float64(float64)", AttributeError, "'no_such'"),
    (missing_attribute_by_name, "float64(float64)", AttributeError, "'no_such'"),
    (calls_raising, "()", None, "no such thing"),
    (calls_wordless, "()", None, "own words"),
]


@pytest.mark.parametrize(("function", "signature", "kind", "said"), FOREIGN)
def test_errors_of_any_kind_that_numba_lets_through_are_compile_errors(
    function, signature, kind, said
):
    for ask in (lambda: analyze(function, signature), lambda: check_allocs(signature)(function)):
        with pytest.raises(CompileError, match="does not compile for") as caught:
            ask()
        assert said in str(caught.value)
        if kind is not None:
            assert isinstance(caught.value, kind)  # as code written for njit expects
        if not isinstance(caught.value, numba.core.errors.NumbaError):
            assert caught.value.__cause__.__traceback__ is not None


def test_errors_of_our_own_are_not_taken_for_numbas(monkeypatch):
    def fails(self, *arguments):
        raise ZeroDivisionError("a bug of ours")

    fails = python_types.FunctionType(
        fails.__code__, {**globals(), "__name__": "alloccheck.somewhere"}
    )
    monkeypatch.setattr(contexts.WorldTypingContext, "resolve_module_constants", fails)
    with pytest.raises(ZeroDivisionError) as caught:
        analyze(missing_attribute, "float64(float64)")
    assert not isinstance(caught.value, CompileError)


def test_memory_errors_stay_what_they_are(monkeypatch):
    def fails(self, *arguments):
        raise MemoryError

    monkeypatch.setattr(contexts.WorldTypingContext, "resolve_module_constants", fails)
    with pytest.raises(MemoryError) as caught:
        check_call(missing_attribute, 1.0)
    assert not isinstance(caught.value, CompileError)

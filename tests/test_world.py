"""A hermetic compile leaves the process as it was, and its answer does not depend on the past."""

import contextlib
import functools
import gc
import json
import linecache
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from numba import guvectorize, njit, objmode, stencil, typed, types, vectorize
from numba.core import imputils, lowering, registry, targetconfig
from numba.core import target_extension as te
from numba.core.types.abstract import _typecache
from numba.core.typing import templates
from numba.experimental import jitclass
from numba.experimental.jitclass import boxing
from numba.extending import overload

from alloccheck import CompileError, Refused, analyze, hermetic
from alloccheck.compile import canonical, interrupts, isolation
from alloccheck.compile.artifact import build
from alloccheck.compile.contexts import WorldContext, WorldTypingContext
from alloccheck.compile.target import make_job


@pytest.fixture(scope="module", autouse=True)
def worlds_of_their_own():
    """These tests are about fresh worlds; tests/test_canonical.py is about the one that is kept."""
    patch = pytest.MonkeyPatch()
    patch.setenv(canonical.SWITCH, "0")
    yield
    patch.undo()


# --- things of the user's -----------------------------------------------------------


def api(x):
    raise NotImplementedError


@overload(api)
def api_overload(x):
    if isinstance(x, types.Array):
        return lambda x: x.sum()
    return lambda x: x * 2


@njit
def callee(x):
    return api(x) + 1


@njit("int32(int64)")
def eager(x):
    return x


@vectorize
def kernel(x):
    return x * 2 + 1


@guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")
def doubled(x, out):
    for i in range(x.size):
        out[i] = x[i] * 2


@stencil
def neighbours(x):
    return x[-1] + x[1]


@jitclass([("n", types.int64)])
class Counter:
    def __init__(self, n):
        self.n = n

    def add(self, k):
        self.n += k
        return self.n


MINE = {
    "callee": callee,
    "eager": eager,
    "add": Counter.class_type.jit_methods["add"],
    "init": Counter.class_type.jit_methods["__init__"],
}


# --- a picture of everything that Numba remembers -----------------------------------


def template_classes():
    found, pending = [], [templates.FunctionTemplate, templates.AttributeTemplate]
    while pending:
        for sub in type.__subclasses__(pending.pop()):
            found.append(sub)
            pending.append(sub)
    return found


def picture():
    """Return names and contents of every place where Numba keeps results."""
    gc.collect()
    seen = {}
    for cls in set(template_classes()):
        for name in ("_impl_cache", "_overload_cache", "_compiled_overloads", "_inline_overloads"):
            if name in vars(cls):
                table = vars(cls)[name]
                seen[cls, name] = (id(table), type(table), dict(table))
    target = registry.cpu_target
    typing_context = target._toplevel_typing_context
    target_context = target._toplevel_target_context
    for name in ("_functions", "_attributes", "_globals"):
        table = getattr(typing_context, name)
        seen[name] = {k: len(v) if isinstance(v, list) else id(v) for k, v in table.items()}
    for name in ("_defns", "_getattrs", "_setattrs"):
        table = getattr(target_context, name)
        seen[name] = {k: len(v.versions) for k, v in table.items() if v.versions}
    seen["casts"] = len(target_context._casts.versions)
    seen["constants"] = len(target_context._get_constants.versions)
    seen["generators"] = dict(target_context._generators)
    seen["internal"] = set(target_context.cached_internal_func)
    seen["builtin"] = [
        len(getattr(imputils.builtin_registry, name))
        for name in imputils.RegistryLoader.registry_items
    ]
    seen["codegen"] = id(target_context._internal_codegen)
    seen["call stack"] = len(typing_context.callstack)
    seen["flags"] = list(targetconfig._FlagsStack()._stack)
    seen["target"] = te.current_target()
    seen["registries"] = [dict(te.jit_registry), dict(te.dispatcher_registry)]
    seen["properties"] = [
        types.Dispatcher.dispatcher,
        registry.CPUTarget.typing_context,
        registry.CPUTarget.target_context,
        boxing._specialize_box,
        lowering.get_func_body_first_lineno,
    ]
    seen["boxes"] = set(boxing._cache_specialized_box)
    seen["world"] = isolation.current_world()
    for reference in list(_typecache):
        interned = reference()
        if isinstance(interned, types.BoundFunction):
            context = getattr(interned.template, "context", None)
            assert not isinstance(context, WorldTypingContext)
            seen["bound", id(interned)] = interned
        elif isinstance(interned, types.BaseFunction):
            seen["keys", interned] = dict(interned._impl_keys)
    for name, one in MINE.items():
        seen["dispatcher", name] = (
            dict(one.overloads),
            one._can_compile,
            one.stats,
            id(one._type),
            one.typingctx is typing_context,
            one.targetctx is target_context,
        )
    for name, one in (("kernel", kernel), ("doubled", doubled)):
        seen["ufunc", name] = (list(one.types), one._frozen)
    seen["stencil"] = len(neighbours._type_cache)
    return seen


def differences(before, after):
    found = {}
    for key in before.keys() | after.keys():
        if key not in before:
            if isinstance(key, tuple) and not after[key]:
                continue
            if isinstance(key, tuple) and len(key) == 2 and not (after[key] or ((),))[-1]:
                continue  # a template made meanwhile, with nothing in it
        if before.get(key) != after.get(key):
            found[key] = (before.get(key), after.get(key))
    return found


# --- compiles of all kinds ----------------------------------------------------------


def uses_everything(x, n):
    made = typed.List()
    made.append(x[0])
    counter = Counter(n)
    counter.add(2)
    y = kernel(x) + neighbours(x)
    doubled(x, y)
    return callee(x) + api(n) + eager(n) + made[0] + counter.n + np.dot(y, y)


def mistyped(x, n):
    return callee(x) + x.nothing


def refused(x, n):
    callee(x)
    with objmode():
        print(n)
    return n


missing = types.ExternalFunction("alloccheck_symbol_of_nobody", types.int64(types.int64))


def unresolved(x, n):
    return missing(n) + callee(x)


def broken_constant():
    raise NotImplementedError


@overload(broken_constant)
def broken_constant_overload():
    from numba.extending import intrinsic

    @intrinsic
    def broken(typingctx):
        def generate(context, builder, signature, args):
            raise RuntimeError("lowering fails on purpose")

        return types.int64(), generate

    return lambda: broken()


def fails_in_lowering(x, n):
    return callee(x) + broken_constant()


COMPILES = {
    "success": (uses_everything, None),
    "typing error": (mistyped, CompileError),
    "refusal": (refused, Refused),
    "unresolved": (unresolved, Refused),
    "lowering error": (fails_in_lowering, Exception),
    "boxed instance": (lambda x, n: Counter(n), None),
}


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Numba itself fills its tables at the first use of each thing."""
    x = np.arange(4.0)
    callee(x), callee(2), kernel(x), Counter(1).add(1)
    njit(uses_everything)(x, 3)
    analyze(lambda x, n: n, "(float64[::1], int64)")


@pytest.mark.parametrize("kept", ["0", "1"])
@pytest.mark.parametrize("kind", COMPILES)
def test_a_compile_changes_nothing_of_numbas(kind, kept, monkeypatch):
    monkeypatch.setenv(canonical.SWITCH, kept)
    function, error = COMPILES[kind]
    before = picture()
    if error is None:
        analyze(function, "(float64[::1], int64)")
    else:
        with pytest.raises(error):
            analyze(function, "(float64[::1], int64)")
    assert differences(before, picture()) == {}


def test_a_compile_while_numba_compiles_changes_nothing():
    # A decorator with a signature inside an overload: a world inside a typing of Numba's.
    def nested(x):
        raise NotImplementedError

    stacks = []

    @overload(nested)
    def nested_overload(x):
        before = list(targetconfig._FlagsStack()._stack)
        inner = hermetic("float64(float64)")(lambda x: x * 3)
        stacks.append((before, list(targetconfig._FlagsStack()._stack)))
        return lambda x: inner(x)

    assert njit(lambda x: nested(x))(2.0) == 6.0
    assert stacks and all(before == after and before for before, after in stacks)

    assert hermetic(lambda x: nested(x) + 1)(2.0) == 7.0


def test_the_users_functions_still_work_after_all_of_that():
    x = np.arange(4.0)
    assert callee(x) == 7.0
    assert njit(uses_everything)(x, 3) == pytest.approx(hermetic(uses_everything)(x, 3))
    assert Counter(4).add(2) == 6
    np.testing.assert_array_equal(kernel(x), 2 * x + 1)


# --- what is left of a compile ------------------------------------------------------


def living(*classes):
    gc.collect()
    # By type: asking a weak proxy for its class fails when its object is gone.
    return sum(issubclass(type(one), classes) for one in gc.get_objects())


def test_worlds_contexts_and_libraries_are_dropped():
    classes = (WorldContext, WorldTypingContext)
    before = living(*classes)
    for function in (
        lambda x, n: callee(x) + api(n) + eager(n),
        lambda x, n: Counter(n).add(2),
        lambda x, n: kernel(x),
        lambda x, n: typed.List([n])[0],
    ):
        analyze(function, "(float64[::1], int64)")
    del function
    assert living(*classes) == before


def test_an_artifact_keeps_less_than_a_function_of_numbas():
    script = """
        import ctypes, gc
        from numba import float64, int64, njit
        from alloccheck.compile.artifact import build
        from alloccheck.compile.target import make_job

        def make(k):
            def f(x, n):
                return x[n] * k + n
            return f

        def resident():
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * 4096

        def ours(k):
            build(make_job(make(k), (float64[::1], int64)))

        def numbas(k):
            njit(make(k)).compile((float64[::1], int64))

        for compile_one in (ours, numbas):
            for k in range(5):
                compile_one(k)
            before = resident()
            for k in range(10, 30):
                compile_one(k)
            print((resident() - before) / 20)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    ours, numbas = map(float, done.stdout.split())
    assert ours < 1.05 * numbas


# --- the past has no influence ------------------------------------------------------


HISTORIES = {
    "njit and other flags first": (
        "njit(fastmath=True)(lambda x: helper(x))(x)\n"
        "njit(error_model='numpy')(target)(x, 3); njit(target)(x, 3)"
    ),
    "a failed caller and eager signatures first": """
try:
    njit(fastmath=True)(lambda x: helper(x).nothing)(x)
except Exception:
    pass
helper.compile('float64(float64[:])')
""",
    "hermetic compiles and ufuncs first": (
        "hermetic(fastmath=True)(target)(x, 3); analyze(helper, '(float32[::1],)')\n"
        "vectorize(['float64(float64)'])(lambda v: v / 3.0)(x)"
    ),
    "from a thread": None,
}

PROGRAM = """
import json, sys, threading
import numpy as np
from numba import njit, vectorize
from alloccheck import analyze, hermetic

x = np.arange(1.0, 7.0)

@njit
def helper(x):
    s = 0.0
    for v in x:
        s += v / 3.0
    return s

def target(x, n):
    y = x[::-1] / n
    return helper(y) + helper(x) + (n if n > 3 else 0.5)
"""

ANSWER = """
def answer():
    checked = hermetic(target)
    value = checked(x, 3)
    (artifact,) = checked.artifacts.values()
    print(json.dumps([artifact.digest, str(artifact.signature), value]))
"""


def ask(history, seed):
    if history is None:
        tail = """
others = [threading.Thread(target=lambda k=k: analyze(lambda v: v * k, "(float64,)"))
          for k in range(3)]
for one in others:
    one.start()
one = threading.Thread(target=answer); one.start(); one.join()
for one in others:
    one.join()
"""
        text = PROGRAM + ANSWER + tail
    else:
        text = PROGRAM + history + ANSWER + "answer()\n"
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cold_answer():
    return ask("", 0)


@pytest.mark.parametrize("history", HISTORIES)
def test_the_answer_is_that_of_a_cold_process(history, cold_answer):
    found = ask(HISTORIES[history], 1 + list(HISTORIES).index(history))
    assert found == cold_answer
    namespace = {}
    exec(PROGRAM, namespace)
    expected = namespace["target"](namespace["x"], 3)
    assert found[2] == pytest.approx(expected, rel=1e-12)


def test_two_callers_with_other_flags_have_their_own_callees():
    @njit
    def divide(x, y):
        return x / y

    careful, loose = (
        hermetic(lambda x, y: divide(x, y)),
        hermetic(error_model="numpy")(lambda x, y: divide(x, y)),
    )
    for first, second in ((careful, loose), (loose, careful)):
        first.compile("(float64, float64)"), second.compile("(float64, float64)")
    assert loose(1.0, 0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        careful(1.0, 0.0)


def test_flags_that_meet_in_one_world_stay_apart():
    @njit
    def divide(x, y):
        return x / y

    @njit(error_model="numpy")
    def loose(x, y):
        return divide(x, y)

    @njit(error_model="python")
    def careful(x, y):
        return divide(x, y)

    def both(x, y, flag):
        return loose(x, y) if flag else careful(x, y)

    def swapped(x, y, flag):
        return careful(x, y) if not flag else loose(x, y)

    for function in (both, swapped):
        checked = hermetic(function)
        assert checked(1.0, 0.0, True) == np.inf
        with pytest.raises(ZeroDivisionError):
            checked(1.0, 0.0, False)


@pytest.mark.parametrize(
    "kept", [pytest.param("1", id="kept world"), pytest.param("0", id="fresh world")]
)
def test_the_kernel_of_a_ufunc_has_the_flags_of_each_caller(kept, monkeypatch):
    monkeypatch.setenv(canonical.SWITCH, kept)
    canonical.shared.clear()
    ufunc = vectorize(lambda x, y: (x + y) - x)
    loose, careful = njit(fastmath=True)(lambda x, y: ufunc(x, y)), njit(lambda x, y: ufunc(x, y))
    analyze(loose, "(float64, float64)")
    assert hermetic(careful)(1e20, 1.0) == 0.0
    assert hermetic(lambda x, y: (loose(x, y), careful(x, y)))(1e20, 1.0) == (1.0, 0.0)
    assert hermetic(lambda x, y: (careful(x, y), loose(x, y)))(1e20, 1.0) == (0.0, 1.0)


def _of_declared_ufunc(x, y):
    return DECLARED_UFUNC(x, y)


def _of_declared_function(x, y):
    return DECLARED(x, y)


DECLARED = njit("float64(float64, float64)")(lambda x, y: (x + y) - x)
DECLARED_UFUNC = vectorize(["float64(float64, float64)"])(lambda x, y: (x + y) - x)


@pytest.mark.parametrize("function", [_of_declared_function, _of_declared_ufunc])
def test_what_was_declared_with_its_types_inherits_nothing(function):
    # Numba compiles it where it is declared, before there is a caller.
    assert njit(fastmath=True)(function)(1e20, 1.0) == 0.0
    assert hermetic(fastmath=True)(function)(1e20, 1.0) == 0.0


def test_what_was_declared_with_its_types_raises_under_every_caller():
    divide = njit("float64(float64, float64)")(lambda x, y: x / y)
    with pytest.raises(ZeroDivisionError):
        hermetic(error_model="numpy")(lambda x, y: divide(x, y))(1.0, 0.0)


def test_parallel_options_stay_as_they_were():
    options = {"fusion": False, "prange": True}
    function = njit(parallel=options)(lambda x: (x + 1.0).sum())
    answers = [
        analyze(function, "(float64[::1],)").certificate.digest,
        analyze(lambda x: function(x), "(float64[::1],)").certificate.digest,
    ]
    assert options == {"fusion": False, "prange": True}
    assert answers[0] == analyze(function, "(float64[::1],)").certificate.digest


def test_sixteen_threads_checking_overlapping_functions():
    first, second = njit(lambda x: api(x) * 3), njit(lambda x: callee(x) * 5)
    functions = [
        lambda x: first(x) + 1,
        lambda x: second(x) + first(x),
        lambda x: callee(x) + callee(x * 2),
        lambda x: kernel(x),
    ]
    expected = [build(make_job(one, "(float64,)")).artifact.digest for one in functions]
    found, errors = [], []

    def work(index):
        try:
            found.append((index, build(make_job(functions[index], "(float64,)")).artifact.digest))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert not errors and len(found) == 16
    assert all(digest == expected[index] for index, digest in found)


def test_interrupted_compiles_put_everything_back(monkeypatch):
    before = picture()

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(lowering.Lower, "lower_normal_function", interrupt)
    with pytest.raises(KeyboardInterrupt):
        analyze(callee, "(float64,)")
    monkeypatch.undo()
    assert differences(before, picture()) == {}
    assert analyze(callee, "(float64,)").ok


@functools.cache
def lines_without_signals(file):
    """The numbers of lines at which no signal comes in."""
    lines = enumerate(linecache.getlines(file), 1)
    return {n for n, line in lines if line.lstrip().startswith(("with ", "try:"))}


class Interrupter:
    """Raises KeyboardInterrupt before some line of some files, as Ctrl-C may."""

    def __init__(self, files, moment):
        self.files = {one: lines_without_signals(one) for one in files}
        self.moment, self.lines, self.fired = moment, 0, False

    def __call__(self, frame, event, argument):
        return self.line if frame.f_code.co_filename in self.files else None

    def line(self, frame, event, argument):
        # No signal comes in at `try`, which does nothing, nor between the end of a block and the
        # `__exit__` of its context manager.
        if event == "line" and frame.f_lineno not in self.files[frame.f_code.co_filename]:
            if self.lines == self.moment:
                self.fired = True
                sys.settrace(None)
                raise KeyboardInterrupt
            self.lines += 1
        return self.line

    def run(self, function):
        sys.settrace(self)
        try:
            function()
        finally:
            sys.settrace(None)


@pytest.fixture
def new_objects_alone():
    """Let the collector look at what the test makes alone: pictures collect, hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("new_objects_alone")
@pytest.mark.parametrize("kept", ["0", "1"])
def test_ctrl_c_while_memories_are_exchanged_puts_everything_back(kept, monkeypatch):
    monkeypatch.setenv(canonical.SWITCH, kept)
    files = {isolation.__file__, canonical.__file__}
    expected = analyze(uses_everything, "(float64[::1], int64)").certificate.digest

    def ask():
        analyze(callee, "(float64,)")

    ask()
    whole = Interrupter(files, -1)
    whole.run(ask)
    assert whole.lines > 1000
    before = picture()
    rng, fired = random.Random(int(kept)), 0
    # Most lines are in long loops: the first and last are tried one by one.
    ends = [*range(12), *range(whole.lines - 12, whole.lines)]
    for moment in [*ends, *sorted(rng.sample(range(12, whole.lines - 12), 16))]:
        one = Interrupter(files, moment)
        with contextlib.suppress(KeyboardInterrupt):
            one.run(ask)
        fired += one.fired
        assert differences(before, picture()) == {}, moment
        assert not interrupts.COMPILER_LOCK._is_owned(), moment
    assert fired > 20
    assert analyze(uses_everything, "(float64[::1], int64)").certificate.digest == expected


@pytest.mark.usefixtures("new_objects_alone")
def test_ctrl_c_at_any_moment_leaves_numba_usable():
    def interrupt(signum, frame):
        signal.raise_signal(signal.SIGINT)

    expected = analyze(uses_everything, "(float64[::1], int64)").certificate.digest
    before = picture()
    previous = signal.signal(signal.SIGALRM, interrupt)
    # A shell that runs the tests in the background has it ignored.
    of_the_process = signal.signal(signal.SIGINT, signal.default_int_handler)
    fired = 0
    try:
        for step in range(12):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.05 * step)
                try:
                    analyze(uses_everything, "(float64[::1], int64)")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                fired += 1
            assert differences(before, picture()) == {}, step
            assert not interrupts.COMPILER_LOCK._is_owned(), step
    finally:
        signal.signal(signal.SIGALRM, previous)
        handler = signal.signal(signal.SIGINT, of_the_process)
    assert fired > 3
    assert handler is signal.default_int_handler
    assert analyze(uses_everything, "(float64[::1], int64)").certificate.digest == expected
    assert njit(lambda x: callee(x) + 1)(1.0) == callee(1.0) + 1


def test_no_module_of_numbas_is_first_imported_inside_a_world():
    # Each costs an exchange of the whole of Numba's memory, see `numba_internals`.
    script = """
        import sys
        import numba
        from alloccheck.compile import recursion, world
        world.install()
        before = set(sys.modules)
        fresh = world.World(recursion.RoundRecursion({}), world.FunctionVariants())
        with fresh.active():
            pass
        print(*(set(sys.modules) - before))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert [name for name in done.stdout.split() if name.startswith("numba.")] == []


SCIPY = """
import sys

import numpy as np
from numba import njit

from alloccheck import analyze, hermetic

def half(x):
    return 0.5 * x

def product(a, b):
    return np.dot(a, b)

assert analyze(half, "float64(float64)").ok
assert "scipy.linalg" not in sys.modules, "the whole of it was imported for nothing"
from numba.np import arraymath, linalg
assert arraymath._HAVE_BLAS and arraymath.ensure_blas is linalg.ensure_blas
a = np.ones((2, 2))
assert hermetic(product)(a, a)[0, 0] == njit(product)(a, a)[0, 0] == 2.0
assert "scipy.linalg" in sys.modules
assert hermetic(lambda x: np.cov(x)[0, 1])(np.array([[0.0, 2.0], [1.0, 3.0]])) == 2.0
"""
WITHOUT_SCIPY = """
import sys

sys.modules["scipy"] = None
import numpy as np
from numba import njit

from alloccheck import CompileError, hermetic

assert hermetic(lambda x: 0.5 * x)(3.0) == 1.5
from numba.np import arraymath
assert not arraymath._HAVE_BLAS
for make, expected in ((njit, ImportError), (hermetic, CompileError)):
    try:
        make(lambda a: np.dot(a, a))(np.ones((2, 2)))
    except expected as error:
        assert "scipy" in str(error)
    else:
        raise AssertionError(make)
"""


@pytest.mark.parametrize("program", [SCIPY, WITHOUT_SCIPY], ids=["with SciPy", "without"])
def test_scipy_is_imported_where_it_is_called(program, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numbas_runtime_is_compiled_in_the_users_context_and_keeps_no_world():
    program = """
import gc, weakref
from alloccheck import hermetic
from alloccheck.compile import canonical, interrupts, isolation
from numba.core.runtime import rtsys

hermetic("(float64,)")(lambda x: x)
assert rtsys.library.codegen is isolation.global_target_context().codegen()
# Unresolved calls of the user's jitted code end there.
assert rtsys.library.get_pointer_to_function("nrt_unresolved_abort")
world = canonical.shared._world
codegen = weakref.ref(world.target_context.codegen())
del world
canonical.shared.clear()
gc.collect()
assert codegen() is None
"""
    subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            canonical.SWITCH: "1",
        },
        check=True,
    )

"""A function that has changed since it was compiled is not judged as what ran."""

from __future__ import annotations

import copyreg
import inspect
import textwrap

import numpy as np
import pytest
from numba import njit
from numba import objmode as python_block
from numba.extending import overload

from alloccheck.compile.frozen import frozen_by
from alloccheck.compile.kin import KinIdentity
from test_audit import audit, document

PROGRAM = """
    import numpy as np
    from numba import float64, int64, njit, types
    import settings

    SCALE = 2.0
    TABLE = np.arange(4.0)
    UNUSED = 1

    def dirty(x):
        return (x + 1.0).sum()

    def clean(x):
        return x[0]

    chosen = njit(dirty)

    @njit
    def of_number(x):
        return x[0] * SCALE

    @njit
    def of_table(x, i):
        return x[0] * TABLE[i]

    @njit
    def of_function(x):
        return chosen(x)

    @njit
    def of_caller(x):
        return of_function(x)

    @njit
    def of_module(x):
        return x[0] * settings.gain

    @njit
    def untouched(x):
        return x.size + x.shape[0]

    def made():
        k = 1.0

        @njit
        def inner(x):
            return x[0] * k

        def change():
            nonlocal k
            k = 2.0

        return inner, change

    inner, change = made()

    @njit(int64(int64))
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    x = np.ones(4)
    of_number(x), of_table(x, 1), of_caller(x), of_module(x), untouched(x), inner(x), factorial(4)
    {}
"""
CHANGES = {
    "SCALE = 3.0": {"of_number": "global SCALE of __main__:of_number"},
    "TABLE[0] = 9.0": {"of_table": "global TABLE of __main__:of_table"},
    "chosen = njit(clean)": {
        "of_function": "global chosen of __main__:of_function",
        "of_caller": "global chosen of __main__:of_function",
    },
    "settings.gain = 1.0": {"of_module": "global settings.gain of __main__:of_module"},
    "change()": {"made.<locals>.inner": "closure k of __main__:made.<locals>.inner"},
    "UNUSED = 2; size = 3; shape = ()": {},
    "x[0] = 2.0": {},
}


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_has_changed_is_left_undecided(tmp_path, processes):
    (tmp_path / "settings.py").write_text("gain = 0.5\n")
    changes = "\n    ".join(CHANGES)
    (tmp_path / "prog.py").write_text(textwrap.dedent(PROGRAM.format(changes)))
    done = audit("--format", "json", "--processes", processes, "prog.py", cwd=tmp_path)
    rows = {one["function"].partition(":")[2]: one for one in document(done)["functions"]}
    expected = {name: why for one in CHANGES.values() for name, why in one.items()}
    undecided = {name: row for name, row in rows.items() if row["verdict"] == "undecided"}
    assert undecided.keys() == expected.keys()
    for name, why in expected.items():
        assert rows[name]["reason"].startswith(f"{why} has changed since Numba compiled")
        assert rows[name]["report"] is None
    assert rows["dirty"]["verdict"] == "allocates"
    assert {rows[name]["verdict"] for name in ("untouched", "factorial")} == {"proved"}
    assert done.returncode == 2


def test_what_has_not_changed_is_judged(tmp_path):
    (tmp_path / "settings.py").write_text("gain = 0.5\n")
    (tmp_path / "prog.py").write_text(textwrap.dedent(PROGRAM.format("")))
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    assert document(done)["counts"]["undecided"] == 0
    assert done.returncode == 1


@pytest.mark.parametrize("between", ["MODE = False", "config.BOUNDSCHECK = 1", ""])
def test_callees_are_judged_as_they_were_when_they_were_compiled(tmp_path, between):
    """What was compiled long before its caller is called as it was then."""
    (tmp_path / "prog.py").write_text(
        textwrap.dedent(f"""
            import numpy as np
            from numba import cfunc, config, njit

            MODE = True

            @njit("float64(float64)")
            def eager(x):
                return x if MODE else np.ones(3).sum()

            @cfunc("float64(float64)")
            def callback(x):
                return x if MODE else np.ones(3).sum()

            @njit
            def own(x):
                if isinstance(x, float):
                    return own(2) + x
                return x if MODE else np.ones(3).sum()

            own(1)
            {between}

            @njit
            def of_eager(x):
                return eager(x)

            @njit
            def of_callback(x):
                return callback(x)

            @njit
            def of_none(x):
                return x

            of_eager(1.0), of_callback(1.0), of_none(1.0), own(1.0)
        """)
    )
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    rows = {one["function"].partition(":")[2]: one for one in document(done)["functions"]}
    assert rows["of_none"]["verdict"] == "proved"
    for name in ("eager", "callback"):
        assert rows[name]["verdict"] == ("undecided" if between else "proved")
        assert rows[f"of_{name}"]["verdict"] == ("undecided" if between else "proved")
        if between:
            assert f"Numba compiled __main__:{name}, which" in rows[f"of_{name}"]["reason"]
    # Compiled for an integer with what there was before, for a float with what there is now.
    for one in document(done)["functions"]:
        if one["function"] == "__main__:own":
            assert one["verdict"] == ("undecided" if between else "proved"), one


@pytest.mark.parametrize("changed", ["MODE = False", ""])
def test_kernels_are_judged_as_they_were_when_they_were_compiled(tmp_path, changed):
    """No certificate names them; what they call was compiled as long ago as they were."""
    (tmp_path / "prog.py").write_text(
        textwrap.dedent(f"""
            import numpy as np
            from numba import float64, guvectorize, njit, vectorize

            MODE = True

            @njit
            def deep(x):
                return x if MODE else np.ones(3).sum()

            @vectorize(["float64(float64)"])
            def eager(x):
                return deep(x)

            @vectorize
            def lazy(x):
                return x if MODE else np.ones(3).sum()

            @guvectorize([(float64[:], float64[:])], "(n)->(n)")
            def general(x, out):
                for i in range(x.size):
                    out[i] = x[i] if MODE else np.ones(3).sum()

            @njit
            def before(x):
                return lazy(x)

            before(1.0)
            {changed}

            @njit
            def of_eager(x):
                return eager(x)

            @njit
            def of_lazy(x):
                return lazy(x)

            @njit
            def of_general(x, out):
                general(x, out)

            @njit
            def of_caller(x):
                return of_eager(x) + 1.0

            of_lazy(1.0), of_caller(1.0), of_general(np.ones(2), np.ones(2))
        """)
    )
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    rows = {one["function"].partition(":")[2]: one for one in document(done)["functions"]}
    for name in ("of_eager", "of_lazy", "of_general", "of_caller"):
        assert rows[name]["verdict"] == ("undecided" if changed else "proved")


def test_only_functions_that_matter_count():
    limits = [1, 2]

    def other(x, by=1.0):
        return x * by

    def asked(x):
        return other(x) + len(limits)

    before = frozen_by(asked)
    both = ["test_frozen:" + one.__qualname__ for one in (asked, other)]
    limits.append(3)
    assert before.changed(both) is None
    other.__defaults__ = (2.0,)
    assert before.changed(both[:1]) is None
    assert before.changed(both).startswith("default 0 of ")
    other.__defaults__ = (1.0,)
    assert before.changed(both) is None
    other.__code__ = (lambda x, by: x).__code__
    assert before.changed(both).startswith("the code of ")


def test_what_is_inlined_counts_without_a_trace():
    by = 1.0

    @njit(inline="always")
    def part(x):
        return x * by

    def asked(x):
        return part(x)

    before = frozen_by(asked)
    by = 2.0
    assert before.changed([]) == f"closure by of test_frozen:{part.py_func.__qualname__}"


def test_a_name_that_meant_a_builtin_counts_and_one_that_was_missing_does_not():
    scope = {"__name__": "somewhere", "__builtins__": __builtins__}
    exec("def asked(x, *, by=1):\n    return abs(x) + later(x) if x else by", scope)
    asked = scope["asked"]
    before = frozen_by(asked)
    scope["later"] = len
    assert before.changed(["somewhere:asked"]) is None
    scope["abs"] = float
    assert before.changed(["somewhere:asked"]) == "global abs of somewhere:asked"
    del scope["abs"]
    asked.__kwdefaults__ = {"by": 2}
    assert before.changed(["somewhere:asked"]) == "default of by of somewhere:asked"


def test_the_content_of_arrays_counts():
    table = np.zeros(3)

    def asked(i):
        return table[i]

    before = frozen_by(asked)
    name = f"test_frozen:{asked.__qualname__}"
    table[1] = 1.0
    assert before.changed([name]) == f"closure table of {name}"


WAYS = """
    import functools, os, sys, time
    import numpy as np
    from numba import float64, guvectorize, literal_unroll, njit, types, vectorize
    from numba.core import config
    from numba.experimental import jitclass, structref
    from numba.extending import intrinsic, overload, overload_attribute, overload_method

    MODE = True

    @jitclass([("x", float64)])
    class Item:
        def __init__(self):
            self.x = 3.0

        def sum(self):
            return np.ones(3).sum() if MODE else self.x

        @property
        def total(self):
            return np.ones(3).sum() if MODE else self.x

    @structref.register
    class PairType(types.StructRef):
        pass

    class Pair(structref.StructRefProxy):
        def __new__(cls, x):
            return structref.StructRefProxy.__new__(cls, x)

    structref.define_proxy(Pair, PairType, ["x"])

    @overload_method(PairType, "sum")
    def pair_sum(self):
        def body(self):
            return np.ones(3).sum() if MODE else self.x
        return body

    @njit
    def helper(x):
        return np.ones(3).sum() if MODE else x

    helpers = (helper, helper)

    @vectorize
    def kernel(x):
        return np.ones(3).sum() if MODE else x

    @guvectorize(["(float64[:], float64[:])"], "(n)->(n)")
    def core(x, out):
        out[0] = np.ones(3).sum() if MODE else x[0]

    @intrinsic
    def size(typing_context):
        def generate(context, builder, signature, arguments):
            return context.get_constant(types.int64, 5 if MODE else 0)
        return types.int64(), generate

    class Settings:
        __slots__ = ("table",)

        def get(self):
            return self.table["a"][0]

    settings = Settings()
    settings.table = {{"a": [True]}}
    os.environ["ALLOCCHECK_TEST_MODE"] = "on"

    def asked():
        return asked.answer
    asked.answer = True

    def told(which):
        return MODE

    def chooser(decide):
        def chosen(x):
            raise NotImplementedError
        @overload(chosen)
        def choose(x):
            if decide():
                return lambda x: np.ones(3).sum()
            return lambda x: x
        return njit(lambda x: chosen(x))

    def imports():
        import switches
        return switches.mode

    by_global = chooser(lambda: MODE)
    by_method = chooser(settings.get)
    by_environment = chooser(lambda: os.environ["ALLOCCHECK_TEST_MODE"] == "on")
    by_attribute = chooser(asked)
    by_partial = chooser(functools.partial(told, 1))
    by_import = chooser(imports)

    @njit
    def of_method(item): return item.sum()
    @njit
    def of_property(item): return item.total
    @njit
    def of_structure(pair): return pair.sum()
    @njit
    def of_function(function, x): return function(x)
    @njit
    def of_tuple(x): return helpers[0](x)
    @njit
    def of_ufunc(x): return kernel(x)
    @njit
    def of_gufunc(x, out): core(x, out)
    @njit
    def of_intrinsic(x): return np.ones(size()).sum() if size() > 0 else x
    @njit
    def of_setting(x): return x[0]

    item, pair = Item(), Pair(3.0)
    of_method(item), of_property(item), of_structure(pair), of_function(helper, 3.0), of_tuple(3.0)
    of_ufunc(3.0), of_gufunc(np.ones(3), np.ones(3)), of_intrinsic(3.0)
    for one in (by_global, by_method, by_environment, by_attribute, by_partial, by_import):
        one(3.0)
    config.BOUNDSCHECK = 1
    of_setting(np.ones(3))
    config.BOUNDSCHECK = None
    {}
"""
ALL_CHANGE = """
    MODE = asked.answer = False
    settings.table["a"][0] = False
    os.environ["ALLOCCHECK_TEST_MODE"] = "off"
    import switches
    switches.mode = False
"""


@pytest.mark.parametrize("changes", [ALL_CHANGE, ""], ids=["changed", "as_it_was"])
def test_all_ways_to_code_that_is_another_by_now(tmp_path, changes):
    (tmp_path / "switches.py").write_text("mode = True\n")
    text = textwrap.dedent(WAYS.format(changes.strip()))
    (tmp_path / "prog.py").write_text(text)
    done = audit("--format", "json", "prog.py", cwd=tmp_path)
    rows = document(done)["functions"]
    named = [one for one in rows if ":of_" in one["function"]]
    chosen = [one for one in rows if one["function"].endswith("chooser.<locals>.<lambda>")]
    # Equal rows are one.
    assert len(named) == 9 and chosen
    for one in named + chosen:
        setting = one["function"].endswith(":of_setting")
        assert (one["verdict"] == "undecided") == (setting or bool(changes)), one
        assert one["verdict"] != "proved"


def test_a_copy_does_not_judge_what_is_another_only_there(tmp_path):
    (tmp_path / "prog.py").write_text(
        textwrap.dedent("""
            import time
            import numpy as np
            from numba import njit

            MODE = True

            @njit
            def first(x):
                return x

            first(1)

            @njit
            def asked(x):
                return np.ones(3).sum() if MODE else x

            asked(3.0)
            MODE = False

            def made(k):
                return njit(lambda x: x * k)

            # Those wait for a new copy, which sees the other value.
            for k in range(8):
                made(k)(1.0)
                time.sleep(0.3)
            MODE = True
        """)
    )
    done = audit("--format", "json", "--processes", "2", "prog.py", cwd=tmp_path)
    rows = {one["function"]: one["verdict"] for one in document(done)["functions"]}
    assert rows["__main__:asked"] in ("allocates", "undecided")


def test_attributes_of_functions_are_part_of_the_question():
    def asked():
        return asked.answer

    def digest():
        identity = KinIdentity()
        identity.function(asked)
        return identity.digest()

    asked.answer = 1
    before = digest()
    assert digest() == before
    asked.answer = 2
    assert digest() != before


SEEN = {"mode": 0}


class Options:
    pass


@njit
def compiled_helper(x):
    return SEEN, x


@njit
def in_object_mode(x):
    with python_block(y="float64"):
        y = float(SEEN["mode"])
    return x + y


@njit
def helper_in_object_mode(x):
    return in_object_mode(x)


def _of_compiled():
    pass


def _of_its_function():
    pass


def _of_object_mode():
    pass


def _of_a_class():
    pass


@overload(_of_compiled)
def _choose_compiled():
    return lambda: compiled_helper(1.0)


@overload(_of_its_function)
def _choose_by_its_function():
    return (lambda: 1.0) if compiled_helper.py_func(1.0)[0]["mode"] else (lambda: 2.0)


@overload(_of_object_mode)
def _choose_by_object_mode():
    return (lambda: 1.0) if helper_in_object_mode(1.0) == 1.0 else (lambda: 2.0)


@overload(_of_a_class)
def _choose_by_a_class():
    return (lambda: 1.0) if hasattr(Options, "fast") else (lambda: 2.0)


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        (lambda: _of_compiled(), False),
        (lambda: _of_its_function(), True),
        (lambda: _of_object_mode(), True),
    ],
    ids=["compiled code", "the function it is made of", "a block in object mode"],
)
def test_a_jitted_function_is_looked_into_where_python_may_run_it(call, counts, monkeypatch):
    frozen = frozen_by(call)
    monkeypatch.setitem(SEEN, "mode", 1)
    assert (frozen.changed_for(frozen.choosing) is not None) == counts
    assert frozen.changed(()) is None


def test_what_python_puts_into_a_class_is_no_change():
    def call():
        return _of_a_class()

    frozen = frozen_by(call)
    assert copyreg._slotnames(Options) == [] and "__slotnames__" in vars(Options)
    assert inspect.get_annotations(Options) == {} and Options.__annotations__ == {}
    assert "__annotations__" in vars(Options)
    assert frozen.changed_for(frozen.choosing) is None
    Options.fast = True
    try:
        assert frozen.changed_for(frozen.choosing) is not None
    finally:
        del Options.fast

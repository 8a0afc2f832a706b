"""Attacks on proofs: what once was, or could be, proved although it is not so.

Two kinds. A function is proved, then something that its code was made of is changed, and the same
question must get the answer of a process that never asked before. And programs that hide an
allocation, a release or a wait from the analysis, each with the truth as the C library counts it.
"""

from __future__ import annotations

import builtins
import collections
import ctypes
import enum
import logging
import math
import os
import struct
import sys
import threading
import weakref
from functools import partial
from types import MappingProxyType, ModuleType, SimpleNamespace

import numpy as np
import pytest
from numba import cfunc, guvectorize, njit, typeof, types, vectorize
from numba.core import cgutils, ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.imputils import lower_builtin, lower_constant
from numba.core.untyped_passes import IRProcessing
from numba.experimental import jitclass
from numba.extending import (
    intrinsic,
    make_attribute_wrapper,
    models,
    overload,
    register_jitable,
    register_model,
    type_callable,
    typeof_impl,
)

import attack_programs
from alloccheck import analyze, assume, oracle
from alloccheck.compile import canonical

F = types.float64
V = types.Array(F, 1, "C")


def clean(x):
    return x + 1.0


def dirty(x):
    return np.ones(int(x)).sum()


def written(source, **scope):
    """The function `f` of some source, with a namespace that a test may change."""
    space = {"np": np, "math": math, **scope}
    exec(source, space)
    return space["f"], space


# --- what the answer depends on is changed --------------------------------------------------------


def code():
    def f(x):
        return (x, x)[1]

    def g(x):
        return [x, x][1]

    return f, (F,), lambda: setattr(f, "__code__", g.__code__)


def code_of_helper():
    def helper(x):
        return (x, x)[1]

    def other(x):
        return [x, x][1]

    compiled = njit(helper)
    return lambda x: compiled(x), (F,), lambda: setattr(helper, "__code__", other.__code__)


def defaults_of_helper():
    def helper(x, size=None):
        if size is None:
            return x
        return np.ones(size).sum()

    compiled = njit(helper)
    return lambda x: compiled(x), (F,), lambda: setattr(helper, "__defaults__", (3,))


def module_three_levels_down():
    package, middle, deep = ModuleType("package"), ModuleType("middle"), ModuleType("deep")
    package.middle, middle.deep, deep.helper = middle, deep, njit(clean)
    f, _ = written("def f(x): return package.middle.deep.helper(x)", package=package)
    return f, (F,), lambda: setattr(deep, "helper", njit(dirty))


def module_through_alias():
    package, inner = ModuleType("package"), ModuleType("inner")
    package.inner, inner.back, package.helper = inner, package, njit(clean)
    f, _ = written("def f(x): return inner.back.inner.back.helper(x)", inner=inner)
    return f, (F,), lambda: setattr(package, "helper", njit(dirty))


def kernel_of_ufunc():
    kernel, space = written("def f(x): return helper(x)", helper=njit(clean))
    ufunc = vectorize(kernel)

    def f(out, x):
        ufunc(x, out)

    return f, (V, V), lambda: space.update(helper=njit(dirty))


def kernel_of_gufunc():
    kernel, space = written(
        "def f(x, out):\n    for i in range(x.size): out[i] = helper(x[i])", helper=njit(clean)
    )
    gufunc = guvectorize([(F[:], F[:])], "(n)->(n)")(kernel)

    def f(out, x):
        gufunc(x, out)

    return f, (V, V), lambda: space.update(helper=njit(dirty))


def choice_of_overload():
    mode = {"allocating": False}

    def chosen(x):
        raise NotImplementedError

    @overload(chosen)
    def choose(x):
        if mode["allocating"]:
            return lambda x: np.ones(int(x)).sum()
        return lambda x: x + 1.0

    return lambda x: chosen(x), (F,), lambda: mode.update(allocating=True)


def choice_of_overload_made_elsewhere():
    decide, space = written("def f(): return mode", mode=0)

    def chosen(x):
        raise NotImplementedError

    @overload(chosen)
    def choose(x):
        if decide():
            return lambda x: np.ones(int(x)).sum()
        return lambda x: x + 1.0

    return lambda x: chosen(x), (F,), lambda: space.update(mode=1)


def constant_of_intrinsic():
    value = {"size": 1.0}

    @intrinsic
    def constant(typing_context, x):
        def generate(context, builder, signature, arguments):
            return context.get_constant(F, value["size"])

        return F(x), generate

    return lambda x: constant(x), (F,), lambda: value.update(size=2.0)


def helper_that_is_inlined():
    helper, space = written("def f(x): return inner(x)", inner=njit(clean))
    inlined = njit(inline="always")(helper)
    return lambda x: inlined(x), (F,), lambda: space.update(inner=njit(dirty))


def jitable_helper():
    helper, space = written("def f(x): return inner(x)", inner=njit(clean))
    register_jitable(helper)
    return lambda x: helper(x), (F,), lambda: space.update(inner=njit(dirty))


KEPT = []
"""Dispatchers that a signature refers to weakly."""


def trust_in_function_argument():
    @assume("nonallocating", reason="a test takes it back")
    def helper(x):
        return np.ones(int(x)).sum()

    compiled = njit(helper)
    KEPT.append(compiled)
    return (
        lambda g, x: g(x),
        (typeof(compiled), F),
        lambda: delattr(helper, "__alloccheck_assumption__"),
    )


def _class():
    @jitclass([("a", F)])
    class Holder:
        def __init__(self, a):
            self.a = a

        def method(self):
            return self.a + 1.0

        @property
        def attribute(self):
            return self.a + 1.0

    def other(self):
        return np.ones(int(self.a)).sum()

    return Holder.class_type, njit(other)


def method_of_argument():
    kind, other = _class()
    return (
        lambda o: o.method(),
        (kind.instance_type,),
        lambda: kind.jit_methods.update(method=other),
    )


def property_of_argument():
    kind, other = _class()
    changed = {**kind.jit_props["attribute"], "get": other}
    return (
        lambda o: o.attribute,
        (kind.instance_type,),
        lambda: kind.jit_props.update(attribute=changed),
    )


def function_in_tuple():
    f, space = written("def f(x): return both[0](x)", both=(njit(clean), njit(clean)))
    return f, (F,), lambda: space.update(both=(njit(dirty), space["both"][1]))


def array_in_tuple():
    f, space = written("def f(i): return both[1][i]", both=(np.zeros(3), np.zeros(3)))
    return f, (types.int64,), lambda: space["both"][1].fill(1.0)


def digits_of_record():
    one = np.zeros(1, dtype=[("a", F.name)])[0]
    f, space = written("def f(i): return record.a", record=one)
    one["a"], other = 1.0, one.copy()
    other["a"] = 1.0 + 2**-50
    return f, (types.int64,), lambda: space.update(record=other)


def sign_of_nan():
    def nan(bits):
        return struct.unpack("d", struct.pack("Q", bits))[0]

    f, space = written("def f(x): return math.copysign(x, nan)", nan=nan(0x7FF8 << 48))
    return f, (F,), lambda: space.update(nan=nan(0xFFF8 << 48))


def cell_of_closure():
    helper = njit(clean)

    def f(x):
        return helper(x)

    return f, (F,), lambda: setattr(f.__closure__[0], "cell_contents", njit(dirty))


def locals_of_helper():
    def helper(x):
        y = x * 3.3
        return y

    compiled = njit(helper)
    return lambda x: compiled(x), (F,), lambda: compiled.locals.update(y=types.float32)


def enumeration_of_one_name():
    def made(value):
        return enum.IntEnum("Kind", {"A": value, "B": 2})

    f, space = written("def f(x): return 1.0 if x == Kind.A else 2.0", Kind=made(1))
    return f, (types.int64,), lambda: space.update(Kind=made(5))


def _chosen_by(decide):
    """A function whose overload allocates when `decide` says so, with an implementation each."""

    def chosen(x):
        raise NotImplementedError

    @overload(chosen)
    def choose(x):
        if decide():
            return lambda x: np.ones(int(x)).sum()
        return lambda x: x + 1.0

    return lambda x: chosen(x), (F,)


def choice_by_attribute_of_class():
    class Settings:
        allocating = False

    return *_chosen_by(lambda: Settings.allocating), lambda: setattr(Settings, "allocating", True)


def choice_by_attribute_of_base_class():
    class Base:
        allocating = False

    class Settings(Base):
        pass

    return *_chosen_by(lambda: Settings.allocating), lambda: setattr(Base, "allocating", True)


def choice_by_attribute_of_object():
    settings = SimpleNamespace(allocating=False)
    return *_chosen_by(lambda: settings.allocating), lambda: setattr(settings, "allocating", True)


def choice_by_attribute_of_function():
    def settings():
        """Has an attribute."""

    settings.allocating = False
    return *_chosen_by(lambda: settings.allocating), lambda: setattr(settings, "allocating", True)


def choice_by_method():
    class Settings:
        def allocating(self):
            return False

    one = Settings()
    change = partial(setattr, Settings, "allocating", lambda self: True)
    return *_chosen_by(lambda: one.allocating()), change


def choice_by_function_in_dict():
    decide, space = written("def f(): return mode", mode=0)
    deciders = {"first": decide}
    return *_chosen_by(lambda: deciders["first"]()), lambda: space.update(mode=1)


def choice_by_long_list():
    settings = [0] * 2000
    return *_chosen_by(lambda: settings[1500]), lambda: settings.__setitem__(1500, 1)


def choice_by_object_in_list():
    class Quiet:
        allocating = False

        def __repr__(self):
            return "quiet"

    settings = [Quiet()]
    return *_chosen_by(lambda: settings[0].allocating), lambda: setattr(
        settings[0], "allocating", True
    )


def choice_by_environment():
    change = partial(os.environ.__setitem__, "ALLOCCHECK_TEST_MODE", "1")
    return *_chosen_by(lambda: os.environ.get("ALLOCCHECK_TEST_MODE")), change


def choice_by_imported_module():
    module = sys.modules["settings_of_test"] = ModuleType("settings_of_test")
    module.allocating = False
    decide, _ = written("def f():\n    from settings_of_test import allocating as a\n    return a")
    return *_chosen_by(decide), lambda: setattr(module, "allocating", True)


def choice_by_metaclass():
    settings = {"allocating": False}

    class Meta(type):
        @property
        def allocating(cls):
            return settings["allocating"]

    class Settings(metaclass=Meta):
        pass

    return *_chosen_by(lambda: Settings.allocating), lambda: settings.update(allocating=True)


def choice_by_dunder_attribute():
    class Settings:
        __allocating__ = False

    change = partial(setattr, Settings, "__allocating__", True)
    return *_chosen_by(lambda: Settings.__allocating__), change


def choice_by_object_in_set():
    one = SimpleNamespace(allocating=False)
    holder = type("Holder", (), {"inner": one})()
    settings = {holder}
    return *_chosen_by(lambda: next(iter(settings)).inner.allocating), lambda: setattr(
        one, "allocating", True
    )


def choice_by_attribute_of_container():
    settings = type("Settings", (dict,), {})()
    settings.allocating = False
    return *_chosen_by(lambda: settings.allocating), lambda: setattr(settings, "allocating", True)


def choice_by_default_of_dict():
    mode = [0]
    settings = collections.defaultdict(lambda: mode[0])
    return *_chosen_by(lambda: settings.copy()["mode"]), lambda: mode.__setitem__(0, 1)


def choice_by_chain_of_dicts():
    inner = {}
    settings = collections.ChainMap({}, inner)
    return *_chosen_by(lambda: settings.get("mode")), lambda: inner.update(mode=1)


def choice_by_proxy_of_dict():
    inner = {"mode": 0}
    settings = MappingProxyType(inner)
    return *_chosen_by(lambda: settings["mode"]), lambda: inner.update(mode=1)


def choice_by_method_of_dict():
    settings = {"mode": 0}
    look = settings.get
    return *_chosen_by(lambda: look("mode")), lambda: settings.update(mode=1)


def choice_by_weak_reference():
    one = type("Settings", (), {})()
    one.allocating = False
    KEPT.append(one)
    settings = weakref.ref(one)
    return *_chosen_by(lambda: settings().allocating), lambda: setattr(one, "allocating", True)


def choice_by_value_in_c():
    settings = ctypes.c_int(0)
    return *_chosen_by(lambda: settings.value), lambda: setattr(settings, "value", 1)


def choice_by_value_of_thread():
    settings = threading.local()
    settings.allocating = False
    return *_chosen_by(lambda: settings.allocating), lambda: setattr(settings, "allocating", True)


def choice_by_level_of_logger():
    logger = logging.getLogger("test_attacks")
    logger.setLevel(logging.ERROR)
    return *_chosen_by(lambda: logger.isEnabledFor(logging.DEBUG)), lambda: logger.setLevel(1)


def what_is_put_among_builtins():
    name = "helper_of_test_attacks"
    setattr(builtins, name, njit(clean))
    f, _ = written(f"def f(x): return {name}(x)")
    return f, (F,), lambda: setattr(builtins, name, njit(dirty))


def attribute_that_a_module_makes_up():
    module, values = ModuleType("module"), {"size": 2.0}

    def make_up(name):
        if name not in values:
            raise AttributeError(name)
        return values[name]

    module.__getattr__ = make_up
    f, _ = written("def f(x): return x * module.size", module=module)
    return f, (F,), lambda: values.update(size=3.0)


def function_of_a_dispatcher():
    compiled = njit(clean)
    return lambda x: compiled(x), (F,), lambda: setattr(compiled, "py_func", dirty)


def options_of_a_callback():
    callback = cfunc("float64(float64)")(lambda x: 1.0 / x if x > 2.0 else 1.0 / (x * x + 1.0))
    callback._compiler.targetoptions["error_model"] = "numpy"
    change = partial(callback._compiler.targetoptions.update, fastmath=True)
    return lambda x: callback(x) + x, (F,), change


def function_of_a_callback():
    callback = cfunc("float64(float64)")(clean)
    return lambda x: callback(x), (F,), lambda: setattr(callback, "_pyfunc", dirty)


def lowering_of_extension():
    value = {"factor": 2.0}

    def scaled(x):
        raise NotImplementedError

    @type_callable(scaled)
    def _type(context):
        return lambda x: F

    @lower_builtin(scaled, F)
    def _lower(context, builder, signature, arguments):
        return builder.fmul(arguments[0], context.get_constant(F, value["factor"]))

    return lambda x: scaled(x), (F,), lambda: value.update(factor=3.0)


def typing_of_extension():
    value = {"result": F}

    def same(x):
        raise NotImplementedError

    @type_callable(same)
    def _type(context):
        return lambda x: value["result"]

    @lower_builtin(same, types.Any)
    def _lower(context, builder, signature, arguments):
        return context.cast(builder, arguments[0], F, signature.return_type)

    return lambda x: same(x), (F,), lambda: value.update(result=types.float32)


class Constant:
    """An object that an extension makes a constant of."""

    def __init__(self, value):
        self.value = value


class ConstantType(types.Type):
    def __init__(self):
        super().__init__("Constant of test_attacks")


@typeof_impl.register(Constant)
def _typeof_constant(value, context):
    return ConstantType()


@register_model(ConstantType)
class _ConstantModel(models.StructModel):
    def __init__(self, manager, declared):
        super().__init__(manager, declared, [("value", F)])


@lower_constant(ConstantType)
def _lower_constant(context, builder, declared, value):
    struct = cgutils.create_struct_proxy(declared)(context, builder)
    struct.value = context.get_constant(F, value.value)
    return struct._getvalue()


make_attribute_wrapper(ConstantType, "value", "value")


def constant_of_extension():
    one = Constant(2.0)
    return lambda x: x * one.value, (F,), lambda: setattr(one, "value", 3.0)


def attribute_by_text():
    module = ModuleType("module")
    module.size = 2.0
    f, _ = written("def f(x): return x * getattr(module, 'size')", module=module)
    return f, (F,), lambda: setattr(module, "size", 3.0)


def attribute_by_text_of_caller():
    module = ModuleType("module")
    module.size = 2.0
    read, _ = written("def f(name, x): return x * getattr(module, name)", module=module)
    helper = njit(read)
    return lambda x: helper("size", x), (F,), lambda: setattr(module, "size", 3.0)


def decision_to_inline():
    settings = SimpleNamespace(inline=True)
    helper = njit(inline=lambda *_: settings.inline)(clean)
    return lambda x: helper(x) + helper(x + 1.0), (F,), lambda: setattr(settings, "inline", False)


def compiler_pass():
    settings = {}

    @register_pass(mutates_CFG=False, analysis_only=False)
    class Replace(FunctionPass):
        _name = "replace_constants_of_test_attacks"

        def __init__(self):
            super().__init__()

        def run_pass(self, state):
            for block in state.func_ir.blocks.values():
                for one in block.find_insts(ir.Assign):
                    if isinstance(one.value, ir.Const) and one.value.value == 2.0 and settings:
                        one.value = ir.Const(settings["instead"], one.loc)
            return bool(settings)

    class Pipeline(CompilerBase):
        def define_pipelines(self):
            manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
            manager.add_pass_after(Replace, IRProcessing)
            manager.finalize()
            return [manager]

    helper = njit(pipeline_class=Pipeline)(lambda x: x * 2.0)
    return lambda x: helper(x), (F,), lambda: settings.update(instead=3.0)


CHANGES = [
    code,
    code_of_helper,
    defaults_of_helper,
    module_three_levels_down,
    module_through_alias,
    kernel_of_ufunc,
    kernel_of_gufunc,
    choice_of_overload,
    choice_of_overload_made_elsewhere,
    constant_of_intrinsic,
    helper_that_is_inlined,
    jitable_helper,
    trust_in_function_argument,
    method_of_argument,
    property_of_argument,
    function_in_tuple,
    array_in_tuple,
    digits_of_record,
    sign_of_nan,
    cell_of_closure,
    locals_of_helper,
    enumeration_of_one_name,
    choice_by_attribute_of_class,
    choice_by_attribute_of_base_class,
    choice_by_attribute_of_object,
    choice_by_attribute_of_function,
    choice_by_method,
    choice_by_function_in_dict,
    choice_by_long_list,
    choice_by_object_in_list,
    choice_by_environment,
    choice_by_imported_module,
    choice_by_metaclass,
    choice_by_dunder_attribute,
    choice_by_object_in_set,
    choice_by_attribute_of_container,
    choice_by_default_of_dict,
    choice_by_chain_of_dicts,
    choice_by_proxy_of_dict,
    choice_by_method_of_dict,
    choice_by_weak_reference,
    choice_by_value_in_c,
    choice_by_value_of_thread,
    choice_by_level_of_logger,
    what_is_put_among_builtins,
    attribute_that_a_module_makes_up,
    function_of_a_dispatcher,
    options_of_a_callback,
    function_of_a_callback,
    lowering_of_extension,
    typing_of_extension,
    constant_of_extension,
    attribute_by_text,
    attribute_by_text_of_caller,
    decision_to_inline,
    compiler_pass,
]

WITHOUT_ALLOCATION = {
    constant_of_intrinsic,
    array_in_tuple,
    digits_of_record,
    sign_of_nan,
    locals_of_helper,
    enumeration_of_one_name,
    lowering_of_extension,
    typing_of_extension,
    constant_of_extension,
    attribute_by_text,
    attribute_by_text_of_caller,
    decision_to_inline,
    compiler_pass,
    attribute_that_a_module_makes_up,
    options_of_a_callback,
}
"""Changes that make other code, which is proved all the same."""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    monkeypatch.setenv(canonical.SWITCH, "1")
    canonical.shared.clear()
    yield
    canonical.shared.clear()


def answer(f, signature):
    report = analyze(f, signature)
    return report.ok, report.certificate.digest


@pytest.mark.parametrize("attack", CHANGES, ids=lambda one: one.__name__)
def test_what_was_changed_is_compiled_anew(attack, monkeypatch):
    monkeypatch.setenv("ALLOCCHECK_TEST_MODE", "")
    f, signature, change = attack()
    first = answer(f, signature)
    assert first[0]
    change()
    kept = answer(f, signature)
    monkeypatch.setenv(canonical.SWITCH, "0")
    assert kept == answer(f, signature)
    assert kept != first
    assert kept[0] is (attack in WITHOUT_ALLOCATION)


# --- programs that hide what they do --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", attack_programs.PROGRAMS)
def test_hidden_allocation_is_found_and_none_is_invented(name):
    program = attack_programs.PROGRAMS[name]
    assert analyze(program.function, program.signature).ok is not program.allocates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", attack_programs.PROGRAMS)
def test_programs_really_do_what_they_are_said_to(name):
    program = attack_programs.PROGRAMS[name]
    arguments = [
        oracle.made_by(attack_programs.argument, name, i) for i in range(len(program.arguments))
    ]
    counts = oracle.count_effects(oracle.made_by(attack_programs.entry, name), *arguments)
    assert counts.artifact
    assert counts.steady.outcome == "returned"
    assert (counts.allocations > 0) is program.allocates, str(counts)

"""What Numba compiles must compile hermetically, with the same values; found by Numba's tests."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import overload

from alloccheck import hermetic
from alloccheck.compile.recursion import RecursionFault


def test_each_declared_return_type_is_a_question_of_its_own():
    def same(x):
        return x

    assert hermetic("float64(int64)")(same)(3) == 3.0
    narrow = hermetic("int8(int64)")(same)
    assert narrow.nopython_signatures[0].return_type == types.int8
    assert narrow(300) == 44
    plain = hermetic(same)
    assert plain(300) == 300
    assert plain.nopython_signatures[0].return_type == types.int64


def test_a_return_type_without_a_conversion_is_an_error_after_one_with():
    def same(x):
        return x

    pair = types.UniTuple(types.int32, 2)
    assert hermetic(types.UniTuple(types.float32, 2)(pair))(same)((4, 5)) == (4.0, 5.0)
    with pytest.raises(TypingError, match="No conversion from UniTuple"):
        hermetic(types.Tuple((types.float32,))(pair))(same)


def test_recursion_through_a_declared_return_type_uses_it():
    @hermetic("float64(int64)")
    def down(n):
        return 0 if n <= 0 else down(n - 1) + 1

    assert isinstance(down(3), float)
    assert down(3) == 3.0


def test_jitclass_constructors_and_inner_functions_have_no_module():
    from numba.experimental import jitclass

    @jitclass([("value", types.float64)])
    class Box:
        def __init__(self, value):
            self.value = value

        def doubled(self):
            return 2.0 * self.value

    @hermetic
    def use(x):
        def add(y):
            return y + x

        return Box(add(1.0)).doubled()

    assert use(2.0) == 6.0


def test_errors_are_numbas_own_classes_too():
    @hermetic
    def without_end(x):
        return without_end(x)

    with pytest.raises(TypingError, match="without a base case") as caught:
        without_end(1)
    assert isinstance(caught.value, RecursionFault)

    def with_recursive_inner(x):
        def inner(y):
            return 10 if y < 2 else inner(y - 1)

        return inner(x)

    with pytest.raises(NotImplementedError) as expected:
        njit(with_recursive_inner)(1)
    with pytest.raises(NotImplementedError) as found:
        hermetic(with_recursive_inner)(1)
    assert str(expected.value) in str(found.value)


def test_arguments_do_not_outlive_a_compile_in_which_a_candidate_failed():
    def measure(x):
        raise NotImplementedError

    @overload(measure)
    def measure_number(x):
        return lambda x: x.no_such_attribute

    @overload(measure)
    def measure_array(x):
        return lambda x: x.size

    @hermetic
    def use(x):
        return measure(x)

    values = np.ones(3)
    assert use(values) == 3
    alive = weakref.ref(values)
    del values
    gc.collect()
    assert alive() is None


def test_a_captured_variable_is_read_anew_for_each_dispatcher():
    size = 10

    def add(x):
        return x + size

    first = hermetic("i4(i4)")(add)
    assert first(1) == 11
    size = 12
    assert hermetic("i4(i4)")(add)(1) == 13
    assert first(1) == 11


MODULE_OF_DECORATORS = """
from numba import njit, vectorize, guvectorize, types
from numba.experimental import jitclass

@njit("float64(float64)")
def eager(x):
    return x + 1.0

@njit
def lazy(x):
    return x + 2.0

@vectorize(["float64(float64)"])
def kernel(x):
    return x + 3.0

@guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")
def rows(x, out):
    for i in range(x.size):
        out[i] = x[i] + 4.0

@jitclass([("value", types.float64)])
class Box:
    def __init__(self, value):
        self.value = value
"""


def test_a_module_that_is_first_imported_by_an_overload_works_for_everybody(tmp_path, monkeypatch):
    (tmp_path / "imported_while_compiling.py").write_text(MODULE_OF_DECORATORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def measure(x):
        raise NotImplementedError

    @overload(measure)
    def measure_number(x):
        from imported_while_compiling import eager, kernel, lazy

        made.append(njit("float64(float64)")(lambda x: x + 5.0))
        inner = made[0]
        return lambda x: eager(x) + lazy(x) + kernel(x) + inner(x)

    @hermetic
    def use(x):
        return measure(x)

    assert use(1.0) == 2.0 + 3.0 + 4.0 + 6.0
    import imported_while_compiling as module

    values = np.arange(3.0)
    assert module.eager(1.0) == 2.0
    assert module.lazy(1.0) == 3.0
    np.testing.assert_array_equal(module.kernel(values), values + 3.0)
    np.testing.assert_array_equal(module.rows(values), values + 4.0)
    assert module.Box(2.0).value == 2.0
    assert made[0](1.0) == 6.0
    assert njit(lambda x: module.eager(x) + module.kernel(x))(1.0) == 6.0
    assert module.eager.typingctx is njit(lambda x: x).typingctx


def test_artifacts_do_not_keep_the_worlds_that_made_them():
    from alloccheck.compile.world import World

    def worlds():
        gc.collect()
        return sum(type(one) is World for one in gc.get_objects())

    kept, before = [], worlds()
    for _ in range(3):

        @hermetic
        def factorial(n):
            return 1 if n < 2 else n * factorial(n - 1)

        assert factorial(4) == 24
        kept.append(factorial)
    assert worlds() <= before + 1


def test_wrappers_that_compile_callees_of_their_own():
    @hermetic
    def size(values):
        return len(values)

    assert size({1, 2, 3}) == 3
    assert size({1.5, 2.5}) == 2

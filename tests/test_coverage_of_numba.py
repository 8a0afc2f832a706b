"""What Numba compiles must compile hermetically, with the same values; found by Numba's tests."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit, types
from numba.core.errors import TypingError

from alloccheck import hermetic


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

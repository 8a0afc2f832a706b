"""Recursion that stock Numba refuses or miscompiles: through methods, and across other flags."""

from numba import int64, njit
from numba.experimental import jitclass

from alloccheck import analyze, hermetic


@jitclass([("base", int64)])
class Counter:
    def __init__(self, base):
        self.base = base

    def factorial(self, n):
        if n <= 1:
            return self.base
        return n * self.factorial(n - 1)

    def even(self, n):
        if n == 0:
            return True
        return self.odd(n - 1)

    def odd(self, n):
        if n == 0:
            return False
        return self.even(n - 1)

    def widen(self, n):
        if n <= 0:
            return 1
        return self.half(n - 1)

    def half(self, n):
        if n <= 0:
            return 2.5
        return self.widen(n - 1)


def factorial(counter, n):
    return counter.factorial(n)


def even(counter, n):
    return counter.even(n)


def widen(counter, n):
    return counter.widen(n)


def test_a_method_calls_itself():
    assert hermetic(factorial)(Counter(1), 5) == 120
    assert hermetic(factorial)(Counter(2), 5) == 240


def test_methods_call_each_other():
    found = hermetic(even)
    assert [found(Counter(1), n) for n in range(5)] == [True, False, True, False, True]


def test_the_return_types_of_methods_reach_their_fixpoint():
    found = hermetic(widen)
    assert [found(Counter(1), n) for n in range(4)] == [1.0, 2.5, 1.0, 2.5]
    assert str(found.nopython_signatures[0].return_type) == "float64"


def test_a_recursive_method_is_proved():
    instance = Counter.class_type.instance_type
    assert analyze(factorial, (instance, int64)).ok


@njit(fastmath=True, boundscheck=True)
def whole(n):
    if n <= 0:
        return 1
    return part(n - 1)


@njit(error_model="numpy")
def part(n):
    if n <= 0:
        return 2.5
    return whole(n - 1)


def test_members_of_a_cycle_keep_their_own_flags():
    from_whole, from_part = hermetic(whole), hermetic(part)
    assert [from_whole(n) for n in range(4)] == [1.0, 2.5, 1.0, 2.5]
    assert [from_part(n) for n in range(4)] == [2.5, 1.0, 2.5, 1.0]
    assert analyze(whole, "(int64,)").ok

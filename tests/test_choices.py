"""Functions as values: one of several, whatever they were compiled for before."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cfunc, njit, types

from alloccheck import CompileError, analyze, check_allocs, hermetic

INTEGER = types.int64(types.int64)


@njit
def added(x):
    return x + 3


@njit
def doubled(x):
    return x * 2


@njit
def halved(x):
    return x * 0.5


@njit([INTEGER])
def declared_added(x):
    return x + 3


@njit([INTEGER])
def declared_doubled(x):
    return x * 2


@njit([INTEGER])
def refusing(x):
    if x > 3:
        raise ValueError("too large")
    return x


def one_of(x, first):
    if first:
        f = added
    else:
        f = doubled
    return f(x)


def used_twice(x, y, first):
    f = added if first else doubled
    return f(x) + f(y)


@njit
def apply(f, x):
    return f(x) + f(x + 1)


def passed_on(x, first):
    return apply(added if first else doubled, x)


def of_three(x, which):
    f = added
    if which == 1:
        f = doubled
    elif which == 2:
        f = halved
    return f(x)


def in_list(x, which):
    functions = [added, doubled, halved]
    return functions[which](x)


CHOOSING = [
    (one_of, (True,)),
    (one_of, (False,)),
    (passed_on, (True,)),
    (passed_on, (False,)),
    (of_three, (0,)),
    (of_three, (1,)),
    (of_three, (2,)),
    (in_list, (1,)),
    (in_list, (2,)),
]


@pytest.mark.parametrize(("function", "which"), CHOOSING)
def test_a_choice_serves_every_argument_type_one_after_the_other(function, which):
    checked = hermetic(function)
    for argument in (5, 2.5, np.float32(1.5), 7, 2 + 1j, 3):
        expected = function(argument, *which)
        answer = checked(argument, *which)
        assert answer == expected


@pytest.mark.parametrize("first", [True, False])
def test_one_value_is_called_with_two_types(first):
    # Numba refuses this in either order: the first call settles the signature.
    checked = hermetic(used_twice)
    assert checked(5, 2.5, first) == used_twice(5, 2.5, first)
    assert checked(2.5, 5, first) == used_twice(2.5, 5, first)


def pick(first):
    if first:
        return added
    return doubled


@pytest.mark.parametrize("order", [(5, 2.5), (2.5, 5)])
def test_a_function_that_another_function_returned(order):
    # The one that returns it is compiled once, and what it returns is called with both types.
    inner = hermetic(pick)

    @hermetic
    def use(x, first):
        return inner(first)(x)

    for x in order:
        assert use(x, True) == x + 3
        assert use(x, False) == x * 2


def test_python_gets_the_function_that_was_chosen():
    checked = hermetic(pick)
    assert checked(True) is added
    assert checked(False) is doubled


def test_each_function_converts_and_completes_its_arguments():
    @njit
    def with_default(x, by=10):
        return x - by

    @njit
    def with_rest(x, *rest):
        return x + len(rest)

    @njit(["float64(float64)"])
    def converting(x):
        return x / 4

    @hermetic
    def call(x, which):
        f = with_default
        if which == 1:
            f = converting_too
        return f(x)

    @njit
    def converting_too(x, by=0.25):
        return x * by

    assert [call(8, 0), call(8, 1)] == [-2.0, 2.0]

    @hermetic
    def call_rest(x, which):
        f = with_rest
        if which:
            f = with_rest_too
        return f(x, x, x)

    @njit
    def with_rest_too(x, *rest):
        return x + rest[0] * rest[1]

    assert [call_rest(3, False), call_rest(3, True)] == [5, 12]


def test_results_without_a_common_type_are_refused_with_both_named():
    @njit
    def number(x):
        return x

    @njit
    def pair(x):
        return x, x

    @hermetic
    def call(x, first):
        f = number if first else pair
        return f(x)

    with pytest.raises(CompileError, match=r"number returns int64, pair returns UniTuple\(int64"):
        call(1, True)


def test_keywords_are_refused_as_numba_does():
    @hermetic
    def call(x, first):
        f = added if first else doubled
        return f(x=x)

    with pytest.raises(CompileError, match="cannot use keyword arguments"):
        call(1, True)


def test_a_loop_over_functions_of_one_declared_signature():
    functions = (declared_added, declared_doubled)

    @hermetic
    def of_closure(x):
        total = 0
        for f in functions:
            total += f(x)
        return total

    @hermetic
    def by_index(x, which):
        return functions[which](x)

    @hermetic
    def raising(x):
        total = 0
        for f in (refusing, declared_doubled):
            total += f(x)
        return total

    assert of_closure(5) == 18
    assert [by_index(5, 0), by_index(5, 1)] == [8, 10]
    assert raising(3) == 9
    with pytest.raises(ValueError, match="too large"):
        raising(4)


def test_the_users_own_code_is_not_called_through_a_table():
    """A constant table holds this compile's functions, though the user's have addresses."""

    @check_allocs(guarantee="nonallocating")
    def loop(x):
        total = 0
        for f in (declared_added, declared_doubled):
            total += f(x)
        return total

    assert loop(5) == 18


def test_a_declared_signature_without_return_type():
    @hermetic(["(int64,)"])
    def first(x):
        return x + 1

    @hermetic(["(int64,)"])
    def second(x):
        return x * 10

    @hermetic
    def loop(x):
        total = 0
        for f in (first, second):
            total += f(x)
        return total

    assert loop(5) == 56


def test_a_forced_return_type_is_not_the_answer_of_a_direct_call():
    # Numba keeps one result for the argument types: whichever came first.
    @njit([types.float64(types.int64)])
    def quarter(x):
        return x / 4

    def forced_first(x, which):
        total = 0.0
        for f in (quarter, added):
            total += f(x)
        return total, added(x)

    def direct_first(x, which):
        direct = added(x)
        total = 0.0
        for f in (quarter, added):
            total += f(x)
        return total, direct

    for function in (forced_first, direct_first):
        total, direct = hermetic(function)(4, 0)
        assert total == 8.0
        assert direct == 7
        assert type(direct) is int


def test_with_a_function_of_c():
    @cfunc(INTEGER)
    def of_c(x):
        return x * 7

    @hermetic
    def loop(x):
        total = 0
        for f in (of_c, declared_added):
            total += f(x)
        return total

    assert loop(5) == 43


@njit
def holds(x):
    return x


@njit([INTEGER])
def goes_round(x):
    return holds(x - 1) if x > 0 else 0


@njit
def holds(x):  # noqa: F811  (what is declared must compile before this exists)
    total = 0
    for f in table:
        total += f(x)
    return total


table = (goes_round, declared_added)


def test_a_value_whose_code_waits_for_this_code_is_refused():
    @hermetic
    def inner(x):
        return goes_round(x)

    with pytest.raises(CompileError, match="unsupported recursion"):
        hermetic(goes_round)(1)
    with pytest.raises(CompileError, match="in its own definition"):
        inner(1)


@njit
def collatz(n):
    if n == 1:
        return 0
    step = halve if n % 2 == 0 else triple
    return step(n) + 1


@njit
def halve(n):
    return collatz(n // 2)


@njit
def triple(n):
    return collatz(3 * n + 1)


@njit
def descend(n, odd):
    if n <= 0:
        return 0.5 if odd else 1
    following = ascend if n % 2 else descend
    return following(n - 1, not odd)


@njit
def ascend(n, odd):
    if n > 20:
        return 2
    following = descend if n % 3 else ascend
    return following(n - 2 if n % 3 else n + 2, odd)


@pytest.mark.parametrize("first", ["collatz", "halve", "triple"])
def test_recursion_through_a_choice(first):
    entries = {"collatz": collatz, "halve": halve, "triple": triple}

    def python(n):
        return 0 if n == 1 else python(n // 2 if n % 2 == 0 else 3 * n + 1) + 1

    checked = hermetic(entries[first].py_func)
    steps = checked if first == "collatz" else hermetic(collatz.py_func)
    assert [steps(n) for n in range(1, 30)] == [python(n) for n in range(1, 30)]
    given = {"collatz": 7, "halve": 14, "triple": 2}[first]
    assert checked(given) == python(7)


@pytest.mark.parametrize("entry", ["descend", "ascend"])
def test_recursion_through_a_choice_among_the_function_itself(entry):
    def py_descend(n, odd):
        if n <= 0:
            return 0.5 if odd else 1
        following = py_ascend if n % 2 else py_descend
        return following(n - 1, not odd)

    def py_ascend(n, odd):
        if n > 20:
            return 2
        following = py_descend if n % 3 else py_ascend
        return following(n - 2 if n % 3 else n + 2, odd)

    checked = hermetic({"descend": descend, "ascend": ascend}[entry].py_func)
    python = {"descend": py_descend, "ascend": py_ascend}[entry]
    for n in (0, 1, 2, 4, 5, 7, 8, 25):
        for odd in (True, False):
            assert checked(n, odd) == python(n, odd)
    assert str(checked.nopython_signatures[0].return_type) == "float64"


def test_every_function_of_a_choice_is_checked():
    @njit
    def making(x):
        return np.ones(2)[0] + x

    @hermetic
    def call(x, first):
        f = added if first else making
        return f(x)

    assert not analyze(call, (types.float64, types.boolean)).ok
    assert analyze(one_of, (types.float64, types.boolean)).ok


IDENTITIES = {
    "f is added": lambda f, g: f is added,
    "f is not added": lambda f, g: f is not added,
    "added is f": lambda f, g: added is f,
    "f is halved": lambda f, g: f is halved,
    "f is g": lambda f, g: f is g,
    "f is not g": lambda f, g: f is not g,
    "f is None": lambda f, g: f is None,
    "f is not None": lambda f, g: f is not None,
    "added is added": lambda f, g: added is added,
    "added is doubled": lambda f, g: added is doubled,
}


@pytest.mark.parametrize("text", IDENTITIES)
def test_identity_is_that_of_the_functions(text):
    names = {"added": added, "doubled": doubled, "halved": halved}
    exec(
        "def same(first, second):\n"
        "    f = added if first else doubled\n"
        "    g = added if second else halved\n"
        f"    return {text}\n",
        names,
    )
    checked = hermetic(names["same"])
    for first in (True, False):
        for second in (True, False):
            f, g = added if first else doubled, added if second else halved
            assert checked(first, second) == IDENTITIES[text](f, g)


def test_identity_with_a_pointer_is_refused():
    @cfunc(INTEGER)
    def of_c(x):
        return x * 7

    @hermetic
    def same(first):
        f = added if first else doubled
        for one in (of_c, declared_added):
            if f is one:
                return True
        return False

    with pytest.raises(CompileError, match="identity of a function and a pointer"):
        same(True)


PROGRAM = """
import sys
from numba import njit, types
from alloccheck import analyze

@njit
def a(x): return x + 1
@njit
def b(x): return x * 2
@njit([types.int64(types.int64)])
def c(x): return x + 1
@njit([types.int64(types.int64)])
def d(x): return x * 2
def pick(first):
    if first:
        return a
    return b
def use(x, first):
    return pick_(first)(x)
pick_ = njit(pick)
def table(x, which):
    return (c, d)[which](x)
if sys.argv[1] == "late":
    a(1), b(1.5), pick_(True), b(1), a(1.5)
    analyze(use, (types.int64, types.boolean))
print(analyze(use, (types.float64, types.boolean)).certificate.digest)
print(analyze(table, (types.int64, types.int64)).certificate.digest)
"""


def test_the_code_is_the_same_in_every_process_and_after_every_history(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def digests(history):
        return subprocess.run(
            [sys.executable, str(program), history],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        ).stdout

    first = digests("early")
    assert len(first.split()) == 2
    assert digests("early") == first
    assert digests("late") == first

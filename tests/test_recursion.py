"""Recursion has one answer, whatever is entered first: the values of interpreted Python."""

import threading

import numpy as np
import pytest
from numba import njit

from alloccheck import CompileError, analyze, check_allocs, hermetic
from alloccheck.compile.artifact import build
from alloccheck.compile.recursion import NESTING_LIMIT, ROUND_LIMIT, RecursionFault
from alloccheck.compile.target import make_job

# --- programs: each a source text, its functions, and calls of each ------------------------------

SELF = """
def fact(n):
    return 1 if n <= 1 else n * fact(n - 1)
"""

SELF_WIDENS = """
def widen(n):
    if n <= 0:
        return 1
    return 0.5 + widen(n - 1)
"""

MUTUAL_INT_FLOAT = """
def down(n):
    return 1 if n <= 0 else up(n - 1)
def up(n):
    return 2.5 if n <= 0 else down(n - 1)
"""

MUTUAL_INT_COMPLEX = """
def left(n):
    return 1 if n <= 0 else right(n - 1)
def right(n):
    return 2.5j if n <= 0 else left(n - 1)
"""

THREE_CYCLE = """
def one(n):
    return 1 if n <= 0 else two(n - 1)
def two(n):
    return 2.5 if n <= 0 else three(n - 1)
def three(n):
    return 3.5j if n <= 0 else one(n - 1)
"""

BOOL_INT = """
def yes(n):
    return n > 100 if n <= 0 else number(n - 1)
def number(n):
    return 300 if n <= 0 else yes(n - 1)
"""

POLYMORPHIC = """
def ping(n, x):
    return x if n <= 0 else pong(n - 1, x + 0.5)
def pong(n, x):
    return x if n <= 0 else ping(n - 1, x * 2)
"""

SHARED_CALLEE = """
def helper(n):
    return n * 2 if n <= 0 else outer(n - 1)
def outer(n):
    return helper(n - 1) + helper(n - 2) if n > 0 else 0.25
"""

# The base case of a waiting function lies beyond others that wait for it, with other types.
LATE_BASE = """
def first(n, x):
    if n % 3 == 0:
        return first(n - 1, 0.5 * x)
    return second(n - 1, n)
def second(n, x):
    return None if n <= 0 else third(n - 1, n)
def third(n, x):
    return None if n % 3 == 0 else first(n - 1, x)
"""

PROGRAMS = {
    "self": (SELF, ["fact"], [(5,), (0,)]),
    "self widens": (SELF_WIDENS, ["widen"], [(0,), (3,)]),
    "int and float": (MUTUAL_INT_FLOAT, ["down", "up"], [(0,), (1,), (2,), (3,)]),
    "int and complex": (MUTUAL_INT_COMPLEX, ["left", "right"], [(0,), (1,), (3,)]),
    "three cycle": (THREE_CYCLE, ["one", "two", "three"], [(0,), (1,), (2,), (4,)]),
    "bool and int": (BOOL_INT, ["yes", "number"], [(0,), (1,), (2,)]),
    "polymorphic": (POLYMORPHIC, ["ping", "pong"], [(0, 1), (3, 1), (4, 1.5)]),
    "shared callee": (SHARED_CALLEE, ["outer", "helper"], [(0,), (1,), (4,)]),
    "late base": (LATE_BASE, ["third", "first", "second"], [(5, 1.5), (4, 2)]),
}


def load(source, names, decorator):
    """Return interpreted functions and decorated ones, each in a module of its own."""
    plain, decorated = {}, {}
    exec(source, plain)
    exec(source, decorated)
    for name in names:
        decorated[name] = decorator(decorated[name])
    return plain, decorated


@pytest.mark.parametrize("decorator", [hermetic, check_allocs, njit], ids=lambda d: d.__name__)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_entry_has_the_values_of_python(program, decorator):
    source, names, calls = PROGRAMS[program]
    plain, decorated = load(source, names, decorator)
    for name in names:
        root = decorated[name] if decorator is not njit else hermetic(decorated[name])
        for args in calls:
            found, expected = root(*args), plain[name](*args)
            assert found == expected, (name, args)
    if decorator is not njit:
        # The members agree on the types of the cycle, each proved on its own.
        types_found = {
            tuple(str(s.return_type) for s in decorated[name].nopython_signatures) for name in names
        }
        if program not in ("polymorphic", "shared callee"):
            assert len(types_found) == 1, types_found


def test_the_order_of_proofs_changes_no_digest():
    found = set()
    for order in [("one", "two", "three"), ("three", "one", "two"), ("two", "three", "one")]:
        _, functions = load(THREE_CYCLE, order, hermetic)
        for name in order:
            functions[name](2)
        found.add(
            tuple(
                next(iter(functions[name].artifacts.values())).digest
                for name in ("one", "two", "three")
            )
        )
    assert len(found) == 1


def test_some_members_decorated_and_some_not():
    source, _, calls = PROGRAMS["int and float"]
    plain = {}
    exec(source, plain)
    mixed = {}
    exec(source, mixed)
    mixed["down"] = hermetic(mixed["down"])
    mixed["up"] = njit(mixed["up"])
    for args in calls:
        assert mixed["down"](*args) == plain["down"](*args)
    other = {}
    exec(source, other)
    other["down"] = check_allocs(other["down"])
    other["up"] = hermetic(other["up"])
    for args in calls:
        assert other["up"](*args) == plain["up"](*args)
        assert other["down"](*args) == plain["down"](*args)


def test_a_njit_caller_gets_the_right_values_of_a_cycle():
    _, functions = load(MUTUAL_INT_FLOAT, ["down", "up"], hermetic)
    down, up = functions["down"], functions["up"]

    @njit
    def caller(n):
        return down(n), up(n)

    assert caller(0) == (1.0, 2.5)
    assert caller(3) == (2.5, 1.0)


def test_arrays_of_both_layouts_in_a_cycle():
    @hermetic
    def straight(x, n):
        return x if n <= 0 else turned(x, n - 1)

    @hermetic
    def turned(x, n):
        return x[::2] if n <= 0 else straight(x, n - 1)

    x = np.arange(6.0)
    for n in range(4):
        expected = x if n % 2 == 0 else x[::2]
        np.testing.assert_array_equal(straight(x, n), expected)
    np.testing.assert_array_equal(turned(x, 0), x[::2])


def test_none_and_float_in_a_cycle():
    @hermetic
    def nothing(n):
        return None if n <= 0 else something(n - 1)

    @hermetic
    def something(n):
        return 1.5 if n <= 0 else nothing(n - 1)

    assert [nothing(n) for n in range(3)] == [None, 1.5, None]
    assert [something(n) for n in range(3)] == [1.5, None, 1.5]


def test_a_tuple_of_functions_and_a_function_argument_recur():
    @hermetic
    def apply(function, n):
        return 1.0 if n <= 0 else function(n - 1) * 2

    @hermetic
    def step(n):
        return 0.5 if n <= 0 else apply(step, n - 1)

    def python_step(n):
        return 0.5 if n <= 0 else (1.0 if n - 1 <= 0 else python_step(n - 2) * 2)

    for n in range(5):
        assert step(n) == python_step(n)


def test_one_round_suffices_without_a_change_of_types():
    fact = load(SELF, ["fact"], njit)[1]["fact"]
    assert build(make_job(fact, "(int64,)")).artifact.rounds == 1
    widen = load(SELF_WIDENS, ["widen"], njit)[1]["widen"]
    assert build(make_job(widen, "(int64,)")).artifact.rounds == 2
    assert build(make_job(lambda x: x + 1, "(int64,)")).artifact.rounds == 1


def test_allocations_in_a_cycle_are_found_from_every_entry():
    source = """
def even(n):
    return 0.0 if n <= 0 else odd(n - 1)
def odd(n):
    return np.zeros(n).sum() if n == 7 else even(n - 1)
"""
    for name in ("even", "odd"):
        functions = {"np": np}
        exec(source, functions)
        functions["even"] = njit(functions["even"])
        functions["odd"] = njit(functions["odd"])
        report = analyze(functions[name], "(int64,)")
        assert {one.code for one in report.findings} >= {"AC101"}


def test_python_recursion_of_the_root_itself():
    # An undecorated root refers to itself by its global name.
    _, functions = load(SELF, [], None)
    assert analyze(functions["fact"], "(int64,)").ok


# --- errors: each its own message -----------------------------------------------------------------


def endless():
    @njit
    def first(n):
        return second(n)

    @njit
    def second(n):
        return first(n)

    return first


def not_unifiable():
    @njit
    def number(n):
        return 1.0 if n <= 0 else text(n - 1)

    @njit
    def text(n):
        return "text" if n <= 0 else number(n - 1)

    return number


def returns_not_unifiable():
    @njit
    def number(n):
        if n <= 0:
            return 1.0
        return text(n - 1)

    @njit
    def text(n):
        if n <= 0:
            return (1, 2)
        return number(n - 1)

    return number


def growing():
    @njit
    def nest(n, x):
        return 0 if n <= 0 else nest(n - 1, (x,))

    return nest


def self_endless():
    @njit
    def again(n):
        return again(n)

    return again


@pytest.mark.parametrize(
    ("make", "signature", "words"),
    [
        (endless, "(int64,)", ["without a base case", "first(int64)", "second(int64)"]),
        (self_endless, "(int64,)", ["without a base case", "again(int64)"]),
        (growing, "(int64, int64)", ["growing types", "nest(int64", "UniTuple"]),
        (
            returns_not_unifiable,
            "(int64,)",
            ["cannot be unified", "float64", "return type", "Cycle"],
        ),
        (not_unifiable, "(int64,)", ["cannot be unified", "float64", "text", "number(int64) -> "]),
    ],
)
def test_recursion_without_an_answer_is_explained(make, signature, words):
    function = make()
    with pytest.raises(CompileError) as caught:
        analyze(function, signature)
    for word in words:
        assert word in str(caught.value)
    checked = hermetic(function)
    with pytest.raises(CompileError):
        checked.compile(signature)
    assert not checked.overloads
    assert not function.overloads


def test_messages_draw_the_cycle():
    with pytest.raises(RecursionFault, match=r"Cycle: .*first\(int64\).*second\(int64\)"):
        analyze(endless(), "(int64,)")


def test_the_limits_are_finite():
    assert 1 < ROUND_LIMIT < 100 and 1 < NESTING_LIMIT < 200


# --- random cycles ----------------------------------------------------------------------------


LEAVES = ["1", "2.5", "True", "3j", "300"]


@pytest.mark.parametrize("seed", range(6))
def test_random_cycles_have_the_values_of_python(seed):
    import random

    choose = random.Random(seed)
    size = choose.randint(2, 4)
    names = [f"f{i}" for i in range(size)]
    source = "".join(
        f"def f{i}(n):\n    return {choose.choice(LEAVES)} if n <= 0 else "
        f"f{choose.randrange(size)}(n - 1)\n"
        for i in range(size)
    )
    order = names[:]
    choose.shuffle(order)
    plain, functions = load(source, names, hermetic)
    for name in order:
        for n in range(4):
            try:
                found = functions[name](n)
            except RecursionFault:
                # Python has no answer either: it never returns.
                with pytest.raises(RecursionError):
                    plain[name](10**6)
                break
            assert found == plain[name](n), (source, name, n)


def test_threads_that_enter_a_cycle_at_different_members():
    _, functions = load(THREE_CYCLE, ["one", "two", "three"], hermetic)
    plain, _ = load(THREE_CYCLE, [], None)
    gate = threading.Barrier(9)
    wrong = []

    def work(name):
        gate.wait()
        for n in range(4):
            if functions[name](n) != plain[name](n):
                wrong.append((name, n))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two", "three") * 3]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not wrong and not any(one.is_alive() for one in threads)

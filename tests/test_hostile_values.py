"""Captured values of anybody's: asking what they are must not run, or trip over, their own code."""

import textwrap
import weakref

import pytest
from numba.extending import overload

from alloccheck import analyze, check_allocs
from alloccheck.compile import captures, provenance
from alloccheck.compile.frozen import frozen_by
from test_audit import audit, document


class Thing:
    pass


class Angry:
    """Denies everything."""

    @property
    def __class__(self):
        raise RuntimeError("no class")

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

    def __repr__(self):
        raise RuntimeError("no text")


class Endless(list):
    def __len__(self):
        raise RuntimeError("no length")


def repr_of(value):
    return type(value).__name__


def dead():
    return weakref.proxy(Thing())


VALUES = {
    "a proxy of nothing": dead(),
    "a denier": Angry(),
    "a list of both": [dead(), Angry()],
    "a tuple of both": (dead(), Angry()),
    "no length": Endless(),
}


def api(x):
    raise NotImplementedError


chosen_by = None


@overload(api)
def _api(x):
    if chosen_by is x:
        return None
    return lambda x: x + 1.0


@pytest.fixture(params=VALUES)
def value(request, monkeypatch):
    monkeypatch.setitem(globals(), "chosen_by", VALUES[request.param])
    return VALUES[request.param]


def test_a_function_beside_such_a_value_is_checked(value, tmp_path):
    def f(x):
        return api(x) * 2.0

    assert analyze(f, "(float64,)").ok
    assert analyze(f, "(float64,)").ok
    checked = check_allocs("float64(float64)", store=str(tmp_path))(f)
    assert checked(1.0) == 4.0


def test_such_a_value_counts_as_itself(value):
    def captures_it():
        return value

    before = captures.function_fingerprint(captures_it)
    assert captures.function_fingerprint(captures_it) == before
    assert frozen_by(captures_it).changed(()) is None
    assert provenance.value_digest(value) is None
    assert isinstance(provenance.describe(value), str)


@pytest.mark.parametrize("held", [[], [dead()], Endless(), {}, {1: Angry()}], ids=repr_of)
def test_such_a_container_that_changes_is_another(held):
    one = Angry()
    if isinstance(held, dict):
        dict.update(held, {2: one})
    else:
        list.append(held, one)
    before = captures.fingerprint(held)
    assert captures.fingerprint(held) == before
    if isinstance(held, dict):
        held[2] = Angry()
    else:
        list.__setitem__(held, -1, Angry())
    assert captures.fingerprint(held) != before


def test_the_audit_judges_beside_such_values(tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent(
            """
            import weakref
            from numba import njit
            from numba.extending import overload

            class Thing:
                pass

            thing = Thing()
            proxy = weakref.proxy(thing)

            def api(x):
                raise NotImplementedError

            @overload(api)
            def _api(x):
                if proxy is x:
                    return None
                return lambda x: x + 1.0

            @njit
            def f(x):
                return api(x)

            f(1.0)
            del thing
            """
        )
    )
    done = audit("--format", "json", "program.py", cwd=tmp_path)
    assert [row["verdict"] for row in document(done)["functions"]] == ["proved", "proved"]

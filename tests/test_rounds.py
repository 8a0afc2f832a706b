"""Rounds that cannot be accepted end early: no code is closed or loaded for them."""

from __future__ import annotations

from typing import Any

import pytest
from numba import njit, types

from alloccheck import hermetic
from alloccheck.compile import artifact
from alloccheck.compile.recursion import RoundLost, RoundRecursion


@njit
def whole(n):
    if n <= 0:
        return 1
    return half(n - 1)


@njit
def half(n):
    if n <= 0:
        return 2.5
    return whole(n - 1)


def test_a_cycle_of_two_rounds_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    close = artifact._close

    def counting(world: Any, *rest: Any) -> Any:
        closed.append(world)
        return close(world, *rest)

    monkeypatch.setattr(artifact, "_close", counting)
    entry = hermetic(whole)
    assert entry(3) == 2.5
    assert entry.artifacts[(types.int64,)].rounds == 2
    assert len(closed) == 1


def test_recursion_that_is_not_expected_ends_the_round() -> None:
    recursion = RoundRecursion({}, expected=False)
    with pytest.raises(RoundLost):
        recursion.return_type((whole, (types.int64,)), lambda: types.int64)
    assert recursion.met


def test_a_function_after_a_lost_round_compiles() -> None:
    assert hermetic(half)(2) == 2.5

    @hermetic
    def plain(x):
        return x + 1

    assert plain(1) == 2

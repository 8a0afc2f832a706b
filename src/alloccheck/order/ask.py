"""Asks everybody about one function and signature: the interpreter, us, and stock Numba.

The one road of the command: samples, hermetic answer, histories, comparison.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alloccheck.errors import UsageError
from alloccheck.order.compare import Comparison, Row, compare, row_of
from alloccheck.order.run import Observation, Question, observe
from alloccheck.order.scenarios import KINDS, Function, Scenario, UsedTypes, scenarios


def ask(
    question: Question, *, kinds: Sequence[str] = tuple(KINDS), processes: int = 2
) -> Comparison:
    """Compare stock Numba under different orders, beside the hermetic answer.

    Parameters
    ----------
    question : Question
        Function, signature and sample arguments.
    kinds : sequence of str
        Which histories, of :data:`alloccheck.order.scenarios.KINDS`.
    processes : int
        How many processes run at once.

    Raises
    ------
    UsageError
        When the module cannot be imported, or function, signature or arguments are wrong.
    """
    python = observe(question, "python")
    shown = {one["index"]: one["shown"] for one in python.all("sample")}
    skip = () if question.arguments else _unfit(python, list(shown))
    hermetic = observe(question, "hermetic", skip=skip)
    if hermetic.ending == "unusable":
        raise UsageError(hermetic.detail)
    if not shown:
        shown = {one["index"]: one["shown"] for one in hermetic.all("sample")}
    histories = scenarios(_functions(hermetic), kinds)
    with (
        tempfile.TemporaryDirectory(prefix="alloccheck-order-cache-") as name,
        ThreadPoolExecutor(max_workers=processes) as pool,
    ):
        cache = Path(name)

        def stock(scenario: Scenario) -> Observation:
            return observe(question, "stock", steps=scenario.steps, skip=skip)

        apart = [one for one in histories if one.kind != "cache"]
        seen = list(pool.map(stock, apart))
        warm = [one for one in histories if one.kind == "cache"]
        seen += [observe(question, "stock", skip=skip, disk_cache=cache) for _ in warm]
    rows = [row_of(scenario, one) for scenario, one in zip([*apart, *warm], seen, strict=True)]
    return compare(
        f"{question.place}:{question.function}",
        question.signature,
        {index: text for index, text in shown.items() if index not in skip},
        rows,
        _row("hermetic", hermetic),
        _row("python", python) if python.all("value") else None,
    )


def _row(kind: str, seen: Observation) -> Row:
    return row_of(Scenario(kind, kind), seen)


def _unfit(python: Observation, numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the generated samples that the interpreter rejects, or did not come to an end of.

    Compiled code would read out of bounds or recurse without end on them, in any order.
    """
    fit = set()
    for one in python.all("value"):
        if one.get("raised") in (None, "ZeroDivisionError"):
            fit.add(one["index"])
    return tuple(index for index in numbers if index not in fit)


def _functions(hermetic: Observation) -> list[Function]:
    told = hermetic.first("functions")
    return [
        Function(one["label"], one["target"], tuple(UsedTypes(**each) for each in one["used"]))
        for one in (told or {"functions": []})["functions"]
    ]

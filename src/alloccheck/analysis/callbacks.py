"""Which functions of a program an external function may call back.

Knows contracts and the types of functions; nothing of effects or of how programs are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from alloccheck.analysis.contracts import Contract
from alloccheck.program.model import Call, Direct, Function, Program

Shape = tuple[str, tuple[str, ...]]
"""Return type and parameter types."""

SHAPES: Mapping[str, frozenset[Shape]] = MappingProxyType(
    {
        "destructor": frozenset({("void", ("ptr", "i64", "ptr"))}),
        "kernel": frozenset({("void", ("ptr", "ptr", "ptr", "ptr"))}),
        "method table": frozenset({("i32", ("ptr", "ptr")), ("void", ("ptr",))}),
    }
)
"""How functions of each kind are declared by the run time that calls them.

A call through a pointer of another type would be undefined behaviour.
"""

NEVER_CALLED_BACK = ("__excinfo_unwrap_args",)
"""Prefixes of functions whose address stands in exception records alone. The wrapper that turns
a record into a Python exception calls them; no run-time function does."""

ASSUMED_OF_CONTAINERS = (
    "typed containers made elsewhere compare and count their elements with Numba's own functions "
    "for the element type"
)


def called_back(
    program: Program, contract: Contract, never: tuple[str, ...] = NEVER_CALLED_BACK
) -> tuple[str, ...]:
    """Return the functions of a program that an external may call back.

    Parameters
    ----------
    program : Program
        The program.
    contract : Contract
        Of the external.
    never : tuple of str
        Prefixes of functions that no external calls.
    """
    if not contract.calls_back:
        return ()
    shapes = SHAPES.get(contract.callback)
    return tuple(
        name
        for name in sorted(program.address_taken)
        if not name.startswith(never) and _fits(program.functions[name], shapes)
    )


def _fits(function: Function, shapes: frozenset[Shape] | None) -> bool:
    # Of a function whose reader says nothing about its type, everything is possible. One that
    # takes less than it is passed can be called: the destructor of a list takes its memory alone.
    return (
        shapes is None
        or not function.returns
        or any(
            function.returns == returns and function.takes == takes[: len(function.takes)]
            for returns, takes in shapes
        )
    )


def elements_without_pointers(
    function: Function, call: Call, contract: Contract, contracts: Callable[[str], Contract | None]
) -> bool:
    """Return whether a call shows that the elements of its container refer to nothing.

    The compiler says so, or elements are handed over in memory of their type, on the stack. A
    number that a function with such arguments returned (a place in the container) speaks for the
    same container.
    """
    pointers = function.read_pointers()
    waiting = [(call, contract)]
    seen: set[int] = set()
    while waiting:
        call, contract = waiting.pop()
        if call.index in seen:
            return False
        seen.add(call.index)
        if call.plain:
            continue
        if not contract.elements or len(call.arguments) <= max(contract.elements):
            return False
        for argument in (call.arguments[i] for i in contract.elements):
            if argument in pointers.pointer_free or argument == "null":
                continue
            source = pointers.results.get(argument)
            if source is None:
                return False
            maker = function.calls[source]
            found = contracts(maker.target.symbol) if isinstance(maker.target, Direct) else None
            if found is None:
                return False
            waiting.append((maker, found))
    return True

"""Integers and conditions of one function of LLVM IR, as values and facts of the graph.

Only what can be done exactly is done; every other definition is `Opaque`. Knows nothing of
what the integers mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from alloccheck.program.llvm_text import INTEGER, NAME, plain
from alloccheck.program.model import (
    Bounded,
    CallResult,
    Choice,
    Constant,
    OneOf,
    Opaque,
    Phi,
    Value,
    Within,
)
from alloccheck.program.ranges import FULL, HIGHEST, LOWEST, Ranges, signed, unsigned_span

Facts = Mapping[str, Ranges]
"""A conjunction: each named value lies in its set."""

_V = rf"(%{NAME}|-?\d+)"
_COMPARE = re.compile(rf"icmp (?:samesign )?(\w+) i32 {_V}, {_V}(?:, !|$)")
_BINARY = re.compile(rf"(add|and|or) (?:nuw |nsw |disjoint )*i32 {_V}, {_V}(?:, !|$)")
_BIT = rf"(%{NAME}|true|false)"
_LOGIC = re.compile(rf"(and|or|xor) (?:disjoint )?i1 {_BIT}, {_BIT}(?:, !|$)")
_SELECT = re.compile(rf"select i1 (%{NAME}), i32 {_V}, i32 {_V}(?:, !|$)")
_LOGICAL_SELECT = re.compile(rf"select i1 (%{NAME}), i1 {_BIT}, i1 {_BIT}(?:, !|$)")
_EXTEND_BIT = re.compile(rf"(zext|sext) (?:nneg )?i1 (%{NAME}) to i32(?:, !|$)")
_EXTEND = re.compile(rf"(zext|sext) (?:nneg )?i(\d+) %{NAME} to i32(?:, !|$)")
_BIT_RESULT = re.compile(r"icmp |(?:and|or|xor) (?:disjoint )?i1 |select i1 \S+, i1 |freeze i1 ")
_FREEZE = re.compile(rf"freeze (i1|i32) (%{NAME})(?:, !|$)")
_PHI = re.compile(r"phi i(?:32|1) (.*)")
_BIT_PHI = "phi i1 "
_BITS = {"true": 1, "false": 0}
PHI_INCOMING = re.compile(rf"\[ (.+?), %({NAME}) \]")

_DEEPEST = 8
_WIDEST_MASK = 4
_SWAPPED = {"slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle",
            "ult": "ugt", "ugt": "ult", "ule": "uge", "uge": "ule"}  # fmt: skip
_TOP = 2**32 - 1


@lru_cache(maxsize=1024)
def satisfying(predicate: str, constant: int) -> Ranges | None:
    """Return the integers x for which ``icmp predicate i32 x, constant`` is true.

    Examples
    --------
    >>> satisfying("ult", 2).spans
    ((0, 1),)
    >>> satisfying("sgt", 0) == ~satisfying("sle", 0)
    True
    """
    s, u = signed(constant), constant % 2**32
    match predicate:
        case "eq":
            return Ranges.of(s)
        case "ne":
            return ~Ranges.of(s)
        case "slt":
            return Ranges.span(LOWEST, s - 1)
        case "sle":
            return Ranges.span(LOWEST, s)
        case "sgt":
            return Ranges.span(s + 1, HIGHEST)
        case "sge":
            return Ranges.span(s, HIGHEST)
        case "ult":
            return unsigned_span(0, u - 1)
        case "ule":
            return unsigned_span(0, u)
        case "ugt":
            return unsigned_span(u + 1, _TOP)
        case "uge":
            return unsigned_span(u, _TOP)
    return None


def _both(a: Facts, b: Facts) -> dict[str, Ranges]:
    joined = dict(a)
    for name, ranges in b.items():
        joined[name] = joined[name] & ranges if name in joined else ranges
    return joined


def _either(a: Facts, b: Facts) -> dict[str, Ranges]:
    return {name: a[name] | b[name] for name in a if name in b}


def _submasks(mask: int) -> list[int]:
    """Return all integers whose bits lie in `mask`."""
    subsets, sub = [0], mask
    while sub:
        subsets.append(sub)
        sub = (sub - 1) & mask
    return subsets


class ValueReader:
    """Reads the integer values of one function on demand.

    Parameters
    ----------
    definitions : mapping of str to str
        From local name (with ``%``) to the text right of its ``=``.
    homes : mapping of str to int
        From local name to the block that defines it.
    results : mapping of str to int
        From local name to the index of the call that returned it.
    block_index : callable
        From a block's name to its index.
    """

    def __init__(
        self,
        definitions: Mapping[str, str],
        homes: Mapping[str, int],
        results: Mapping[str, int],
        block_index: Callable[[str], int],
    ) -> None:
        self._definitions = definitions
        self._homes = homes
        self._results = results
        self._block_index = block_index
        self.values: dict[str, Value] = {}

    def need(self, name: str) -> None:
        """Read a value and all that it is made of into `values`."""
        stack = [name]
        while stack:
            item = stack.pop()
            if item in self.values:
                continue
            value = self.values[item] = self._read(item)
            if isinstance(value, Phi):
                stack.extend(n for n, _ in value.incoming)
            elif isinstance(value, OneOf):
                stack.extend(value.values)
            elif isinstance(value, Choice):
                for arm, facts in value.arms:
                    stack.append(arm)
                    stack.extend(fact.value for fact in facts)

    def facts(self, known: Facts) -> tuple[Within, ...]:
        """Return a conjunction as facts of the graph, its values read."""
        for name in known:
            self.need(name)
        return tuple(Within(name, ranges) for name, ranges in known.items() if ranges != FULL)

    def _read(self, name: str) -> Value:
        if INTEGER.fullmatch(name):
            return Constant(signed(int(name)))
        if name in _BITS:
            return Constant(_BITS[name])
        if name in self._results:
            return CallResult(self._results[name])
        text = self._definitions.get(name, "")
        if m := _PHI.match(text):
            pairs = tuple((v, self._block_index(plain(b))) for v, b in PHI_INCOMING.findall(m[1]))
            return Phi(self._homes[name], pairs) if pairs else Opaque()
        if _BIT_RESULT.match(text):
            return self._choice(name, "true", "false")
        if m := _SELECT.match(text):
            return self._choice(m[1], m[2], m[3])
        if m := _EXTEND_BIT.match(text):
            return self._choice(m[2], "1" if m[1] == "zext" else "-1", "0")
        if m := _EXTEND.match(text):
            bits = int(m[2])
            if m[1] == "zext":
                return Bounded(Ranges.span(0, 2**bits - 1))
            return Bounded(Ranges.span(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        if (m := _FREEZE.match(text)) and m[1] == "i32":
            return OneOf((m[2],))
        if (m := _BINARY.match(text)) and m[1] == "and" and INTEGER.fullmatch(m[3]):
            mask = int(m[3])
            return Bounded(Ranges.span(0, mask)) if mask >= 0 else Opaque()
        return Opaque()

    def _choice(self, condition: str, yes: str, no: str) -> Value:
        when_true, when_false = self.condition(condition)
        return Choice(
            tuple(
                (name, tuple(Within(n, r) for n, r in known.items()))
                for name, known in ((yes, when_true), (no, when_false))
            )
        )

    def condition(self, name: str, depth: int = 0) -> tuple[dict[str, Ranges], dict[str, Ranges]]:
        """Return what follows when an ``i1`` is true, and what follows when it is false."""
        nothing: tuple[dict[str, Ranges], dict[str, Ranges]] = ({}, {})
        text = self._definitions.get(name, "")
        if not text or depth > _DEEPEST:
            return nothing
        if text.startswith(_BIT_PHI):
            return {name: Ranges.of(1)}, {name: Ranges.of(0)}
        if m := _COMPARE.match(text):
            return self._comparison(m[1], m[2], m[3], depth)
        if m := _LOGIC.match(text):
            if m[1] == "xor":
                if m[3] != "true":
                    return nothing
                yes, no = self.condition(m[2], depth + 1)
                return no, yes
            a, b = self.condition(m[2], depth + 1), self.condition(m[3], depth + 1)
            if m[1] == "and":
                return _both(a[0], b[0]), _either(a[1], b[1])
            return _either(a[0], b[0]), _both(a[1], b[1])
        if m := _LOGICAL_SELECT.match(text):
            a = self.condition(m[1], depth + 1)
            if m[3] == "false":  # a and b
                b = self.condition(m[2], depth + 1)
                # When `a` was false `b` does not matter, and may be poison.
                return _both(a[0], b[0]), _either(a[1], b[1])
            if m[2] == "true":  # a or b
                b = self.condition(m[3], depth + 1)
                return _either(a[0], b[0]), _both(a[1], b[1])
        if (m := _FREEZE.match(text)) and m[1] == "i1":
            yes, no = self.condition(m[2], depth + 1)
            # A frozen comparison of an undefined value says nothing about its other uses;
            # what a call returned is always defined where it is compared.
            return (
                {n: r for n, r in yes.items() if n in self._results},
                {n: r for n, r in no.items() if n in self._results},
            )
        return nothing

    def _comparison(
        self, predicate: str, left: str, right: str, depth: int
    ) -> tuple[dict[str, Ranges], dict[str, Ranges]]:
        if INTEGER.fullmatch(left):
            left, right = right, left
            predicate = _SWAPPED.get(predicate, predicate)
        if INTEGER.fullmatch(left) or not INTEGER.fullmatch(right):
            return {}, {}
        ranges = satisfying(predicate, int(right))
        if ranges is None:
            return {}, {}
        return self.implied(left, ranges, depth), self.implied(left, ~ranges, depth)

    def implied(self, name: str, ranges: Ranges, depth: int = 0) -> dict[str, Ranges]:
        """Return all that follows from an integer lying in a set."""
        known = {name: ranges}
        text = self._definitions.get(name, "")
        if not text or depth > _DEEPEST:
            return known
        if m := _EXTEND_BIT.match(text):
            one = 1 if m[1] == "zext" else -1
            yes, no = self.condition(m[2], depth + 1)
            if 0 not in ranges and one in ranges:
                return _both(known, yes)
            if one not in ranges and 0 in ranges:
                return _both(known, no)
            return known
        m = _BINARY.match(text)
        if m is None or INTEGER.fullmatch(m[2]) or not INTEGER.fullmatch(m[3]):
            return known
        constant = int(m[3])
        if m[1] == "add":
            return _both(known, self.implied(m[2], ranges.shifted(-constant), depth + 1))
        before = _before_mask(m[1], constant, ranges)
        return known if before is None else _both(known, self.implied(m[2], before, depth + 1))


def _before_mask(operation: str, mask: int, ranges: Ranges) -> Ranges | None:
    """Return the x whose ``x & mask`` or ``x | mask`` lies in `ranges`; None when not compact.

    Done for a set that is one integer, or all but one, and a mask that hides few bits.
    """
    inverted = len(ranges.spans) > 1 or LOWEST in ranges
    single = ~ranges if inverted else ranges
    if len(single.spans) != 1 or single.spans[0][0] != single.spans[0][1]:
        return None
    result, mask = single.spans[0][0] % 2**32, mask % 2**32
    if operation == "and":
        hidden = ~mask % 2**32
        base = result if result & hidden == 0 else None
    else:
        hidden = mask
        base = result & ~mask if result & mask == mask else None
    if hidden.bit_count() > _WIDEST_MASK:
        return None
    found = Ranges.of() if base is None else Ranges.of(*(base | s for s in _submasks(hidden)))
    return ~found if inverted else found

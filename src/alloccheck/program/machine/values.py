"""The abstract values that a register or stack slot may hold, and arithmetic on them.

Each value stands for a *set* of concrete 64-bit words, always a superset of what the program can
produce; `None` stands for every word. Knows nothing of instructions or memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from alloccheck.program.machine.chunk import AccessPath

MASK = (1 << 64) - 1
LIMIT = 4096
"""Largest set that is kept element by element (a jump table of this many cases)."""
JOIN_LIMIT = 64
"""Largest set that a meeting of paths may build."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One of these words."""

    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class Range:
    """The low `bits` bits are between `low` and `high` (unsigned); the others are anything."""

    bits: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Pointers:
    """One of these addresses, each by its access path."""

    paths: frozenset[AccessPath]


@dataclass(frozen=True, slots=True)
class Frame:
    """An address in the function's own stack frame.

    `origin` 0 is the stack pointer at entry; another one is the address of the instruction that
    aligned the stack.
    """

    origin: int
    offset: int


Known = Numbers | Range | Pointers | Frame
Abstract = Known | None


@lru_cache(maxsize=4096)
def number(value: int) -> Numbers:
    """Return the value that is exactly this word.

    Examples
    --------
    >>> number(-1) == number(2**64 - 1)
    True
    """
    return Numbers(frozenset((value & MASK,)))


@lru_cache(maxsize=4096)
def address(relative: int) -> Pointers:
    """Return the value that is exactly this image-relative address."""
    return Pointers(frozenset(((relative,),)))


def full(bits: int) -> Range:
    """Return a zero-extended word of `bits` bits of which nothing else is known."""
    return Range(64, 0, (1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    """Read the low `bits` bits as two's complement.

    Examples
    --------
    >>> signed(0xFFFFFFFF, 32)
    -1
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def enumerate_numbers(value: Abstract) -> frozenset[int] | None:
    """Return the words one by one when there are at most `LIMIT`, else None."""
    if isinstance(value, Numbers):
        return value.values
    if isinstance(value, Range) and value.bits == 64 and value.high - value.low < LIMIT:
        return frozenset(range(value.low, value.high + 1))
    return None


def low_bits(value: Abstract, bits: int) -> Known:
    """Zero-extend the low `bits` bits of a value.

    Examples
    --------
    >>> low_bits(Range(8, 0, 7), 8)
    Range(bits=64, low=0, high=7)
    >>> low_bits(None, 32) == full(32)
    True
    """
    top = (1 << bits) - 1
    if isinstance(value, Numbers):
        return Numbers(frozenset(v & top for v in value.values))
    if isinstance(value, Range):
        if value.bits == bits and value.bits < 64:
            return Range(64, value.low, value.high)
        # The bits above `bits` are zero, or are part of what the range speaks of.
        if value.bits >= bits and value.high <= top:
            return Range(64, value.low, value.high)
    return full(bits)


def sign_extend(value: Abstract, bits: int) -> Abstract:
    """Sign-extend the low `bits` bits of a value to a word."""
    if isinstance(value, Numbers):
        return Numbers(frozenset(signed(v, bits) & MASK for v in value.values))
    narrow = low_bits(value, bits)
    if isinstance(narrow, Range) and narrow.high < 1 << (bits - 1):
        return narrow
    return None


def add(left: Abstract, right: Abstract) -> Abstract:
    """Return the sum of two values.

    Examples
    --------
    >>> add(address(16), number(-8)) == address(8)
    True
    """
    if isinstance(right, Pointers | Frame):
        left, right = right, left
    if isinstance(left, Frame):
        if isinstance(right, Numbers) and len(right.values) == 1:
            return Frame(left.origin, left.offset + signed(next(iter(right.values)), 64))
        return None
    steps = enumerate_numbers(right)
    if isinstance(left, Pointers):
        if steps is None or len(left.paths) * len(steps) > LIMIT:
            return None
        return Pointers(
            frozenset(
                (*path[:-1], path[-1] + signed(step, 64)) for path in left.paths for step in steps
            )
        )
    if isinstance(left, Range) and isinstance(right, Numbers) and len(right.values) == 1:
        return _shift_range(left, next(iter(right.values)))
    if isinstance(right, Range) and isinstance(left, Numbers) and len(left.values) == 1:
        return _shift_range(right, next(iter(left.values)))
    return combine(left, right, lambda a, b: a + b)


def _shift_range(value: Range, step: int) -> Abstract:
    step = signed(step, 64)
    low, high = value.low + step, value.high + step
    if low < 0 or high >> value.bits:
        return None
    return Range(value.bits, low, high)


def subtract(left: Abstract, right: Abstract) -> Abstract:
    """Return the difference; of two pointers nothing is known."""
    if isinstance(right, Pointers | Frame):
        return None
    if isinstance(right, Numbers):
        return add(left, Numbers(frozenset(-v & MASK for v in right.values)))
    return None


def scale(value: Abstract, factor: int) -> Abstract:
    """Return the value times a constant.

    Examples
    --------
    >>> scale(Range(64, 0, 3), 8)
    Range(bits=64, low=0, high=24)
    """
    if factor == 1:
        return value
    words = enumerate_numbers(value)
    if words is not None and isinstance(value, Numbers):
        return Numbers(frozenset(w * factor & MASK for w in words))
    if isinstance(value, Range) and value.bits == 64 and value.high * factor <= MASK:
        return Range(64, value.low * factor, value.high * factor)
    return None


def index_offsets(value: Abstract, factor: int) -> Abstract:
    """Return ``value * factor`` element by element when that is a small set.

    Unlike `scale` this keeps only the multiples, which is what a jump table's index needs.
    """
    words = enumerate_numbers(value)
    if words is not None:
        return Numbers(frozenset(w * factor & MASK for w in words))
    return scale(value, factor)


def combine(left: Abstract, right: Abstract, operation: Callable[[int, int], int]) -> Abstract:
    """Apply an operation to every pair of two small sets of numbers."""
    if not isinstance(left, Numbers) or not isinstance(right, Numbers):
        return None
    if len(left.values) * len(right.values) > LIMIT:
        return None
    pairs = product(left.values, right.values)
    return Numbers(frozenset(operation(a, b) & MASK for a, b in pairs))


def mask_with(value: Abstract, bits: int) -> Abstract:
    """Return ``value & bits`` for a constant mask (as an unsigned word)."""
    if isinstance(value, Numbers):
        return Numbers(frozenset(v & bits for v in value.values))
    return Range(64, 0, bits)


def join(left: Abstract, right: Abstract) -> Abstract:
    """Return a value that stands for every word of either.

    Examples
    --------
    >>> join(number(1), Range(64, 4, 6))
    Range(bits=64, low=1, high=6)
    >>> join(number(1), address(1)) is None
    True
    """
    if left is right or left == right:
        return left
    if left is None or right is None:
        return None
    if isinstance(left, Pointers) and isinstance(right, Pointers):
        paths = left.paths | right.paths
        return Pointers(paths) if len(paths) <= JOIN_LIMIT or paths == left.paths else None
    if isinstance(left, Numbers) and isinstance(right, Numbers):
        values = left.values | right.values
        if len(values) <= JOIN_LIMIT or values == left.values:
            return Numbers(values)
        return Range(64, min(values), max(values))
    first, second = _as_range(left), _as_range(right)
    if first and second and first.bits == second.bits:
        return Range(first.bits, min(first.low, second.low), max(first.high, second.high))
    if first and second:
        bits = min(first.bits, second.bits)
        a, b = low_bits(left, bits), low_bits(right, bits)
        first, second = _as_range(a), _as_range(b)
        if first and second:
            return Range(bits, min(first.low, second.low), max(first.high, second.high))
    return None


def _as_range(value: Known) -> Range | None:
    if isinstance(value, Range):
        return value
    if isinstance(value, Numbers):
        return Range(64, min(value.values), max(value.values))
    return None


class Infeasible(Exception):
    """No word satisfies the condition: the edge is never taken."""


def restrict(value: Abstract, bits: int, low: int, high: int) -> Abstract:
    """Narrow a value by the fact that its low `bits` bits are between `low` and `high`.

    Raises
    ------
    Infeasible
        If no word of the value satisfies the fact.

    Examples
    --------
    >>> restrict(None, 32, 0, 7)
    Range(bits=32, low=0, high=7)
    """
    if low > high:
        raise Infeasible
    if isinstance(value, Pointers | Frame):
        return value
    if isinstance(value, Numbers):
        top = (1 << bits) - 1
        kept = frozenset(v for v in value.values if low <= v & top <= high)
        if not kept:
            raise Infeasible
        return Numbers(kept)
    if isinstance(value, Range) and (value.bits == bits or value.high < 1 << bits <= 1 << 64):
        if value.bits < bits:
            # The fact speaks of more bits than we knew of.
            return Range(bits, low, high)
        low, high = max(low, value.low), min(high, value.high)
        if low > high:
            raise Infeasible
        return Range(value.bits, low, high)
    if isinstance(value, Range) and value.bits < bits and (low, high) == (0, (1 << bits) - 1):
        return value
    return Range(bits, low, high)

"""Hypothesis strategies for the arguments of a signature.

Lengths are 0, 1, small, odd and large, and mostly shared by the arrays of one call, as compiled
code does not check them; arrays are contiguous, strided, reversed, unaligned to each other, and
may overlap; numbers are small, or the extreme ones of their type. How much memory is behind a
pointer the other arguments tell, and nobody knows how: beside pointers no number is larger than a
length, and the memory holds the square of one. Knows types and values; nothing of running anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.np.numpy_support import as_dtype

from alloccheck.confirm import containers
from alloccheck.errors import Unstorable, UsageError
from alloccheck.oracle.native import has_one_value, is_pointer, parts_of
from alloccheck.oracle.references import Made, Parts, made_by

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

LENGTHS = (3, 0, 1, 2, 5, 7, 8, 17, 64, 1025)
"""Lengths of arrays; the last is larger than what loops are unrolled by and than small buffers."""

_MOST_ELEMENTS = 20_000
_MOST_BEHIND_A_POINTER = 64


def require_hypothesis() -> None:
    """Refuse, with what to do, where Hypothesis is not installed.

    Raises
    ------
    UsageError
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise UsageError(
            "generating arguments needs Hypothesis, which is not installed: "
            "pip install 'alloccheck[confirm]', or give arguments"
        ) from None


def arguments(argument_types: Sequence[Any]) -> SearchStrategy[tuple[Any, ...]]:
    """Return a strategy for tuples of arguments of the given types.

    Parameters
    ----------
    argument_types : sequence of numba types
        Without omitted ones.

    Raises
    ------
    UsageError
        Naming the first type that no values can be made of, or when Hypothesis is missing.

    Examples
    --------
    >>> arguments([types.pyobject])
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: no values can be generated for an argument of type pyobject; \
give arguments
    """
    require_hypothesis()
    from hypothesis import strategies as st

    for one in argument_types:
        if not _is_known(one):
            raise UsageError(
                f"no values can be generated for an argument of type {one}; give arguments"
            )

    @st.composite
    def drawn(draw: DrawFn) -> tuple[Any, ...]:
        call = _Call(draw, st, bounded=any(map(_holds_pointer, argument_types)))
        return tuple(call.value(one) for one in argument_types)

    return drawn()


def sendable(argument_types: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments without what need not or cannot be sent where the types are known there.

    Parameters
    ----------
    argument_types : sequence of numba types
        Without omitted ones.
    values : sequence
        From `arguments`: functions and literals become None, named tuples plain ones.

    Examples
    --------
    >>> sendable([types.literal(2), types.float64], (2, 0.5))
    (None, 0.5)
    """

    def one(kind: Any, value: Any) -> Any:
        if has_one_value(kind):
            return None
        if isinstance(kind, types.BaseTuple):
            return tuple(map(one, kind, value))
        parts = parts_of(kind)
        if parts is not None and isinstance(value, Parts):
            return Parts(tuple(map(one, (field for _, field in parts), value.values)))
        return value

    return tuple(map(one, argument_types, values))


_ELEMENTS = (
    types.Boolean,
    types.Integer,
    types.Float,
    types.Complex,
    types.NPDatetime,
    types.NPTimedelta,
    types.CharSeq,
    types.UnicodeCharSeq,
    types.Record,
)
"""What arrays are made of."""


def _is_known(kind: Any) -> bool:
    if has_one_value(kind):
        return True
    if isinstance(kind, types.Boolean | types.Integer | types.Float | types.Complex):
        return True
    if isinstance(kind, types.NPDatetime | types.NPTimedelta | types.Record):
        return not _dtype(kind).hasobject
    if isinstance(kind, types.Array):
        return isinstance(kind.dtype, _ELEMENTS) and not _dtype(kind.dtype).hasobject
    if isinstance(kind, types.BaseTuple):
        return all(map(_is_known, kind))
    if isinstance(kind, types.Optional):
        return _is_known(kind.type)
    if isinstance(kind, types.List):
        return _is_scalar(kind.dtype)
    if isinstance(kind, types.Set):
        return _is_scalar(kind.dtype)
    if isinstance(kind, types.ListType):
        return _can_travel(kind) and _is_known(kind.dtype)
    if isinstance(kind, types.DictType):
        return _can_travel(kind) and _is_scalar(kind.key_type) and _is_known(kind.value_type)
    if isinstance(kind, types.EnumMember):
        return _members(kind) is not None
    if is_pointer(kind):
        return kind == types.voidptr or isinstance(kind.dtype, _ELEMENTS)
    parts = parts_of(kind)
    if parts is not None:
        return all(_is_known(field) for _, field in parts)
    return isinstance(kind, _OTHERS)


_OTHERS = (
    types.UnicodeType,
    types.NoneType,
    types.Bytes,
    types.SliceType,
    types.NumPyRandomGeneratorType,
)


def _holds_pointer(kind: Any) -> bool:
    return is_pointer(kind) or (isinstance(kind, types.BaseTuple) and any(map(is_pointer, kind)))


def _members(kind: Any) -> list[Made] | None:
    """Return the members of an enumeration; None where another process cannot find it."""
    try:
        return [made_by(kind.instance_class, one.value) for one in kind.instance_class]
    except UsageError:
        return None


def _dtype(kind: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = as_dtype(kind)
    return found


def _can_travel(kind: Any) -> bool:
    """Tell whether a type can be named to another process."""
    try:
        containers.code_of(kind)
    except Unstorable:
        return False
    return True


def _is_scalar(kind: Any) -> bool:
    return kind in (types.int64, types.float64, types.complex128, types.unicode_type)


class _Call:
    """What the arguments of one call share: lengths, and memory."""

    def __init__(self, draw: DrawFn, st: Any, *, bounded: bool = False) -> None:
        self._draw, self._st = draw, st
        self._bounded = bounded
        lengths = [one for one in LENGTHS if not bounded or one <= _MOST_BEHIND_A_POINTER]
        self._length = draw(st.sampled_from(lengths))
        self._overlap = draw(st.integers(0, 3)) == 0
        self._memory: list[np.ndarray[Any, Any]] = []

    def value(self, kind: Any) -> Any:
        """Return a value of a type."""
        if has_one_value(kind):
            return self._only(kind)
        if isinstance(kind, types.Array):
            return self._array(kind)
        if isinstance(kind, types.BaseTuple):
            values = tuple(self.value(one) for one in kind)
            named = isinstance(kind, types.BaseNamedTuple)
            return kind.instance_class(*values) if named else values
        if isinstance(kind, types.Optional):
            return None if self._one_in(3) else self.value(kind.type)
        if isinstance(kind, types.NoneType):
            return None
        if isinstance(kind, types.RangeType):
            return Parts(self._bounds(kind.dtype))
        parts = parts_of(kind)
        if parts is not None:
            return Parts(tuple(self.value(field) for _, field in parts))
        if isinstance(kind, types.Bytes):
            return self._draw(self._st.binary(max_size=8))
        if isinstance(kind, types.UnicodeType):
            return self._draw(self._st.text(max_size=8))
        if isinstance(kind, types.SliceType):
            return made_by(slice, *self._ends(kind.has_step))
        if isinstance(kind, types.NumPyRandomGeneratorType):
            return made_by(containers.random_generator, self._draw(self._st.integers(0, 255)))
        if isinstance(kind, types.EnumMember):
            return self._draw(self._st.sampled_from(_members(kind)))
        if is_pointer(kind):
            return self._memory_behind(kind)
        if isinstance(kind, types.List | types.ListType | types.Set):
            items = [self.value(kind.dtype) for _ in range(1 + self._length % 9)]
            if isinstance(kind, types.List):
                return items
            if isinstance(kind, types.Set):
                return made_by(set, items)
            return made_by(containers.typed_list, containers.code_of(kind), items)
        if isinstance(kind, types.DictType):
            keys = [self.value(kind.key_type) for _ in range(1 + self._length % 9)]
            held = [self.value(kind.value_type) for _ in keys]
            return made_by(containers.typed_dict, containers.code_of(kind), keys, held)
        return self._scalar(kind)

    def _bounds(self, kind: Any) -> tuple[int, int, int]:
        """Return start, stop and step of a range that ends within the length of the arrays."""
        start = self._draw(self._st.sampled_from((0, 1, self._length)))
        step = self._draw(self._st.sampled_from((1, 2, -1) if kind.signed else (1, 2)))
        return start, self._length if step > 0 else -1, step

    def _ends(self, has_step: bool) -> tuple[int | None, ...]:
        """Return start, stop and perhaps step of a slice; it may reach out of an array."""
        ends = (None, 0, 1, -1, self._length // 2, self._length, self._length + 1)
        found = tuple(self._draw(self._st.sampled_from(ends)) for _ in range(2))
        return (*found, self._draw(self._st.sampled_from((2, -1, 3)))) if has_step else found

    def _memory_behind(self, kind: Any) -> np.ndarray[Any, Any] | None:
        """Return what a pointer points to; None for a null pointer, which only user data is."""
        if kind == types.voidptr and self._one_in(3):
            return None
        dtype = np.dtype(np.uint8) if kind == types.voidptr else _dtype(kind.dtype)
        count = _MOST_BEHIND_A_POINTER**2 + _MOST_BEHIND_A_POINTER
        return _elements(dtype, count, self._draw(self._st.integers(0, 255)), self._length)

    def _only(self, kind: Any) -> Any:
        """Return the value of a type that has one alone; None where nothing stands for it."""
        if isinstance(kind, types.Literal):
            return kind.literal_value
        return kind.dispatcher if isinstance(kind, types.Dispatcher) else None

    def _one_in(self, count: int) -> bool:
        return bool(self._draw(self._st.integers(0, count - 1)) == 0)

    def _scalar(self, kind: Any) -> Any:
        if isinstance(kind, types.Boolean):
            return self._draw(self._st.booleans())
        dtype = _dtype(kind)
        if dtype.kind in "VmM":
            return _elements(dtype, 1, self._draw(self._st.integers(0, 255)), self._length)[0]
        numbers = _numbers(dtype, self._length)
        if self._bounded and dtype.kind in "iu":
            numbers = [one for one in numbers if 0 <= one <= self._length] or [0]
        found = self._draw(self._st.sampled_from(numbers))
        plain = {"int64": int, "float64": float, "complex128": complex}.get(dtype.name)
        return dtype.type(found) if plain is None else plain(found)

    def _array(self, kind: Any) -> np.ndarray[Any, Any]:
        dtype = _dtype(kind.dtype)
        shape = self._shape(kind.ndim)
        if self._overlap and kind.mutable:
            shared = self._view_of_another(kind, dtype, shape)
            if shared is not None:
                return shared
        found = self._new(kind, dtype, shape)
        if not kind.mutable:
            found.flags.writeable = False
        return found

    def _shape(self, dimensions: int) -> tuple[int, ...]:
        if self._one_in(6):
            shape = tuple(self._draw(self._st.sampled_from(LENGTHS)) for _ in range(dimensions))
        else:
            shape = (self._length,) * dimensions
        most = max(2, int(_MOST_ELEMENTS ** (1 / dimensions))) if dimensions else 0
        return tuple(min(one, most) if dimensions > 1 else one for one in shape)

    def _new(self, kind: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        count = math.prod(shape)
        seed = self._draw(self._st.integers(0, 255))
        flat = _elements(dtype, count, seed, self._length)
        if kind.layout != "A" or not shape or count == 0:
            # One element more than asked for: another argument may begin with the second.
            memory = np.zeros(count + 1, dtype)
            memory[:count] = flat
            self._memory.append(memory)
            return _shaped(memory[:count], kind, shape)
        # Strided: every second element of memory that is twice as long, forwards or backwards.
        wide = np.zeros(tuple(2 * one for one in shape), dtype)
        step = self._draw(self._st.sampled_from((2, -2)))
        part = wide[(slice(None, None, step),) * len(shape)]
        part[...] = flat.reshape(shape)
        return part

    def _view_of_another(
        self, kind: Any, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any] | None:
        """Return memory that another argument has, too: all of it, or shifted by an element."""
        count = math.prod(shape)
        if kind.layout == "A" or not count:
            return None
        for memory in self._memory:
            if memory.dtype == dtype and memory.size == count + 1:
                start = self._draw(self._st.sampled_from((0, 1)))
                return _shaped(memory[start : start + count], kind, shape)
        return None


def _shaped(flat: np.ndarray[Any, Any], kind: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a view of the same memory, with the order of the array type."""
    view: np.ndarray[Any, Any] = flat.reshape(shape, order="F" if kind.layout == "F" else "C")
    return view


def _numbers(dtype: np.dtype[Any], length: int) -> list[Any]:
    """Return numbers of a type: small ones first, for most code is written for these."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        found = [0, 1, 2, 3, 4, length // 2, length - 1, length, -1, limits.min, limits.max]
        return [one for one in found if limits.min <= one <= limits.max]
    limits_ = np.finfo(dtype)
    return [
        0.5,
        1.0,
        0.0,
        2.0,
        -0.0,
        -1.5,
        3.0,
        float("nan"),
        float("inf"),
        float("-inf"),
        float(limits_.max),
        float(limits_.tiny),
    ]


def _elements(dtype: np.dtype[Any], count: int, seed: int, length: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    if dtype.names is not None or dtype.subdtype is not None:
        return _structured(dtype, count, seed, length)
    if dtype.kind in "mM":
        return random.integers(-9, 9 + length, count).astype("i8").view(dtype)
    if dtype.kind in "SU":
        return np.array([chr(97 + one) for one in random.integers(0, 26, count)], dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, count).astype(dtype)
    if dtype.kind in "iu":
        # Elements are often used as indices: mostly within the length that the call shares.
        return random.integers(0, max(length, 1), count).astype(dtype)
    found = random.normal(size=count).astype(dtype)
    if seed % 4 == 3 and count:
        extreme = np.array(_numbers(dtype, length), dtype)
        places = random.integers(0, count, 1 + count // 8)
        found[places] = random.choice(extreme, places.size)
    return found


def _structured(dtype: np.dtype[Any], count: int, seed: int, length: int) -> np.ndarray[Any, Any]:
    """Return records, or elements that are small arrays in a record."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _elements(base, count * math.prod(shape), seed, length).reshape(count, *shape)
    found = np.zeros(count, dtype)
    for name in dtype.names or ():
        found[name] = _elements(dtype[name], count, seed, length)
    return found

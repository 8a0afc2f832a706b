"""Assignments from one part of an array to another part of it that need no copy.

``x[:n] = x[n:]`` copies the source first when the memory of the two may overlap, and the copy
allocates. Numba decides that by addresses, while the function runs. Here it is decided by the
indices, while the function is compiled: parts that cannot share an element, and a part assigned to
itself (which is what ``x[:n] *= 2.0`` does in the end), are lowered without the copy. The values
are the same; there is only less code. Whatever is not understood keeps its copy.

Looked at are the statements of a block and of those that led to it, as long as there is one way
only: a variable that was not assigned between two of them is the same value at both. Of code that
may raise inside of ``try`` Numba makes a block for each instruction.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from alloccheck.compile import numba_internals

# isort: split
from numba.core import ir, types
from numba.core.errors import NumbaNotImplementedError
from numba.core.lowering import Lower


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value of which only the identity is known: a variable since its n-th assignment."""

    name: str
    assignment: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice; each of its members is an int, None or an `Unknown` integer."""

    start: Any
    stop: Any
    step: Any


@dataclass(frozen=True, slots=True)
class Part:
    """What a basic index takes out of an array: an int, `Unknown` or `Slice` per dimension."""

    array: Any
    index: tuple[Any, ...]


END = "end"
"""The bound behind the last element."""

WHOLE = Slice(None, None, None)

_LARGEST = 2**63 - 1
"""The largest index that Numba counts with."""


def apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two indices of an array can never reach the same element, whatever its shape.

    Parameters
    ----------
    one, other : tuple
        For each dimension an int, an `Unknown` integer or slice, or a `Slice`.

    Examples
    --------
    >>> n = Unknown("n", 0)
    >>> apart((Slice(None, n, None),), (Slice(n, None, None),))
    True
    >>> apart((Slice(0, 4, None),), (Slice(-4, None, None),))
    False
    """
    return any(_ranges_apart(*pair) for pair in zip(one, other, strict=True))


def _ranges_apart(one: Any, other: Any) -> bool:
    (low, high), (its_low, its_high) = _bounds(one), _bounds(other)
    if _never_above(high, its_low) or _never_above(its_high, low):
        return True
    if not (isinstance(one, Slice) and isinstance(other, Slice)):
        return False
    # A start beyond the end leaves nothing; every other start is taken as it is.
    step = one.step
    counted = (step, other.step, low, its_low)
    return (
        all(isinstance(number, int) and number >= 0 for number in counted)
        and step == other.step > 1
        and (low - its_low) % step != 0
    )


def _bounds(index: Any) -> tuple[Any, Any]:
    """Return bounds of the elements that an index reaches, as a slice would take them."""
    if isinstance(index, int):
        return index, END if index == -1 else index + 1
    if isinstance(index, Slice):
        forward = index.step is None or (isinstance(index.step, int) and index.step > 0)
        if forward:
            return (
                0 if index.start is None else index.start,
                END if index.stop is None else index.stop,
            )
    return 0, END


def _never_above(one: Any, other: Any) -> bool:
    """Whether a bound is at or before another in arrays of every size.

    Numba moves both into the array in the same way, which keeps the order of two bounds that are
    counted from the same end.
    """
    if one == 0 or one == other or other == END:
        return True
    counted = isinstance(one, int) and isinstance(other, int)
    return counted and (one < 0) == (other < 0) and one <= other


class _Values:
    """What variables are, statement by statement, since the start of a block.

    Parameters
    ----------
    typeof, in_place : callable
        The type of a variable; whether an expression such as ``x += y`` returns `x`.
    before : _Values or None
        Those at the end of the one block that leads to this one.
    """

    def __init__(
        self,
        typeof: Callable[[str], Any],
        in_place: Callable[[Any], bool],
        before: _Values | None = None,
    ) -> None:
        self._typeof = typeof
        self._in_place = in_place
        self._known: dict[str, Any] = {} if before is None else dict(before._known)
        self._assigned: int = 0 if before is None else before._assigned

    def assign(self, name: str, value: Any) -> None:
        """Follow one assignment."""
        self._assigned += 1
        found = self._of_value(value)
        self._known[name] = Unknown(name, self._assigned) if found is None else found

    def needless_copy(self, assignment: Any) -> bool:
        """Whether an item assignment is from an array to itself, in a way that needs no copy."""
        target = self._part(assignment.target.name, assignment)
        if target is None:
            return False
        source = self._of(assignment.value.name)
        if source == target.array:
            source = Part(source, (WHOLE,) * len(target.index))
        if not (isinstance(source, Part) and source.array == target.array):
            return False
        if source.index == target.index:
            return True  # each element is assigned to itself
        return self._is_plain_memory(target.array) and apart(source.index, target.index)

    def _is_plain_memory(self, array: Any) -> bool:
        """Whether different elements of an array lie in different places."""
        while isinstance(array, Part):
            array = array.array
        return self._typeof(array.name).layout in ("C", "F")

    def _of(self, name: str) -> Any:
        return self._known.get(name, Unknown(name, 0))

    def _of_value(self, value: Any) -> Any:
        """Return what is known of an assigned value; None: nothing."""
        if isinstance(value, ir.Var):
            return self._of(value.name)
        if isinstance(value, ir.Const | ir.Global | ir.FreeVar):
            return slice if value.value is slice else _constant(value.value)
        if not isinstance(value, ir.Expr):
            return None
        if value.op == "getitem" or (value.op == "static_getitem" and value.fn is operator.getitem):
            return self._part(value.value.name, value)
        if value.op == "inplace_binop" and self._in_place(value):
            return self._of(value.lhs.name)
        if value.op == "build_tuple":
            return tuple(self._member(one) for one in value.items)
        if value.op == "call" and self._of(value.func.name) is slice:
            members = [self._member(one) for one in value.args]
            if 2 <= len(members) <= 3 and not value.kws and value.vararg is None:
                return _slice(*members)
        return None

    def _part(self, array: str, access: Any) -> Part | None:
        """Return the part of an array that an access reaches, or None if the index is not basic."""
        kind = self._typeof(array)
        if not isinstance(kind, types.Array):
            return None
        if isinstance(access.index, ir.Var):
            found = self._of(access.index.name)
            index = found if isinstance(found, tuple) else self._member(access.index)
        else:
            index = _constant(access.index)
        members = index if isinstance(index, tuple) else (index,)
        if len(members) > kind.ndim or not all(map(_is_index, members)):
            return None
        return Part(self._of(array), (*members, *[WHOLE] * (kind.ndim - len(members))))

    def _member(self, variable: Any) -> Any:
        """Return what a variable is in an index: something of which `_is_index`, or not."""
        found, kind = self._of(variable.name), self._typeof(variable.name)
        if isinstance(kind, types.NoneType):
            return None
        if isinstance(found, Unknown):
            return found if isinstance(kind, types.Integer | types.SliceType) else NOT_BASIC
        return found if _is_index(found) else NOT_BASIC


NOT_BASIC = "not basic"
"""Stands for a part of an index that is neither an integer nor a slice."""


def _is_index(value: Any) -> bool:
    return type(value) is int or isinstance(value, Slice | Unknown)


def _slice(start: Any, stop: Any, step: Any = None) -> Slice | None:
    """Return a slice, or None when a member is neither an integer nor None."""
    fit = all(
        one is None or (type(one) is int and abs(one) <= _LARGEST) or isinstance(one, Unknown)
        for one in (start, stop, step)
    )
    return Slice(start, stop, step) if fit else None


def _constant(value: Any) -> Any:
    """Return a constant as a part of an index, or None when it is none.

    One that is too large for an address is another one where it is used.
    """
    if type(value) is slice:
        return _slice(value.start, value.stop, value.step)
    if type(value) is tuple:
        return tuple(map(_constant, value))
    return value if type(value) is int and abs(value) <= _LARGEST else None


@contextlib.contextmanager
def without_copies() -> Iterator[None]:
    """Lower array assignments as if the memory of both sides never overlapped.

    Notes
    -----
    The compiler lock is held: nobody else lowers meanwhile.
    """
    from numba.np import arrayobj  # Numba has loaded it by now

    numba_internals.require_later()
    numba_own = arrayobj.extents_may_overlap
    arrayobj.extents_may_overlap = _never_overlap
    try:
        yield
    finally:
        arrayobj.extents_may_overlap = numba_own


def _never_overlap(context: Any, builder: Any, *extents: Any) -> Any:
    return context.get_constant(types.boolean, False)


def _statements(blocks: Iterable[Any]) -> Iterator[Any]:
    for block in blocks:
        yield from block.body


def _keeps(given: Any, wanted: Any) -> bool:
    """Whether a conversion to another type leaves integers as they are when used as an index."""
    given, wanted = (
        one.type if isinstance(one, types.Optional) else one for one in (given, wanted)
    )
    if isinstance(given, types.BaseTuple) and isinstance(wanted, types.BaseTuple):
        return all(map(_keeps, given.types, wanted.types))
    if isinstance(given, types.Integer):
        return not isinstance(wanted, types.Boolean) and not (
            isinstance(wanted, types.Integer) and wanted.bitwidth < given.bitwidth
        )
    return not (isinstance(given, types.Float) and isinstance(wanted, types.Integer))


def _ways(blocks: Mapping[int, Any]) -> tuple[list[int], dict[int, list[int]]]:
    """Return the blocks to which none or several lead, and from each those to which it alone leads.

    Who comes to one of the latter has just been in the former.
    """
    before: dict[int, set[int]] = {}
    for label, block in blocks.items():
        for target in block.terminator.get_targets():
            before.setdefault(target, set()).add(label)
    first = min(blocks)  # entered from outside as well
    following: dict[int, list[int]] = {}
    roots = []
    for label in blocks:
        leading = before.get(label, set())
        if label == first or len(leading) != 1:
            roots.append(label)
        else:
            following.setdefault(leading.pop(), []).append(label)
    return roots, following


class ViewLower(Lower):  # type: ignore[misc]
    """Lowers functions as Numba does, without the copies that are not needed.

    And in the same order in every process.
    """

    _needless: frozenset[int] | None = None
    """Identities of the statements that need no copy, of all blocks."""

    def pre_block(self, block: Any) -> None:
        super().pre_block(block)
        if self._needless is None:
            self._needless = frozenset(map(id, self._needless_copies()))

    def _needless_copies(self) -> Iterator[Any]:
        if not any(map(self._is_copy, _statements(self.blocks.values()))):
            return
        if any(map(self._narrows, _statements(self.blocks.values()))):
            return  # also what Numba says of constant indices is not what they are in the end
        roots, following = _ways(self.blocks)
        waiting: list[tuple[int, _Values | None]] = [(label, None) for label in roots]
        while waiting:
            label, before = waiting.pop()
            values = _Values(self.typeof, self._in_place, before)
            for statement in self.blocks[label].body:
                if isinstance(statement, ir.Assign):
                    values.assign(statement.target.name, statement.value)
                elif self._is_copy(statement) and values.needless_copy(statement):
                    yield statement
            waiting += ((one, values) for one in following.get(label, ()))

    def _is_copy(self, statement: Any) -> bool:
        """Whether a statement assigns an array to a part of an array."""
        return isinstance(statement, ir.SetItem | ir.StaticSetItem) and all(
            isinstance(self.typeof(one.name), types.Array)
            for one in (statement.target, statement.value)
        )

    def _narrows(self, statement: Any) -> bool:
        """Whether an assignment may change an integer: types of variables may be declared."""
        if not isinstance(statement, ir.Assign):
            return False
        value, wanted = statement.value, self.typeof(statement.target.name)
        if isinstance(value, ir.Var):
            return not _keeps(self.typeof(value.name), wanted)
        if isinstance(value, ir.Expr):
            if value.op != "build_tuple":
                return False
            given = types.Tuple([self.typeof(one.name) for one in value.items])
            return not _keeps(given, wanted)
        number = getattr(value, "value", None)
        if isinstance(wanted, types.Optional):
            wanted = wanted.type
        return type(number) is int and (
            isinstance(wanted, types.Boolean)
            or (isinstance(wanted, types.Integer) and not wanted.minval <= number <= wanted.maxval)
        )

    def _in_place(self, expression: Any) -> bool:
        """Whether an expression such as ``x += y`` returns `x`, being Numba's own on arrays."""
        kind, signature = self.typeof(expression.lhs.name), self.fndesc.calltypes[expression]
        if not (isinstance(kind, types.Array) and kind.mutable):
            return False
        if not kind == signature.args[0] == signature.return_type:
            return False
        function = self.context.typing_context.resolve_value_type(expression.fn)
        known = self.context._defns[function.get_impl_key(signature)]
        try:
            found = known.find(signature.args)
        except NumbaNotImplementedError:
            return False
        return bool(found.__module__ == "numba.np.npyimpl")

    def lower_yield(self, retty: Any, inst: Any) -> Any:
        # Numba saves them in the order of a set of names, which each process has another of.
        point = self.generator_info.yield_points[inst.index]
        point.live_vars = sorted(point.live_vars)
        return super().lower_yield(retty, inst)

    def lower_try_dynamic_raise(self, inst: Any) -> None:
        # Numba pickles a variable with its scope: all others, and sets in an order of the process.
        arguments = tuple(
            ir.Var(None, one.name, ir.unknown_loc) if isinstance(one, ir.Var) else one
            for one in inst.exc_args or ()
        )
        super().lower_try_dynamic_raise(ir.DynamicTryRaise(inst.exc_class, arguments, inst.loc))

    def lower_inst(self, inst: Any) -> None:
        needless = self._needless is not None and id(inst) in self._needless
        with without_copies() if needless else contextlib.nullcontext():
            super().lower_inst(inst)

"""From Python values to native arguments, also of types that Python cannot pass.

Most values are unboxed by Numba, as in any call. A type that has one value alone (a literal, a
function) needs none from Python. What Python cannot make (a structref or jitclass instance without
its constructor, a range) is put together from its parts by compiled code, before the window opens,
and for a pointer stands the memory of an array.
Knows Numba's types and data models; nothing of counting or of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numba.core.boxing  # noqa: F401  (registers what is looked up here)
import numpy as np
from numba.core import cgutils, pythonapi, types
from numba.core.errors import NumbaNotImplementedError
from numba.core.registry import cpu_target
from numba.core.typing.typeof import Purpose, typeof
from numba.experimental.jitclass import base as jitclasses
from numba.np.numpy_support import as_dtype

from alloccheck.errors import UsageError
from alloccheck.oracle.references import Parts

How = Literal["value", "fixed", "tuple", "struct", "instance", "range", "pointer"]


@dataclass(frozen=True, slots=True)
class Form:
    """How one native argument comes about.

    Parameters
    ----------
    how : {"value", "fixed", "tuple", "struct", "instance", "range", "pointer"}
        Unboxed; the only value of its type (or null); put together from parts; the address of the
        memory of an array, which is the only part.
    type : numba type
        Of the argument.
    parts : tuple of Form
        Of what is put together.
    """

    how: How
    type: Any
    parts: tuple[Form, ...] = ()

    def leaves(self) -> Iterator[Any]:
        """Give the types of the values that come from Python, in their order."""
        if self.how == "value":
            yield self.type
        for one in self.parts:
            yield from one.leaves()


_ONE_VALUE = (
    types.Omitted,
    types.Dispatcher,
    types.Function,
    types.TypeRef,
    types.NumberClass,
    types.DType,
    types.Module,
    types.MakeFunctionLiteral,
    types.EllipsisType,
)


def has_one_value(kind: Any) -> bool:
    """Tell whether the type alone says what the value is.

    Parameters
    ----------
    kind : numba type
        Of an argument.

    Examples
    --------
    >>> has_one_value(types.literal(3)), has_one_value(types.int64)
    (True, False)
    """
    if isinstance(kind, types.Literal) and not isinstance(kind, types.MakeFunctionLiteral):
        return isinstance(kind.literal_value, bool | int | str)
    return isinstance(kind, _ONE_VALUE)


def parts_of(kind: Any) -> tuple[tuple[str, Any], ...] | None:
    """Return names and types of what a type's instances are put together from, if they are.

    Parameters
    ----------
    kind : numba type
        Of an argument.

    Examples
    --------
    >>> parts_of(types.int64) is None
    True
    """
    if isinstance(kind, types.StructRef):
        return tuple(kind.field_dict.items())
    if isinstance(kind, types.ClassInstanceType):
        return tuple(kind.struct.items())
    if isinstance(kind, types.RangeType):
        return tuple((name, kind.dtype) for name in ("start", "stop", "step"))
    return None


def is_pointer(kind: Any) -> bool:
    """Tell whether a type is that of an address, which arrays can stand for.

    Parameters
    ----------
    kind : numba type
        Of an argument.

    Examples
    --------
    >>> is_pointer(types.CPointer(types.float64)), is_pointer(types.voidptr), is_pointer(types.intp)
    (True, True, False)
    """
    return isinstance(kind, types.CPointer) or kind == types.voidptr


def points_into(kind: Any, value: Any) -> bool:
    """Tell whether a value can stand for a pointer: an array of what is pointed to, or None.

    Parameters
    ----------
    kind : numba type
        Of an argument.
    value : object

    Examples
    --------
    >>> points_into(types.CPointer(types.float32), np.zeros(3, np.float32))
    True
    >>> points_into(types.CPointer(types.float32), np.zeros(3))
    False
    """
    if not is_pointer(kind):
        return False
    if value is None:
        return True
    if not isinstance(value, np.ndarray):
        return False
    if kind == types.voidptr:
        return True
    try:
        return bool(value.dtype == as_dtype(kind.dtype))
    except NumbaNotImplementedError:
        return False


def flatten(kinds: Sequence[Any], values: Sequence[Any]) -> tuple[tuple[Form, ...], list[Any]]:
    """Return how native arguments come about, and the Python values that this takes.

    Parameters
    ----------
    kinds : sequence of numba types
        Of the native arguments.
    values : sequence
        One for each; for a type of one value anything; `Parts` of what is to be put together.

    Raises
    ------
    UsageError
        When a value is not of its type.

    Examples
    --------
    >>> forms, leaves = flatten([types.literal(3), types.float64], [None, 2.0])
    >>> [one.how for one in forms], leaves
    (['fixed', 'value'], [2.0])
    """
    leaves: list[Any] = []
    return tuple(_form(k, v, leaves) for k, v in zip(kinds, values, strict=True)), leaves


def _form(kind: Any, value: Any, leaves: list[Any]) -> Form:
    if has_one_value(kind):
        return Form("fixed", kind)
    if isinstance(value, types.Omitted):
        value = value.value
    if isinstance(value, range) and isinstance(kind, types.RangeType):
        value = Parts((value.start, value.stop, value.step))
    if points_into(kind, value):
        if value is None:
            return Form("fixed", kind)
        return Form("pointer", kind, (_form(typeof(value, Purpose.argument), value, leaves),))
    if isinstance(value, Parts):
        named = parts_of(kind)
        if named is None or len(named) != len(value.values):
            raise UsageError(f"{kind} is not put together from {len(value.values)} parts")
        parts = tuple(_form(k, v, leaves) for (_, k), v in zip(named, value.values, strict=True))
        return Form(_how(kind), kind, parts)
    if isinstance(kind, types.BaseTuple) and isinstance(value, tuple) and len(kind) == len(value):
        before = len(leaves)
        parts = tuple(_form(k, v, leaves) for k, v in zip(kind, value, strict=True))
        if all(one.how == "value" for one in parts):
            del leaves[before:]
            leaves.append(value)
            return Form("value", kind)
        return Form("tuple", kind, parts)
    if not _fits(kind, value):
        raise UsageError(f"a value of type {_named(value)} is no {kind}")
    if not _has(pythonapi._unboxers, kind):
        raise UsageError(f"no Python value stands for a {kind}")
    leaves.append(value)
    return Form("value", kind)


def _how(kind: Any) -> How:
    if isinstance(kind, types.RangeType):
        return "range"
    return "struct" if isinstance(kind, types.StructRef) else "instance"


def _named(value: Any) -> str:
    try:
        return str(typeof(value, Purpose.argument))
    except ValueError:
        return type(value).__qualname__


def _fits(kind: Any, value: Any) -> bool:
    """Tell whether a value may be unboxed as a type: unboxing itself hardly looks."""
    if isinstance(kind, types.Optional):
        return value is None or _fits(kind.type, value)
    number = isinstance(value, bool | int | float | complex | np.number | np.bool_)
    if isinstance(kind, types.Boolean | types.Integer | types.Float):
        return number and not isinstance(value, complex | np.complexfloating)
    if isinstance(kind, types.Complex):
        return number
    try:
        found = typeof(value, Purpose.argument)
    except ValueError:
        return False
    if isinstance(kind, types.Array) and isinstance(found, types.Array):
        return (
            (kind.dtype, kind.ndim) == (found.dtype, found.ndim)
            and kind.layout in ("A", found.layout)
            and kind.mutable <= found.mutable
            and kind.aligned <= found.aligned
        ) or _one_element_wide(kind, found, value)
    if isinstance(kind, types.FunctionType):
        context = cpu_target.typing_context
        return found == kind or context.can_convert(found, kind) is not None
    return bool(found == kind)


def _one_element_wide(kind: Any, found: Any, value: Any) -> bool:
    """Tell whether the layouts differ in name alone: small arrays have several."""
    return bool(
        (kind.dtype, kind.ndim, kind.mutable) == (found.dtype, found.ndim, found.mutable)
        and value.flags[f"{kind.layout}_CONTIGUOUS"]
    )


def can_box(kind: Any) -> bool:
    """Tell whether Numba can make a Python object of a value.

    Parameters
    ----------
    kind : numba type
        Of a result.

    Examples
    --------
    >>> can_box(types.Tuple((types.int64, types.float64))), can_box(types.range_state64_type)
    (True, False)
    """
    if isinstance(kind, types.BaseTuple):
        return all(map(can_box, kind))
    if isinstance(kind, types.Optional):
        return can_box(kind.type)
    if isinstance(kind, types.Generator):
        return False
    return _has(pythonapi._boxers, kind)


def _has(registry: Any, kind: Any) -> bool:
    return registry.lookup(type(kind), None) is not None


class Assembly:
    """Builds native arguments in a function that is being compiled.

    Parameters
    ----------
    context, builder
        Of that function.
    leaves : iterator
        The native values that came from Python.
    """

    def __init__(self, context: Any, builder: Any, leaves: Iterator[Any]) -> None:
        self._context, self._builder, self._leaves = context, builder, leaves
        self._made: list[tuple[Any, Any]] = []

    def value(self, form: Form) -> Any:
        """Return a native argument."""
        if form.how == "value":
            return next(self._leaves)
        if form.how == "fixed":
            return self._only(form.type)
        parts = [self.value(one) for one in form.parts]
        if form.how == "pointer":
            array = self._context.make_array(form.parts[0].type)
            place = array(self._context, self._builder, parts[0]).data
            return self._builder.bitcast(place, self._context.get_value_type(form.type))
        if form.how == "tuple":
            return self._context.make_tuple(self._builder, form.type, parts)
        if form.how == "range":
            made = self._context.make_helper(self._builder, form.type)
            made.start, made.stop, made.step = parts
            return made._getvalue()
        return self._instance(form, parts)

    def drop(self) -> None:
        """Give up what was put together: the measured call has returned."""
        for kind, value in self._made:
            self._context.nrt.decref(self._builder, kind, value)

    def _only(self, kind: Any) -> Any:
        literal = isinstance(kind, types.Literal) and kind.literal_value
        if isinstance(kind, types.IntegerLiteral | types.BooleanLiteral):
            return self._context.get_constant(types.unliteral(kind), literal)
        return self._context.get_constant_null(kind)

    def _instance(self, form: Form, parts: Sequence[Any]) -> Any:
        context, builder, kind = self._context, self._builder, form.type
        payload = kind.get_data_type()
        shape = context.data_model_manager[payload].get_value_type()
        if form.how == "instance":
            shape = context.get_data_type(payload)
        memory = context.nrt.meminfo_alloc_dtor(
            builder,
            context.get_constant(types.uintp, context.get_abi_sizeof(shape)),
            jitclasses.imp_dtor(context, builder.module, kind),
        )
        place = builder.bitcast(context.nrt.meminfo_data(builder, memory), shape.as_pointer())
        builder.store(cgutils.get_null_value(shape), place)
        made = context.make_helper(builder, kind)
        made.meminfo = memory
        if form.how == "instance":
            made.data = place
            fields = context.make_data_helper(builder, payload, ref=place)
        else:
            fields = cgutils.create_struct_proxy(payload)(context, builder, ref=place)
        rename: Callable[[str], str] = (
            jitclasses._mangle_attr if form.how == "instance" else lambda name: name
        )
        named = parts_of(kind)
        assert named is not None
        for (name, field), part in zip(named, parts, strict=True):
            context.nrt.incref(builder, field, part)
            setattr(fields, rename(name), part)
        result = made._getvalue()
        self._made.append((kind, result))
        return result

"""The ways into an artifact: from the interpreter, and from C.

The C entries take no GIL and reach no interpreter: a real-time thread that Python has never seen
may call them. They are part of the closed module, so they are checked with it.
"""

from __future__ import annotations

from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.loaded import CEntries
from alloccheck.compile.status import StatusTable, add_status_table
from alloccheck.errors import UsageError

# isort: split
from llvmlite import ir
from numba.core import cgutils, types


def has_c_signature(descriptor: Any) -> bool:
    """Tell whether a function's types can be passed by value through a C function pointer.

    Parameters
    ----------
    descriptor : FunctionDescriptor
        Numba's description of the compiled function.
    """
    unsupported = (types.Omitted, types.Generator, types.StarArgTuple, types.Dispatcher)
    every = (*descriptor.argtypes, descriptor.restype)
    if any(isinstance(one, unsupported) for one in every):
        return False
    # Whether an optional result is there is said by the status, which a C entry does not return.
    return not isinstance(descriptor.restype, types.Optional)


def add_c_entries(
    context: Any,
    library: Any,
    descriptor: Any,
    value_on_raise: Any = None,
    *,
    inline: bool = False,
) -> CEntries:
    """Add the C entries of a function to its library and return their symbols.

    Parameters
    ----------
    context : CPUContext
        A world's context.
    library : CodeLibrary
        The function's library, not finalised.
    descriptor : FunctionDescriptor
        The function.
    value_on_raise : int or float, optional
        What the value entry returns when the function raised; when left out, zero, or NaN for
        floating point.
    inline : bool
        Inline the body into the value entry.

    Returns
    -------
    CEntries
        The symbols. On raise each entry releases the exception's data first.

    Raises
    ------
    UsageError
        When `value_on_raise` does not fit the return type.
    """
    entries = CEntries.of(descriptor.mangled_name, inline)
    module = context.create_module("alloccheck.entry")
    function_type = context.call_conv.get_function_type(descriptor.restype, descriptor.argtypes)
    callee = ir.Function(module, function_type, descriptor.llvm_func_name)
    table = add_status_table(module, entries.last_status)
    _add_value_entry(context, module, descriptor, callee, entries, table, value_on_raise)
    _add_status_entry(context, module, descriptor, callee, entries.status)
    library.add_ir_module(module)
    return entries


def value_entry_type(context: Any, descriptor: Any) -> Any:
    """Return the LLVM type of the entry that returns a function's value.

    Parameters
    ----------
    context : CPUContext
        Any: types are the same in all.
    descriptor : FunctionDescriptor
        The function; only its types are looked at.
    """
    returns_nothing = descriptor.restype in (types.void, types.none)
    result = ir.VoidType() if returns_nothing else context.get_value_type(descriptor.restype)
    return ir.FunctionType(result, [context.get_value_type(one) for one in descriptor.argtypes])


def is_called_in_registers(descriptor: Any) -> bool:
    """Tell whether a function's arguments and value are numbers and pointers, one word each.

    Parameters
    ----------
    descriptor : FunctionDescriptor
        The function.
    """
    registers = (types.Integer, types.Float, types.Boolean, types.RawPointer, types.CPointer)
    return all(isinstance(one, registers) for one in (*descriptor.argtypes, descriptor.restype))


def _add_value_entry(
    context: Any,
    module: Any,
    descriptor: Any,
    callee: Any,
    entries: CEntries,
    table: StatusTable,
    value_on_raise: Any,
) -> None:
    result = context.get_value_type(descriptor.restype)
    returns_nothing = descriptor.restype in (types.void, types.none)
    function = ir.Function(module, value_entry_type(context, descriptor), entries.value)
    extension = _extension(descriptor.restype)
    if extension is not None:
        function.return_value.add_attribute(extension)
    fallback = None if returns_nothing else _value_on_raise(descriptor, result, value_on_raise)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    status, value = context.call_conv.call_function(
        builder,
        callee,
        descriptor.restype,
        descriptor.argtypes,
        function.args,
        attrs=("alwaysinline",) if entries.inlined else (),
    )
    with builder.if_then(status.is_error, likely=False):
        _release_exception(context, builder, status)
        builder.call(table.raised, (status.code,))
        builder.ret_void() if returns_nothing else builder.ret(fallback)
    table.forget(builder)
    builder.ret_void() if returns_nothing else builder.ret(value)


def _add_status_entry(context: Any, module: Any, descriptor: Any, callee: Any, symbol: str) -> None:
    arguments = [context.get_value_type(one) for one in descriptor.argtypes]
    returns_nothing = descriptor.restype in (types.void, types.none)
    stored = ir.IntType(8) if returns_nothing else context.get_data_type(descriptor.restype)
    shape = ir.FunctionType(ir.IntType(32), [stored.as_pointer(), *arguments])
    function = ir.Function(module, shape, symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    status, value = context.call_conv.call_function(
        builder, callee, descriptor.restype, descriptor.argtypes, function.args[1:]
    )
    with builder.if_then(status.is_error, likely=False):
        _release_exception(context, builder, status)
        builder.ret(status.code)
    if not returns_nothing:
        context.pack_value(builder, descriptor.restype, value, function.args[0])
    builder.ret(ir.IntType(32)(0))


def _extension(result: Any) -> str | None:
    """Return how C compilers expect a narrow integer result to fill its register."""
    if isinstance(result, types.Boolean):
        return "zeroext"
    if isinstance(result, types.Integer) and result.bitwidth < 32:
        return "signext" if result.signed else "zeroext"
    return None


def _value_on_raise(descriptor: Any, result: Any, chosen: Any) -> Any:
    floating = isinstance(result, ir.FloatType | ir.DoubleType)
    if chosen is None:
        return result(float("nan")) if floating else result(None)
    if floating and isinstance(chosen, int | float):
        return result(float(chosen))
    if isinstance(descriptor.restype, types.Boolean) and isinstance(chosen, bool):
        return result(int(chosen))
    integer = descriptor.restype
    if isinstance(integer, types.Integer) and isinstance(chosen, int):
        low, high = integer.minval, integer.maxval
        if low <= chosen <= high:
            return result(chosen)
    raise UsageError(
        f"value_on_raise={chosen!r} is no value of the return type {descriptor.restype}"
    )


def _release_exception(context: Any, builder: Any, status: Any) -> None:
    """Free the heap block of an exception with run-time arguments, as Numba's wrapper would."""
    with builder.if_then(status.is_user_exc):
        info = builder.load(status.excinfoptr)
        owned = builder.extract_value(info, 4)
        with builder.if_then(builder.icmp_signed(">", owned, owned.type(0))):
            context.nrt.free(builder, builder.extract_value(info, 2))
            context.nrt.free(builder, builder.bitcast(status.excinfoptr, cgutils.voidptr_t))

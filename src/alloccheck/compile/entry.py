"""The ways into an artifact: from the interpreter, and from C.

The C entry has the plain C signature, takes no GIL and reaches no interpreter: a real-time thread
that Python has never seen may call it. It is part of the closed module, so it is checked with it.
"""

from __future__ import annotations

from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)

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
    # A missing value is told by the status alone, which a C function does not return.
    return not isinstance(descriptor.restype, types.Optional) and not any(
        isinstance(one, unsupported) for one in every
    )


def add_c_entry(context: Any, library: Any, descriptor: Any) -> str:
    """Add the C entry of a function to its library and return its symbol.

    Parameters
    ----------
    context : CPUContext
        A world's context.
    library : CodeLibrary
        The function's library, not finalised.
    descriptor : FunctionDescriptor
        The function.

    Returns
    -------
    str
        The symbol. When the function raises, the entry releases the exception's data and
        returns zero (NaN for floating point).
    """
    module = context.create_module("alloccheck.entry")
    function_type = context.call_conv.get_function_type(descriptor.restype, descriptor.argtypes)
    callee = ir.Function(module, function_type, descriptor.llvm_func_name)
    arguments = [context.get_value_type(one) for one in descriptor.argtypes]
    result = context.get_value_type(descriptor.restype)
    returns_nothing = descriptor.restype in (types.void, types.none)
    shape = ir.FunctionType(ir.VoidType() if returns_nothing else result, arguments)
    symbol: str = descriptor.llvm_cfunc_wrapper_name
    function = ir.Function(module, shape, symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    status, value = context.call_conv.call_function(
        builder, callee, descriptor.restype, descriptor.argtypes, function.args
    )
    with builder.if_then(status.is_error, likely=False):
        _release_exception(context, builder, status)
        if returns_nothing:
            builder.ret_void()
        else:
            builder.ret(_value_on_raise(result))
    if returns_nothing:
        builder.ret_void()
    else:
        builder.ret(value)
    library.add_ir_module(module)
    return symbol


def _value_on_raise(result: Any) -> Any:
    if isinstance(result, ir.FloatType | ir.DoubleType):
        return result(float("nan"))
    return result(None)


def _release_exception(context: Any, builder: Any, status: Any) -> None:
    """Free the heap block of an exception with run-time arguments, as Numba's wrapper would."""
    with builder.if_then(status.is_user_exc):
        info = builder.load(status.excinfoptr)
        owned = builder.extract_value(info, 4)
        with builder.if_then(builder.icmp_signed(">", owned, owned.type(0))):
            context.nrt.free(builder, builder.extract_value(info, 2))
            context.nrt.free(builder, builder.bitcast(status.excinfoptr, cgutils.voidptr_t))

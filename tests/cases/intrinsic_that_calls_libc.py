"""An intrinsic that calls the C library by name."""

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic


@intrinsic
def take(typing_context, size):
    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        function = get_or_insert_function(builder.module, kind, "malloc")
        return builder.call(function, arguments)

    return types.int64(types.int64), generate


def ENTRY(n):
    return take(n)  # ! allocate malloc


SIGNATURE = "(int64,)"

"""An intrinsic that asks the runtime for memory."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def take(typing_context, size):
    def generate(context, builder, signature, arguments):
        pointer = context.nrt.allocate(builder, arguments[0])
        return builder.ptrtoint(pointer, ir.IntType(64))

    return types.int64(types.int64), generate


def ENTRY(n):
    return take(n)  # ! allocate NRT_Allocate*


SIGNATURE = "(int64,)"

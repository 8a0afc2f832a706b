"""An intrinsic that emits one instruction."""

from numba import types
from numba.extending import intrinsic


@intrinsic
def doubled(typing_context, x):
    def generate(context, builder, signature, arguments):
        return builder.fadd(arguments[0], arguments[0])

    return types.float64(types.float64), generate


def ENTRY(x):
    return doubled(x)


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 3.0


def ARGS():
    return (1.5,)

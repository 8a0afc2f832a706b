"""A function that is known by its type alone may be anything, the interpreter included.

https://github.com/numba/numba/issues/10755
"""

from numba import types


def ENTRY(function):
    text = function()  # ! dispatch; python; allocate
    return len(text)


SIGNATURE = (types.FunctionType(types.unicode_type()),)

"""What a typed list's type says of the calls that delete from it: whether items hold references.

Numba gives the run time no item when it deletes one, only its number. Whether that drops a
reference stands in a table that whoever made the list filled, by the type of its items. That type
is known here and nowhere in the code, so the call is marked.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.program.llvm_text import PLAIN_ELEMENTS

# isort: split
from numba.core import types

_DELETING = {
    "_list_delitem": "numba_list_delitem",
    "_list_delete_slice": "numba_list_delete_slice",
}
"""Numba's intrinsics, each with what it calls."""


def symbol_to_mark(context: Any, function: Any, signature: Any) -> str | None:
    """Return which calls of a function's lowering are to be marked; None for most functions.

    Parameters
    ----------
    context : WorldContext
        The world's.
    function : numba type
        What is called.
    signature : Signature
        Of the call.
    """
    arguments = signature.args
    if not arguments or not isinstance(arguments[0], types.ListType):
        return None
    intrinsic = getattr(getattr(function, "typing_key", None), "_defn", None)
    name = getattr(intrinsic, "__name__", "")
    if name not in _DELETING or intrinsic.__module__ != "numba.typed.listobject":
        return None
    # As Numba decides whether a list needs functions that count references.
    items = context.data_model_manager[arguments[0].item_type]
    return None if items.contains_nrt_meminfo() else _DELETING[name]


def marking(lower: Callable[..., Any], symbol: str) -> Callable[..., Any]:
    """Return a lowering that marks the calls of a symbol which it adds.

    Parameters
    ----------
    lower : callable
        Numba's.
    symbol : str
        What is called.
    """

    def marked(builder: Any, arguments: Any, loc: Any = None) -> Any:
        block = builder.block
        # Another list's calls may stand in the same block, in front or behind.
        before = set(map(id, block.instructions))
        result = lower(builder, arguments, loc)
        for one in block.instructions:
            if (
                id(one) not in before
                and isinstance(one, ir.CallInstr)
                and getattr(one.callee, "name", "") == symbol
            ):
                one.set_metadata(PLAIN_ELEMENTS, builder.module.add_metadata([]))
        return result

    return marked

"""A digest of the machine code that stock Numba makes of a function, without its wrappers.

Wrappers hold names with a counter that each process starts anew; so does nothing that runs in a
call from jitted code. Knows object files; nothing of Numba's objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from alloccheck.compile.objectfile import ObjectFile

_COUNTED = re.compile(r"B\d+v\d+")
_ADDRESS = re.compile(r"globals\.[0-9a-f]+")


def code_digest(found: ObjectFile, wrappers: Collection[str]) -> str:
    """Return SHA-256 over the code of an object's functions and what they are bound to.

    Parameters
    ----------
    found : ObjectFile
        The object of one library of Numba's.
    wrappers : collection of str
        Symbols to leave out.

    Returns
    -------
    str
        Hexadecimal. Symbol counters and addresses in names do not enter.
    """
    state = hashlib.sha256()
    code = {one.name: one.data for one in found.sections if one.executable}
    functions = sorted(
        (one for one in found.symbols if one.function and one.name not in wrappers),
        key=lambda one: (one.section, one.offset),
    )
    for one in functions:
        data = code.get(one.section, b"")[one.offset : one.offset + one.size]
        state.update(len(data).to_bytes(8, "little") + data)
        for bound in sorted(found.relocations, key=lambda each: each.offset):
            inside = one.offset <= bound.offset < one.offset + one.size
            if inside and bound.section == one.section:
                name = bound.target if bound.external else bound.target.partition("+")[0]
                name = _ADDRESS.sub("globals", _COUNTED.sub("", name))
                state.update(f"{bound.offset - one.offset} {bound.kind} {name}\n".encode())
    for constants in found.sections:
        if constants.name.startswith(".rodata.cst"):
            state.update(constants.data)
    return state.hexdigest()

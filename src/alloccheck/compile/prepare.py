"""Process-wide lazy set-up of Numba's helpers, triggered before a proof and verified.

Numba's BLAS helpers import SciPy and look a function up when they are first called
(``numba/_lapack.c``). Calling each once on a 1 x 1 problem does that now, so that a proved function
never does it. Only what can be triggered by a call that changes nothing is here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)

# isort: split
import llvmlite.binding as ll
from numba import _helperlib

_KINDS = "sdcz"
_WIDTH = {"s": 4, "d": 8, "c": 8, "z": 16}

_char, _intp, _ptr = ctypes.c_char, ctypes.c_ssize_t, ctypes.c_void_p


def _one(kind: str) -> ctypes.Array[ctypes.c_char]:
    """Return a buffer that holds the number 1 of a BLAS kind."""
    real = ctypes.c_float(1.0) if kind in "sc" else ctypes.c_double(1.0)
    return ctypes.create_string_buffer(bytes(real), _WIDTH[kind])


def _dot(address: int) -> bool:
    call = ctypes.CFUNCTYPE(ctypes.c_int, _char, _char, _intp, _ptr, _ptr, _ptr)(address)
    done = []
    for kind in _KINDS:
        for conjugate in (b"\0", b"\1") if kind in "cz" else (b"\0",):
            x, out = _one(kind), _one(kind)
            done.append(call(kind.encode(), conjugate, 1, x, x, out))
    return not any(done)


def _gemv(address: int) -> bool:
    call = ctypes.CFUNCTYPE(
        ctypes.c_int, _char, _char, _intp, _intp, _ptr, _ptr, _intp, _ptr, _ptr, _ptr
    )(address)
    done = []
    for kind in _KINDS:
        one, out = _one(kind), _one(kind)
        done.append(call(kind.encode(), b"n", 1, 1, one, one, 1, one, one, out))
    return not any(done)


def _gemm(address: int) -> bool:
    call = ctypes.CFUNCTYPE(
        ctypes.c_int,
        *(_char, _char, _char, _intp, _intp, _intp),
        *(_ptr, _ptr, _intp, _ptr, _intp, _ptr, _ptr, _intp),
    )(address)
    done = []
    for kind in _KINDS:
        one, out = _one(kind), _one(kind)
        done.append(call(kind.encode(), b"n", b"n", 1, 1, 1, one, one, 1, one, 1, one, out, 1))
    return not any(done)


def _nrm2(address: int) -> bool:
    call = ctypes.CFUNCTYPE(ctypes.c_int, _char, _intp, _ptr, _intp, _ptr)(address)
    return not any(call(kind.encode(), 1, _one(kind), 1, _one(kind)) for kind in _KINDS)


_TRIGGERS: dict[str, Callable[[int], bool]] = {
    "numba_xxdot": _dot,
    "numba_xxgemv": _gemv,
    "numba_xxgemm": _gemm,
    "numba_xxnrm2": _nrm2,
}


def prepare(symbols: Iterable[str]) -> frozenset[str]:
    """Trigger the process-wide set-up of helpers, where it can be done without side effects.

    Parameters
    ----------
    symbols : iterable of str
        External symbols that do something on the first call of the process.

    Returns
    -------
    frozenset of str
        Those whose set-up was triggered and reported success; the others stay as they were.

    Examples
    --------
    >>> prepare(["some_symbol_that_nobody_prepares"])
    frozenset()
    """
    done = set()
    for symbol in sorted(set(symbols)):
        trigger = _TRIGGERS.get(symbol)
        address = ll.address_of_symbol(symbol) if trigger is not None else None
        # Twice: the second call succeeds only on what the first has set up.
        if trigger is not None and address and trigger(address) and trigger(address):
            done.add(symbol)
    return frozenset(done)


_THREAD_STATES = ("get_py_random_state", "get_np_random_state", "get_internal_random_state")
"""Numba's helpers that make a thread's random state when the thread first asks for it."""


def prepare_thread() -> None:
    """Do now, in the calling thread, what Numba's helpers would do at the thread's first call.

    Each thread has random states of its own, which Numba makes and seeds when they are first
    needed: under the GIL, importing ``os`` and allocating. Call this once in a real-time thread
    before its work starts; then check its functions with ``first_call="allow"``.

    Raises
    ------
    RuntimeError
        When a state could not be made.

    Examples
    --------
    >>> prepare_thread()

    Notes
    -----
    Numba's source: ``numba/_random.c``, ``numba_get_py_random_state`` and its siblings.
    """
    for name in _THREAD_STATES:
        get = ctypes.CFUNCTYPE(ctypes.c_void_p)(_helperlib.c_helpers[name])
        first = get()
        # The second answer is the same state only when the first has set it up.
        if not first or get() != first:
            raise RuntimeError(f"Numba's helper {name} made no state for this thread")

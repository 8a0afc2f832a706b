"""Ctrl-C while something is compiled: it ends the compile where that is safe.

Python raises `KeyboardInterrupt` between any two instructions. Between two of llvmlite's it may
free an LLVM object twice, and between two of Numba's leave a table half filled. So it is held back
while a hermetic compile runs, and raised at the next of the points at which nothing is half done.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

COMPILER_LOCK: Any = global_compiler_lock._lock
"""Numba's lock of all compiles.

Numba's own wrapper releases it in Python code, and where Ctrl-C comes in just before that, no other
thread compiles any more.
"""


class _Interrupts:
    """Whether Ctrl-C is held back, and was pressed meanwhile. Only the main thread gets it."""

    def __init__(self) -> None:
        self.held = False
        self.pressed = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True


_interrupts = _Interrupts()


def safe_point() -> None:
    """Raise what was held back; call where no object of LLVM or Numba is half made.

    Raises
    ------
    KeyboardInterrupt
        When Ctrl-C was pressed since the compile began.
    """
    if _interrupts.pressed and threading.current_thread() is threading.main_thread():
        _interrupts.pressed = False
        raise KeyboardInterrupt


@contextmanager
def interrupts_at_safe_points() -> Iterator[None]:
    """Hold Ctrl-C back to `safe_point` while the block runs, and raise it at the end at the latest.

    Notes
    -----
    A handler of somebody else's for that signal stays as it is, and so does all in other threads.
    """
    mine = (
        not _interrupts.held
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not mine:
        yield
        return
    _interrupts.held = True
    try:
        signal.signal(signal.SIGINT, _interrupts.handle)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _interrupts.held = False
        safe_point()

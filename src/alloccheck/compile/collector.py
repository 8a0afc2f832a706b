"""Python's garbage collector, at a slower pace while something is compiled.

A compile makes objects by the hundred thousand, nearly all of which live until it is done, so most
of what the collector does meanwhile is to look through all modules and types again and again. That
is a sixth of the first call of a small function.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (300_000, 20, 20)
"""Objects before a collection of the youngest, and so on; see :func:`gc.set_threshold`."""


class _Pace:
    """Slows the collector down for as many blocks as are open, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._before: tuple[int, int, int] = THRESHOLDS

    def slow_down(self) -> None:
        with self._lock:
            if not self._open:
                self._before = gc.get_threshold()
                # Zero means off, and whoever set a slower pace shall have it.
                if 0 < self._before[0] < THRESHOLDS[0]:
                    gc.set_threshold(*THRESHOLDS)
            self._open += 1

    def go_on(self) -> None:
        with self._lock:
            self._open -= 1
            # Whatever somebody else has set meanwhile stands.
            if not self._open and gc.get_threshold() == THRESHOLDS:
                gc.set_threshold(*self._before)


_pace = _Pace()


@contextmanager
def slow_collector() -> Iterator[None]:
    """Collect garbage less often while the block runs.

    Examples
    --------
    >>> before = gc.get_threshold()
    >>> with slow_collector():
    ...     gc.get_threshold() == THRESHOLDS
    True
    >>> gc.get_threshold() == before
    True
    """
    _pace.slow_down()
    try:
        yield
    finally:
        _pace.go_on()

"""Puts hermetic dispatchers in the place of Numba's, so that unmodified programs use them.

Whatever makes a dispatcher for the CPU (``jit``, ``njit``, jitclass methods, `jit_module`) finds
it through Numba's registry of targets; one entry changed there reaches them all. Implementations
of overloads are no user's functions and stay Numba's when Numba compiles them itself. What no
hermetic compile can mean (object mode, disk caches) is compiled by Numba and counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from alloccheck.compile.job import checked_options
from alloccheck.dispatcher import CheckedDispatcher
from alloccheck.errors import Refused, UsageError

# isort: split
from numba.core import target_extension as te
from numba.core.compiler import Compiler
from numba.core.decorators import jit
from numba.core.dispatcher import NullCache
from numba.core.registry import CPUDispatcher

hermetic_compiles = 0
"""Signatures compiled hermetically since the start of the process."""

stock_compiles: Counter[str] = Counter()
"""Signatures left to Numba, by reason."""

refusals: list[str] = []
"""Messages of the refusals since the start of the process."""


class SuiteDispatcher(CheckedDispatcher):
    """A hermetic dispatcher with the constructor of Numba's."""

    def __init__(
        self,
        py_func: Any,
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: Any = Compiler,
        **others: Any,
    ) -> None:
        own = None if pipeline_class is Compiler else pipeline_class
        super().__init__(py_func, locals, targetoptions, pipeline_class=own, **others)

    def enable_caching(self) -> None:
        CPUDispatcher.enable_caching(self)

    def _reason_for_stock(self) -> str | None:
        if not isinstance(self._cache, NullCache):
            return "cache=True"
        try:
            checked_options(self.targetoptions)
        except Refused:
            return "object mode"
        except UsageError:
            return "options of another target"
        return None

    def get_overload(self, sig: Any) -> Any:
        if self._reason_for_stock() is not None:
            return CPUDispatcher.get_overload(self, sig)
        return super().get_overload(sig)

    def compile(self, sig: Any) -> Any:
        global hermetic_compiles
        if not self._can_compile:
            # Numba's answer to a call without a match is the same for both.
            return CPUDispatcher.compile(self, sig)
        reason = self._reason_for_stock()
        if reason is not None:
            stock_compiles[reason] += 1
            return CPUDispatcher.compile(self, sig)
        hermetic_compiles += 1
        try:
            return super().compile(sig)
        except Refused as refusal:
            refusals.append(str(refusal))
            raise


def _overload_jit(*args: Any, **options: Any) -> Any:
    """Stand for ``jit`` where Numba compiles implementations of overloads itself."""
    cpu = te.target_registry["cpu"]
    chosen = te.dispatcher_registry[cpu]
    _replace(te.dispatcher_registry, cpu, CPUDispatcher)
    try:
        return jit(*args, **options)
    finally:
        _replace(te.dispatcher_registry, cpu, chosen)


def _replace(registry: Any, key: Any, value: Any) -> None:
    # Numba's registries refuse to have an entry twice.
    dict.__setitem__(registry, key, value)


def install() -> None:
    """Make every CPU dispatcher that is made from now on a hermetic one."""
    cpu = te.target_registry["cpu"]
    _replace(te.dispatcher_registry, cpu, SuiteDispatcher)
    _replace(te.jit_registry, cpu, _overload_jit)

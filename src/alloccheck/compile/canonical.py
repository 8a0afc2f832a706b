"""The canonical cache: a world that is kept, because what it holds does not depend on history.

The result of a closed, hermetic compile is a function of its key: the function with its captured
values, argument types, inherited flags and configuration. A kept world therefore answers a later
question with what a fresh world would answer, byte for byte, and the callees of earlier jobs need
not be compiled again. It is given up as soon as that could be in doubt: a captured value or a
declaration changed, new overloads were registered, a compile failed, or recursion was met (whose
intermediate results depend on the entry).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from alloccheck.compile import dumps
from alloccheck.compile.captures import looks_recursive
from alloccheck.compile.extensions import Extensions, Registration
from alloccheck.compile.frozen import Reach, Runs
from alloccheck.compile.job import CompileJob, Configuration
from alloccheck.compile.recursion import RoundLost, RoundRecursion
from alloccheck.compile.sources import Source
from alloccheck.compile.world import FunctionVariants, World

SWITCH = "ALLOCCHECK_CANONICAL_CACHE"
"""Environment variable; ``0`` makes every compile start from an empty world."""

FUNCTION_LIMIT = 1000
"""Compiled functions after which a kept world is given up, to bound its memory.

Each is 40 KB, and a fiftieth of a millisecond in each later check, which asks whether it changed.
"""

T = TypeVar("T")


class CanonicalCache:
    """Keeps one world and lends it to jobs, as long as it is as good as a fresh one.

    Parameters
    ----------
    function_limit : int
        Compiled functions after which the world is given up.

    Notes
    -----
    Jobs run under Numba's compiler lock; the cache hands its world to one job at a time and
    answers "no" to a nested or concurrent one, which then uses a fresh world.
    """

    def __init__(self, function_limit: int = FUNCTION_LIMIT) -> None:
        self._limit = function_limit
        self._world: World | None = None
        self._configuration: Configuration | None = None
        self._fingerprints: dict[tuple[Any, ...], tuple[Source, Any]] = {}
        self._declarations: tuple[int, ...] = ()
        self._extensions = Extensions()
        self._registered: tuple[tuple[int, ...], list[Registration]] = ((), [])
        self._reach = Reach()
        self._recursive: set[int] = set()
        self._busy = threading.Lock()

    @property
    def enabled(self) -> bool:
        """Whether the environment allows it."""
        return os.environ.get(SWITCH, "1") != "0"

    def clear(self) -> None:
        """Give the world up."""
        if self._world is not None:
            self._world.dispose()
        self._world = None
        self._fingerprints = {}
        self._reach = Reach()

    def functions(self) -> int:
        """Return the number of compiled functions that are kept."""
        return 0 if self._world is None else len(self._world.target_context.codegen().libraries)

    def use(self, job: CompileJob, run: Callable[[World], T]) -> T | None:
        """Run a job in the kept world.

        Parameters
        ----------
        job : CompileJob
            The question.
        run : callable
            Compiles the job in the given world.

        Returns
        -------
        object or None
            What `run` returned; None when a fresh world has to answer instead.
        """
        if not self.enabled or id(job.function.__code__) in self._recursive:
            return None
        if looks_recursive(job.function):
            # The attempt would be lost, and the kept world with it.
            return None
        if not self._busy.acquire(blocking=False):
            return None
        try:
            return self._use(job, run)
        finally:
            self._busy.release()

    def _use(self, job: CompileJob, run: Callable[[World], T]) -> T | None:
        configuration = Configuration.current()
        if dumps.asked_for():
            return None
        if not self._still_valid(configuration):
            self.clear()
        recursion = RoundRecursion({}, expected=False)
        # Given up for the time being: a failure may leave half-made entries behind, and must be
        # the answer of a fresh world to be told to anyone.
        world, self._world = self._world, None
        if world is None:
            world = World(recursion, FunctionVariants())
        else:
            world.restart(recursion)
        try:
            result = run(world)
        except BaseException as error:
            world.dispose()
            self.clear()
            if recursion.met:
                self._recursive.add(id(job.function.__code__))
            if not isinstance(error, Exception | RoundLost):
                raise
            return None
        if recursion.met:
            self._recursive.add(id(job.function.__code__))
            world.dispose()
            self.clear()
            return None
        if world.transformed:
            # Code of somebody else's may look at anything, and nobody knows at what.
            world.dispose()
            self.clear()
            return result
        world.rest()
        self._remember(world)
        self._world, self._configuration = world, configuration
        return result

    def _still_valid(self, configuration: Configuration) -> bool:
        world = self._world
        if world is None or configuration != self._configuration:
            return False
        if self.functions() > self._limit or world.declarations() != self._declarations:
            return False
        return all(known == one.fingerprint() for one, known in self._fingerprints.values())

    def _remember(self, world: World) -> None:
        self._declarations = world.declarations()
        sources = list(world.sources())
        new = [one for one in sources if one.key not in self._fingerprints]
        registered = self._registrations()
        if registered:
            # Their functions run while Numba compiles, and may look at anything.
            functions = [(one.of, Runs.NEVER) for one in new if one.kind == "compiled"]
            choosers = [(one, Runs.TO_COMPILE) for one in world.choosers()]
            self._reach.add([*functions, *choosers], world.types_met(), registered)
        runs, reached = self._reach.inlined, self._reach.functions
        new += (Source(reached[one], "running") for one in runs)
        for one in new:
            if one.key not in self._fingerprints:
                self._fingerprints[one.key] = (one, one.fingerprint())

    def _registrations(self) -> list[Registration]:
        """Return what others registered with Numba; they are searched for anew if any came."""
        if self._registered[0] != self._declarations:
            self._registered = (self._declarations, list(self._extensions.readable()))
        return self._registered[1]


shared = CanonicalCache()
"""The process's cache. It changes what a compile costs, never what it yields."""

"""All functions of a package that a driver uses: compiled once by plain Numba, or checked.

``python -m benchmarks.packages record|numba|checked PACKAGE FILE``; `record` writes the file of
(function, signature) pairs that the other two read. Disk caches are switched off in all three.
"""

from __future__ import annotations

import base64
import collections
import gc
import importlib
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from numba.core import dispatcher
from numba.core.registry import CPUDispatcher

from benchmarks.process import report_result

CORPUS = ("fastdist", "numba_stats", "quantecon", "disba")


class _Clock:
    """CPU time inside the outermost of nested compiles, from the very import of the package."""

    def __init__(self) -> None:
        self.total = 0.0
        self._depth = 0
        self._compile = dispatcher.Dispatcher.compile

    def install(self) -> None:
        clock, plain = self, self._compile

        def compile(self: Any, sig: Any) -> Any:
            clock._depth += 1
            started = time.process_time()
            try:
                return plain(self, sig)
            finally:
                clock._depth -= 1
                if not clock._depth:
                    clock.total += time.process_time() - started

        dispatcher.Dispatcher.compile = compile


def _no_disk_cache(self: Any) -> None:
    """Stand for `enable_caching`."""


def _driver(package: str) -> Any:
    dispatcher.Dispatcher.enable_caching = _no_disk_cache
    return importlib.import_module(f"benchmarks.corpus.drive_{package}")


def _find(module: str, name: str) -> Any:
    found = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _compiled(package: str) -> list[Any]:
    """Return the package's dispatchers that were compiled, in a stable order."""
    found = {
        id(one): one
        for one in gc.get_objects()
        if type(one) is CPUDispatcher
        and one.overloads
        and one.py_func.__module__.split(".")[0] == package
    }
    return sorted(found.values(), key=lambda one: (one.py_func.__module__, one.__qualname__))


def record(package: str, file: str) -> None:
    driver = _driver(package)
    driver.run()
    pairs, left_out = [], []
    for one in _compiled(package):
        module, name = one.py_func.__module__, one.__qualname__
        try:
            reached = _find(module, name) is one
        except AttributeError:
            reached = False
        for signature in one.signatures:
            try:
                text = base64.b64encode(pickle.dumps(signature)).decode()
            except Exception:
                text = ""
            if reached and text:
                pairs.append((module, name, text))
            else:
                left_out.append(f"{module}:{name}{signature}")
    Path(file).write_text(json.dumps(pairs))
    report_result({"pairs": len(pairs), "left out": left_out})


def _questions(file: str) -> list[tuple[Any, tuple[Any, ...]]]:
    return [
        (_find(module, name), pickle.loads(base64.b64decode(text)))
        for module, name, text in json.loads(Path(file).read_text())
    ]


def numba(package: str, file: str) -> None:
    clock = _Clock()
    clock.install()
    _driver(package)
    started = time.perf_counter()
    for function, signature in _questions(file):
        if function._can_compile:  # else all its signatures were compiled, and timed, at import
            function.compile(signature)
    report_result({"cpu": clock.total, "wall": time.perf_counter() - started})


def checked(package: str, file: str) -> None:
    from alloccheck import analyze
    from alloccheck.errors import AllocCheckException

    _driver(package)
    questions = _questions(file)
    outcomes: collections.Counter[str] = collections.Counter()
    stages: collections.Counter[str] = collections.Counter()
    refused = []
    wall, cpu = time.perf_counter(), time.process_time()
    for function, signature in questions:
        try:
            report = analyze(function, signature)
        except AllocCheckException as error:
            outcomes[type(error).__name__] += 1
            refused.append(f"{function.__qualname__}: {str(error).splitlines()[0][:120]}")
            continue
        outcomes["proved" if report.ok else "not proved"] += 1
        stages.update(report.timings)
    report_result(
        {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "outcomes": outcomes,
            "stages": stages,
            "refused": refused,
        }
    )


if __name__ == "__main__":
    {"record": record, "numba": numba, "checked": checked}[sys.argv[1]](*sys.argv[2:])

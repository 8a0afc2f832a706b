"""Which compiler and which checker are running: versions, and the files that they were read from.

A version does not tell two states of a working copy apart. Our own files count by content, Numba's
and llvmlite's by size and time of change. Files are only evidence about what is running if they
are older than the process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from alloccheck.errors import Unstorable

_LOADED_AT = time.time()
_OURS = Path(__file__).parents[1]
_KINDS = (".py", ".toml", ".so", ".pyd", ".dll", ".dylib")


@functools.cache
def fingerprint() -> str:
    """Return a digest of the interpreter and of the files of Numba, llvmlite and alloccheck.

    Raises
    ------
    Unstorable
        When a file changed since the process started: nobody knows which state is in memory.

    Examples
    --------
    >>> len(fingerprint())
    64
    """
    import llvmlite
    import numba

    began = min(_started_at(), _LOADED_AT)
    state = hashlib.sha256(f"{sys.version} {sys.implementation.cache_tag} {sys.flags}".encode())
    for package in (_OURS, Path(numba.__file__).parent, Path(llvmlite.__file__).parent):
        for entry, name in sorted(_files(package), key=lambda one: one[1]):
            status = entry.stat()
            if status.st_ctime > began:
                raise Unstorable(f"{entry.path} changed after this process had started")
            state.update(f"{name}\0{status.st_size}\0".encode())
            if package is _OURS:
                state.update(Path(entry.path).read_bytes())
            else:
                state.update(f"{status.st_mtime_ns}\0".encode())
    return state.hexdigest()


def _files(package: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    waiting = [(str(package), "")]
    while waiting:
        directory, prefix = waiting.pop()
        with os.scandir(directory) as entries:
            for one in entries:
                if one.name.endswith(_KINDS):
                    yield one, prefix + one.name
                elif one.is_dir() and one.name not in ("__pycache__", "tests"):
                    waiting.append((one.path, f"{prefix}{one.name}/"))


def _started_at() -> float:
    """Return when this process began, in seconds since the epoch.

    Raises
    ------
    Unstorable
        Where the system does not say.
    """
    try:
        after_boot = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError) as error:
        raise Unstorable(f"this system does not tell when the process began: {error}") from None
    return time.time() - age

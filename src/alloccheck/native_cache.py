"""Chunks of libraries that were read before, kept in files: a warm query takes milliseconds.

Knows chunks and files; nothing of effects. A chunk depends on the library's bytes alone (pointers
are kept as access paths and followed anew by every query), so the key is the build-id and the hash
of the executable segments as they are in memory. Files are JSON with a checksum, owned by the user
and writable by nobody else; one that is not exactly so is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import stat
import tempfile
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from alloccheck.program.machine.chunk import Chunk, from_json, to_json
from alloccheck.program.machine.images import Image
from alloccheck.storage import user_cache

FORMAT = 1
_LARGEST_FILE = 256 << 20


def default_directory() -> Path:
    """Return the user's cache directory for chunks (``$XDG_CACHE_HOME/alloccheck/native``)."""
    return user_cache() / "native"


class ChunkCache:
    """A cache of chunks, one file for each library. Use it in a ``with`` statement, or `save`.

    Parameters
    ----------
    directory : Path, optional
        Where the files are.

    Examples
    --------
    >>> import tempfile
    >>> from alloccheck.analysis.native import decide
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with ChunkCache(Path(place) / "native") as cache:
    ...         answer = decide(("libm.so.6", "fabs"), store=cache)
    ...     len(list((Path(place) / "native").iterdir()))
    1
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = default_directory() if directory is None else directory
        self.hits = 0
        self.misses = 0
        self._stored: dict[Image, dict[str, str]] = {}
        self._added: dict[Image, dict[str, str]] = {}

    def __enter__(self) -> ChunkCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.save()

    def get(self, image: Image, key: tuple[int, bool]) -> Chunk | None:
        """Return a stored chunk, or None."""
        if image not in self._stored:
            self._stored[image] = load_file(self._path(image))
        text = self._stored[image].get(_key(key))
        if text is not None:
            try:
                chunk = from_json(json.loads(text))
            except (ValueError, TypeError, IndexError):
                chunk = None
            if chunk is not None and chunk.entry == key[0]:
                self.hits += 1
                return chunk
        self.misses += 1
        return None

    def put(self, image: Image, key: tuple[int, bool], chunk: Chunk) -> None:
        """Take a chunk up; it is written by `save`."""
        text = json.dumps(to_json(chunk), separators=(",", ":"))
        self._added.setdefault(image, {})[_key(key)] = text
        self._stored.setdefault(image, {})[_key(key)] = text

    def save(self) -> bool:
        """Write what was added; return False when that is not possible (the cache is optional)."""
        try:
            for image, added in self._added.items():
                path = self._path(image)
                write_file(path, load_file(path) | added)
        except OSError:
            return False
        self._added.clear()
        return True

    def _path(self, image: Image) -> Path:
        identity = "\n".join(
            (
                str(FORMAT),
                reader_versions(),
                image.build_id or "",
                image.code_digest,
                str(image.machine),
            )
        )
        return self.directory / f"{hashlib.sha256(identity.encode()).hexdigest()[:40]}.json"


def _key(key: tuple[int, bool]) -> str:
    return f"{key[0]:x}{'+' if key[1] else ''}"


@lru_cache(maxsize=1)
def reader_versions() -> str:
    """Return what stands for all that takes part in reading code."""
    package = importlib.util.find_spec("iced_x86")
    decoder = "no iced-x86"
    if package is not None and package.origin is not None:
        # Asking for the version of an installed package takes longer than a query.
        parts = sorted(Path(package.origin).parent.glob("*.so"))
        decoder = " ".join(f"{one} {one.stat().st_size} {one.stat().st_mtime_ns}" for one in parts)
    return f"{decoder} {_reader_digest()}"


def _reader_digest() -> str:
    """Return a hash of the reader's own source, so that a changed reader reads anew."""
    digest = hashlib.sha256()
    for source in sorted((Path(__file__).parent / "program" / "machine").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def load_file(path: Path) -> dict[str, str]:
    """Read a file, or return nothing when it is missing, damaged or not only ours."""
    try:
        if not _is_private(path.parent.stat()):
            return {}
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return {}
            if status.st_size > _LARGEST_FILE:
                return {}
            checksum, _, body = os.read(descriptor, status.st_size).partition(b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        return {}
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return {}
    try:
        data = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(data, dict) or not all(isinstance(text, str) for text in data.values()):
        return {}
    return data


def write_file(path: Path, texts: dict[str, str]) -> None:
    """Replace a file in one step, so that a reader sees the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(path.parent.stat()):
        raise PermissionError(f"{path.parent} may be written by others")
    body = json.dumps(texts, separators=(",", ":")).encode()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise

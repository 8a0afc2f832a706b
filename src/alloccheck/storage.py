"""A directory of private files that live as long as they are used: written whole, or not at all.

Knows names and bytes; nothing of what is kept. Everything goes through a descriptor of the
directory, so that what was checked about it is true of what is opened in it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from alloccheck.errors import Unstorable, UsageError

SUFFIX = ".artifact"
TEMPORARY = ".part"
FILE_LIMIT = 64 << 20
"""Bytes of the largest file that is read or written."""

SIZE_LIMIT = 256 << 20
"""Bytes that a directory may hold before the files that were not used for longest are removed."""

State = Literal["loaded", "written", "not stored"]

_ABANDONED = 3600.0
"""Seconds after which an unfinished file is nobody's."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store did for one signature.

    Parameters
    ----------
    state : {"loaded", "written", "not stored"}
        Brought back without compiling; proved here and written; proved here alone.
    reason : str
        Why it was not brought back and, where that is so, why it was not written either.
    path : Path or None
        The file.
    """

    state: State
    reason: str = ""
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


def user_cache() -> Path:
    """Return the folder under which this package keeps what it may lose.

    It is ``$XDG_CACHE_HOME/alloccheck``, or ``~/.cache/alloccheck`` where that is not set or, as
    the XDG specification wants it, not absolute: what holds machine code must not depend on the
    current directory.

    Examples
    --------
    >>> user_cache().name, user_cache().is_absolute()
    ('alloccheck', True)
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "alloccheck"


def user_directory() -> Path:
    """Return the user's directory of artifacts (``$XDG_CACHE_HOME/alloccheck/artifacts``)."""
    return user_cache() / "artifacts"


@dataclass(frozen=True, slots=True)
class Storage:
    """Files under keys, in one directory.

    Parameters
    ----------
    directory : Path
        Made when it is first written to, with mode 0700.
    size_limit : int
        Bytes that it may hold.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     kept = Storage(Path(place) / "kept")
    ...     kept.write("a1", b"content")
    ...     kept.read("a1"), kept.read("b2")
    (b'content', None)
    """

    directory: Path
    size_limit: int = SIZE_LIMIT

    def path(self, key: str) -> Path:
        """Return where a key's file is."""
        return self.directory / f"{key}{SUFFIX}"

    def read(self, key: str) -> bytes | None:
        """Return a key's content, or None when there is no such file.

        Raises
        ------
        Unstorable
            When the directory or file is not private to this user, is a link or no plain file, is
            too large, or cannot be read.
        """
        try:
            with self._opened() as directory:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
                descriptor = os.open(f"{key}{SUFFIX}", flags, dir_fd=directory)
                with os.fdopen(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    if not stat.S_ISREG(status.st_mode):
                        raise Unstorable(f"{self.path(key)} is not a plain file")
                    _require_private(status, self.path(key))
                    if status.st_size > FILE_LIMIT:
                        raise Unstorable(f"{self.path(key)} is larger than {FILE_LIMIT} bytes")
                    data = file.read(FILE_LIMIT + 1)
                    with contextlib.suppress(OSError):
                        os.utime(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unstorable(f"{self.path(key)} cannot be read: {error}") from None
        return data

    def write(self, key: str, data: bytes) -> None:
        """Put a key's content in place in one step, then keep the directory within its limit.

        Raises
        ------
        Unstorable
            When the directory is not private to this user, the content is too large, or it cannot
            be written.
        """
        if len(data) > min(FILE_LIMIT, self.size_limit):
            raise Unstorable(f"{len(data)} bytes are more than a file of the store may have")
        name = f"{key}{SUFFIX}"
        temporary = f"{key}.{os.getpid()}.{secrets.token_hex(8)}{TEMPORARY}"
        try:
            self._make()
            with self._opened() as directory:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(data)
                    os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=directory)
                    raise
                self._evict(directory, name)
        except OSError as error:
            raise Unstorable(f"{self.path(key)} cannot be written: {error}") from None

    def keys(self) -> tuple[str, ...]:
        """Return the keys that have a file, in order; nothing when there is no directory.

        Raises
        ------
        Unstorable
            When the directory is not private to this user or cannot be read.
        """
        try:
            with self._opened() as directory:
                names = [one.name for one in os.scandir(directory)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unstorable(f"{self.directory} cannot be read: {error}") from None
        return tuple(sorted(one[: -len(SUFFIX)] for one in names if one.endswith(SUFFIX)))

    def remove(self, key: str) -> None:
        """Remove a key's file, if there is one."""
        with contextlib.suppress(OSError), self._opened() as directory:
            os.unlink(f"{key}{SUFFIX}", dir_fd=directory)

    def _make(self) -> None:
        if not self.directory.is_symlink() and self.directory.is_dir():
            return
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.directory.mkdir(0o700)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the directory, and make sure that it is the user's alone."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.directory, flags)
        try:
            _require_private(os.fstat(descriptor), self.directory)
            yield descriptor
        finally:
            os.close(descriptor)

    def _evict(self, directory: int, newest: str) -> None:
        """Remove what was not used for longest until the rest fits, and abandoned pieces."""
        found: list[tuple[float, int, str]] = []
        for name in [one.name for one in os.scandir(directory)]:
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                continue  # another process removed it
            if name.endswith(TEMPORARY):
                if status.st_mtime < time.time() - _ABANDONED:
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=directory)
            elif name.endswith(SUFFIX):
                found.append((status.st_mtime, status.st_size, name))
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= self.size_limit:
                return
            if name != newest:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=directory)
                total -= size


def _require_private(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise Unstorable(f"{path} belongs to another user")
    if status.st_mode & 0o022:
        raise Unstorable(f"{path} may be written by others")


def storage_at(place: str | Path | None) -> Storage | None:
    """Return the storage that a user names.

    Parameters
    ----------
    place : str, Path or None
        ``"user"``, a directory, or None for no store.

    Raises
    ------
    UsageError
        For anything else.

    Examples
    --------
    >>> storage_at("user").directory.name
    'artifacts'
    """
    if place is None:
        return None
    if not isinstance(place, str | Path) or not str(place):
        raise UsageError(f"store must be 'user', a directory or None, found {place!r}")
    return Storage(user_directory() if place == "user" else Path(place).expanduser().absolute())

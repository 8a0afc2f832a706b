"""Builds the interposer with the system's compiler into a private cache of the user.

Knows compilers and folders only; nothing of what the interposer does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from alloccheck.oracle.errors import OracleUnavailable
from alloccheck.storage import user_cache

SOURCE = Path(__file__).with_name("interposer.c")

_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin",
    "-fno-omit-frame-pointer",
    "-U_FORTIFY_SOURCE",
    "-w",
)


def interposer() -> Path:
    """Return the interposer's shared library, building it unless it is cached.

    The cache is ``$ALLOCCHECK_CACHE_DIR``, else ``$XDG_CACHE_HOME/alloccheck``, else
    ``~/.cache/alloccheck``. A library is keyed by its source, the flags, the processor's kind and
    the C library's version, and appears there by an atomic rename once it has been loaded on trial.
    Which compiler made it plays no part: where it is cached, none is needed.

    Raises
    ------
    OracleUnavailable
        When the platform is not Linux with glibc, when it must be built and no C compiler is found
        or it fails, or when the cache folder could be written by somebody else.
    """
    libc = _require_glibc()
    key = hashlib.sha256()
    for part in (SOURCE.read_bytes(), " ".join(_FLAGS).encode()):
        key.update(len(part).to_bytes(8, "little"))
        key.update(part)
    key.update(f"{libc} {platform.machine()}".encode())
    folder = private_folder(cache_root() / "interposer")
    library = folder / f"interposer-{key.hexdigest()[:32]}.so"
    if any(character in str(library) for character in " :"):
        raise OracleUnavailable(
            f"LD_PRELOAD cannot name {library}: its path holds a space or a colon. "
            "Set ALLOCCHECK_CACHE_DIR to a folder without them."
        )
    if not _is_ours(library):
        _compile(find_compiler(), library)
    return library


def find_compiler() -> tuple[str, ...]:
    """Return the C compiler's command: ``$CC``, else ``cc``, ``gcc`` or ``clang`` on the path.

    Raises
    ------
    OracleUnavailable
        When there is none.
    """
    chosen = os.environ.get("CC")
    candidates = [shlex.split(chosen)] if chosen else [["cc"], ["gcc"], ["clang"]]
    for command in candidates:
        found = shutil.which(command[0]) if command else None
        if found is not None:
            return (found, *command[1:])
    wanted = f"CC={chosen!r}" if chosen else "cc, gcc or clang on PATH"
    raise OracleUnavailable(
        f"The oracle needs a C compiler once, to build its interposer; expected {wanted}, "
        "found none. Install one (Debian: apt install gcc libc6-dev) or set CC."
    )


def cache_root() -> Path:
    """Return the folder under which this package keeps what it builds."""
    chosen = os.environ.get("ALLOCCHECK_CACHE_DIR")
    return Path(chosen).absolute() if chosen else user_cache()


def private_folder(folder: Path) -> Path:
    """Create a folder of mode 0700, or check that an existing one is ours alone.

    A library from it will be loaded into a process of the user: a folder in which somebody else
    can write, or a link that somebody else can turn, must not be trusted.

    Raises
    ------
    OracleUnavailable
        When the folder, or the cache's root above it, belongs to somebody else, is a symbolic
        link, or is writable by others.
    """
    for each in (folder.parent, folder):
        try:
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = each.lstat()
        except OSError as error:
            raise OracleUnavailable(
                f"Cannot make the cache folder {each}: {error}. "
                "Set ALLOCCHECK_CACHE_DIR to a folder of yours."
            ) from error
        if not stat.S_ISDIR(found.st_mode):
            problem = "is not a folder"
        elif found.st_uid != os.geteuid():
            problem = f"belongs to user {found.st_uid}, not to {os.geteuid()}"
        elif each is folder and found.st_mode & 0o077:
            problem = f"has mode {stat.S_IMODE(found.st_mode):04o}, expected 0700"
        elif found.st_mode & 0o022:
            problem = f"has mode {stat.S_IMODE(found.st_mode):04o}: others may write"
        else:
            continue
        raise OracleUnavailable(
            f"The cache folder {each} {problem}: code from it cannot be trusted. "
            "Remove it or set ALLOCCHECK_CACHE_DIR to a folder of yours."
        )
    return folder


def _require_glibc() -> str:
    name = None
    if sys.platform == "linux":
        try:
            name = os.confstr("CS_GNU_LIBC_VERSION")
        except (ValueError, OSError):
            name = None
    if not name:
        raise OracleUnavailable(
            f"The oracle measures on Linux with glibc; this is {platform.platform()}. "
            "Static checking works everywhere."
        )
    return name


def _is_ours(library: Path) -> bool:
    try:
        found = library.lstat()
    except FileNotFoundError:
        return False
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & 0o022
        and _is_whole(library)
    )


def _is_whole(library: Path) -> bool:
    """Tell whether a library is as it was built: a damaged one would end each measuring process."""
    content = library.read_bytes()
    return hashlib.sha256(content[:-_DIGEST]).digest() == content[-_DIGEST:]


_DIGEST = hashlib.sha256().digest_size
"""Bytes behind the library's own that tell whether these are all there."""


def _compile(compiler: tuple[str, ...], library: Path) -> None:
    handle, name = tempfile.mkstemp(dir=library.parent, suffix=".tmp")
    os.close(handle)
    made = Path(name)
    try:
        done = subprocess.run(
            [*compiler, *_FLAGS, "-o", str(made), str(SOURCE), "-ldl", "-lpthread"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise OracleUnavailable(
                f"{' '.join(compiler)} cannot build the interposer "
                f"(exit {done.returncode}):\n{done.stderr.strip()}"
            )
        _try_loading(compiler, made)
        with made.open("rb+") as file:
            file.write(hashlib.sha256(file.read()).digest())
        made.chmod(0o700)
        made.replace(library)
    except (OSError, subprocess.SubprocessError) as error:
        raise OracleUnavailable(f"Building the interposer failed: {error}") from error
    finally:
        made.unlink(missing_ok=True)


def _try_loading(compiler: tuple[str, ...], library: Path) -> None:
    """Load a library in a process of its own: one for another machine must not stay.

    Raises
    ------
    OracleUnavailable
        When it cannot be loaded.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _TRIAL],
        # As it will be loaded; the dynamic linker would go on without it.
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise OracleUnavailable(
            f"What {' '.join(compiler)} built cannot be loaded here: is it a compiler for this "
            f"machine? Set CC to one.\n{done.stderr.strip()}"
        )


_TRIAL = "import ctypes; ctypes.CDLL(None).alloccheck_shape"

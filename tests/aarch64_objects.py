"""Shared objects for aarch64, built from `freestanding.c`: ``python tests/aarch64_objects.py``.

Writes them compressed to ``native_sources/aarch64``, so that they are read as well where no cross
compiler is; tests compare the hash of the source that they were made from.
"""

import hashlib
import lzma
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "native_sources"
SOURCE = SOURCES / "freestanding.c"
KEPT = SOURCES / "aarch64"
LEVELS = ("O0", "O2", "O3", "Os")
OPTIONS = ["-w", "-fPIC", "-shared", "-nostdlib", "-s", "-Wl,-z,now,-z,relro,--build-id=none"]
OPTIONS += ["-Wl,-z,max-page-size=4096"]


def commands():
    """Return the cross compilers of this machine, by family."""
    found = {}
    if shutil.which("aarch64-linux-gnu-gcc"):
        # Without what GCC finds out about the registers that a callee leaves alone: the calling
        # convention is what the analysis relies upon.
        found["gcc"] = ["aarch64-linux-gnu-gcc", "-fno-ipa-ra"]
    for number in (*range(30, 13, -1), ""):
        suffix = f"-{number}" if number else ""
        if shutil.which(f"clang{suffix}") and shutil.which(f"ld.lld{suffix}"):
            options = ["--target=aarch64-linux-gnu", f"-fuse-ld=lld{suffix}"]
            found["clang"] = [f"clang{suffix}", *options]
            break
    return found


def build(command, level, output):
    """Build one object."""
    command = [*command, f"-{level}", *OPTIONS, str(SOURCE), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return output


def digest():
    """Return the hash of the source."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def main():
    """Build all and keep them."""
    KEPT.mkdir(exist_ok=True)
    found = commands()
    if set(found) != {"gcc", "clang"}:
        sys.exit("wants both compilers, GCC for aarch64 and Clang with its linker")
    with tempfile.TemporaryDirectory() as place:
        for family, command in found.items():
            for level in LEVELS:
                file = build(command, level, Path(place) / "one.so")
                (KEPT / f"{family}-{level}.so.xz").write_bytes(lzma.compress(file.read_bytes()))
    (KEPT / "source.sha256").write_text(digest() + "\n")


if __name__ == "__main__":
    main()

"""The ground-truth sources, and every way in which they are built.

Knows compilers and their options; nothing of what is asked about the libraries.
"""

import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from alloccheck.effects import Effect, Occasion
from alloccheck.effects import Path as Way

SOURCES = Path(__file__).parent / "native_sources"
LEVELS = ("O0", "O2", "O3", "Os")
SWITCHES = ("cet", "plt", "lto")
EVERY_BUILD = "ALLOCCHECK_EVERY_BUILD"
"""Set in the environment, it asks for all combinations and every version of a compiler."""


@dataclass(frozen=True)
class Build:
    """One set of options. A test reads `str(build)` as its name."""

    level: str
    cet: bool
    plt: bool
    lto: bool

    def __str__(self):
        return "-".join([self.level, *(name for name in SWITCHES if getattr(self, name))])


ALL_BUILDS = [Build(level, *bits) for level in LEVELS for bits in product((False, True), repeat=3)]
PAIRWISE = [
    Build(level, bit, bit != bool(number & 1), bit != bool(number & 2))
    for number, level in enumerate(LEVELS)
    for bit in (False, True)
]
"""Every pair of settings occurs in one of these."""
BUILDS = ALL_BUILDS if os.environ.get(EVERY_BUILD) else PAIRWISE


@dataclass(frozen=True)
class Compiler:
    """A compiler for one language: what to call, and how."""

    language: str
    family: str
    command: tuple[str, ...]
    source: str

    def __str__(self):
        return f"{self.source}-as-{self.language}-by-{Path(self.command[0]).name}"

    def options(self, build):
        """Return the options of a build."""
        if self.family == "rust":
            level = build.level[1:]
            found = ["-C", f"opt-level={level}", "-C", "debug-assertions=off"]
            found += ["-Z", f"cf-protection={'full' if build.cet else 'none'}"]
            found += ["-Z", f"plt={'yes' if build.plt else 'no'}"]
            return [*found, *(["-C", "lto=thin"] if build.lto else [])]
        found = [f"-{build.level}", f"-fcf-protection={'full' if build.cet else 'none'}"]
        found.append("-fplt" if build.plt else "-fno-plt")
        if build.lto:
            found.append("-flto")
            if self.family == "clang":
                found.append(f"-fuse-ld={linker(self.command[0])}")
        return found

    def build(self, build, output):
        """Build the shared library."""
        source = str(SOURCES / self.source)
        environment = dict(os.environ)
        if self.family == "rust":
            # Options that the stable compiler has, too, but does not offer.
            environment["RUSTC_BOOTSTRAP"] = "1"
            options = ["--crate-type", "cdylib", "-A", "warnings", "-C", "link-arg=-Wl,-z,now"]
        else:
            language = {"c": ["-x", "c"], "c++": ["-x", "c++"]}[self.language]
            options = [*language, "-w", "-fPIC", "-shared", "-Wl,-z,now"]
        after = [] if self.family == "rust" else ["-lm"]
        command = [*self.command, *options, *self.options(build), source, "-o", str(output), *after]
        subprocess.run(command, check=True, env=environment, capture_output=True)


@cache
def linker(clang):
    """Return the name of the linker that belongs to a Clang, for link-time optimisation."""
    found = subprocess.run([clang, "-print-prog-name=ld.lld"], capture_output=True, text=True)
    name = Path(found.stdout.strip())
    return "lld" if name.is_absolute() or shutil.which("ld.lld") else ""


def _clangs(name):
    """Return the Clangs of this machine, newest first."""
    versions = [f"{name}-{number}" for number in range(30, 10, -1)]
    found = [path for one in [*versions, name] if (path := shutil.which(one))]
    by_file = {str(Path(path).resolve()): path for path in reversed(found)}
    return list(reversed(by_file.values()))


def compilers():
    """Return what is installed here, one of each kind (all Clangs when every build is wanted)."""
    found = []
    for language, source, gnu, llvm in (
        ("c", "truth.c", "gcc", "clang"),
        ("c++", "truth.c", "g++", "clang++"),
        ("c++", "truth.cpp", "g++", "clang++"),
    ):
        if shutil.which(gnu):
            found.append(Compiler(language, "gcc", (gnu,), source))
        clangs = _clangs(llvm)
        chosen = clangs if os.environ.get(EVERY_BUILD) else clangs[:1]
        found += [Compiler(language, "clang", (path,), source) for path in chosen]
    if shutil.which("rustc"):
        found.append(Compiler("rust", "rust", ("rustc",), "truth.rs"))
    return found


EXPECTED = {
    ".rs": re.compile(r"EXPECT\(([^)]*)\)\n[^\n]*?fn (\w+)"),
    ".c": re.compile(r"^EXPECT\(([^)]*)\)[^(]*?(\w+)\(", re.M),
    ".cpp": re.compile(r"^EXPECT\(([^)]*)\)[^(]*?(\w+)\(", re.M),
}


def expectations(source):
    """Return the effects of each function of a source, as its EXPECT lines say."""
    found = EXPECTED[Path(source).suffix].findall((SOURCES / source).read_text())
    assert len(found) > 5
    return {name: {part.strip() for part in effects.split(",")} for effects, name in found}


def seen(answer):
    """Effects outside process death, with the occasion when that is not every call."""
    return {
        ("raise:" if w.path is Way.RAISE and w.effect is not Effect.RAISE else "")
        + w.effect.value
        + ("" if w.occasion is Occasion.EVERY_CALL else f"/{w.occasion.value}")
        for w in answer.witnesses
        if w.path is not Way.DIVERGE
    }


def differences(expected, found):
    """Expected effects that were not found, and, unless `more` may be, what else was found.

    What more happens when the call ends by raising is left open.
    """
    wanted = expected - {"clean", "more"}
    missing = {e for e in wanted if not any(f == e or f.startswith(f"{e}/") for f in found)}
    extra = {f.partition("/")[0] for f in found} - {e.partition("/")[0] for e in wanted}
    extra = {e for e in extra if not e.startswith("raise:") or "raise" not in expected}
    return missing, extra if "more" not in expected else set()


def address(library, name):
    """Return the address of a function."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def both(name):
    """Return a function that C and C++ share."""
    return {"c": name, "c++": name}


CONSTRUCTS = {
    "direct allocation": dict.fromkeys(("c", "c++", "rust"), "direct"),
    "indirect allocation": dict.fromkeys(("c", "c++", "rust"), "indirect"),
    "tail call": dict.fromkeys(("c", "c++", "rust"), "tail"),
    "dense switch": {**both("dense_allocating"), "rust": "matched_allocating"},
    "sparse switch": dict.fromkeys(("c", "c++", "rust"), "sparse_allocating"),
    "function-pointer argument": dict.fromkeys(("c", "c++", "rust"), "argument"),
    "vtable": {"c": "virtual_call", "c++": "area", "rust": "virtual_call"},
    "read-only table": dict.fromkeys(("c", "c++", "rust"), "greedy_constant_table"),
    "writable table": dict.fromkeys(("c", "c++", "rust"), "writable_table"),
    "TLS, general dynamic": {**both("general_dynamic"), "rust": "thread_local"},
    "TLS, local dynamic": both("local_dynamic"),
    "TLS, initial exec": both("initial_exec"),
    "longjmp": dict.fromkeys(("c", "c++", "rust"), "jump_away"),
    "exception": {"c++": "thrower", "rust": "panics"},
    "exception that is caught": {"c++": "caught", "rust": "caught"},
    "IFUNC": both("through_greedy_ifunc"),
    "weak symbol": both("weak_present"),
    "inline assembly with syscall": dict.fromkeys(("c", "c++", "rust"), "map"),
    "callback": dict.fromkeys(("c", "c++", "rust"), "greedy_sort"),
    "variadic call": {**both("greedy_variadic"), "rust": "variadic"},
}  # fmt: skip
"""By construct and language, the function that has it and an effect.

Left out is what a language does not have: exceptions in C; a choice of the TLS model, IFUNC and
weak symbols in stable Rust. The local-exec model exists in programs only: see `truth_program`.
"""

"""The ground truth in C, C++ and Rust, by each compiler of this machine and at each setting."""

import ctypes
import shutil
from itertools import combinations

import pytest

from alloccheck.analysis.native import Decider
from truth_builds import (
    BUILDS,
    CONSTRUCTS,
    LEVELS,
    PAIRWISE,
    SWITCHES,
    address,
    compilers,
    differences,
    expectations,
    linker,
    seen,
)

COMPILERS = compilers()
PLANNED = [(compiler, build) for compiler in COMPILERS for build in BUILDS]


def feasible(compiler, build):
    """Clang optimises while linking only with its own linker."""
    return not (build.lto and compiler.family == "clang" and not linker(compiler.command[0]))


class Chunks:
    """What was read of a library, for the next test: all call the same C library."""

    def __init__(self):
        self.kept = {}

    def get(self, image, key):
        return self.kept.get((image.path, image.base, key))

    def put(self, image, key, chunk):
        if "libc.so" in image.path or "libm.so" in image.path or "libstdc++" in image.path:
            self.kept[image.path, image.base, key] = chunk


CHUNKS = Chunks()


@pytest.mark.parametrize(("compiler", "build"), PLANNED, ids=str)
def test_effects_are_as_known_by_construction(compiler, build, tmp_path):
    if not feasible(compiler, build):
        pytest.skip(f"{compiler.command[0]} has no linker for link-time optimisation here")
    file = tmp_path / "truth.so"
    compiler.build(build, file)
    library, decider = ctypes.CDLL(str(file)), Decider(store=CHUNKS)
    wrong = {}
    # Without optimisation Rust's checks and copies through memory leave much undecided.
    loose = compiler.language == "rust" and build.level == "O0"
    for name, expected in expectations(compiler.source).items():
        found = seen(decider.decide(address(library, name)))
        missing, extra = differences(expected, found)
        if loose:
            # Undecided is no miss; nor is what was not told apart.
            known = found | {f"raise:{effect}" for effect in found}
            missing, extra = differences(expected, known)[0], set()
            missing = set() if found & {"dispatch", "unknown"} else missing
        if missing or extra:
            wrong[name] = (expected, found)
    assert not wrong


TOOLS = {
    ("c", "gcc"): ("gcc",),
    ("c", "clang"): ("clang", *(f"clang-{n}" for n in range(11, 31))),
    ("c++", "gcc"): ("g++",),
    ("c++", "clang"): ("clang++", *(f"clang++-{n}" for n in range(11, 31))),
    ("rust", "rust"): ("rustc",),
}
SOURCES_OF = {"c": {"truth.c"}, "c++": {"truth.c", "truth.cpp"}, "rust": {"truth.rs"}}


@pytest.mark.parametrize(("language", "family"), TOOLS, ids="-".join)
def test_the_compilers_that_are_installed_are_run(language, family):
    """The matrix shrinks only where a compiler is missing, and that is reported."""
    sources = {c.source for c in COMPILERS if (c.language, c.family) == (language, family)}
    if not any(map(shutil.which, TOOLS[language, family])):
        assert not sources and family != "gcc"
        pytest.skip(f"{family} for {language} is not installed: its code is not checked here")
    assert sources == SOURCES_OF[language]
    assert len(PLANNED) == len(COMPILERS) * len(BUILDS) and set(PAIRWISE) <= set(BUILDS)


def test_every_pair_of_settings_occurs_in_a_build():
    values = {"level": LEVELS, **dict.fromkeys(SWITCHES, (False, True))}
    for (first, ones), (second, others) in combinations(values.items(), 2):
        pairs = {(getattr(build, first), getattr(build, second)) for build in PAIRWISE}
        assert pairs == {(a, b) for a in ones for b in others}, (first, second)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_each_construct_has_a_function_with_an_effect_in_each_language(construct):
    sources = {"c": ("truth.c",), "c++": ("truth.c", "truth.cpp"), "rust": ("truth.rs",)}
    for language, name in CONSTRUCTS[construct].items():
        known = {k: v for source in sources[language] for k, v in expectations(source).items()}
        assert name in known, (language, name)
        # A thread-local variable of the initial-exec model is always there.
        assert known[name] != {"clean"} or name == "initial_exec"


def test_constructs_that_a_language_lacks_are_the_known_ones():
    lacking = {
        (construct, language)
        for construct, functions in CONSTRUCTS.items()
        for language in ("c", "c++", "rust")
        if language not in functions
    }
    assert lacking == {
        ("exception", "c"),
        ("exception that is caught", "c"),
        ("TLS, local dynamic", "rust"),
        ("TLS, initial exec", "rust"),
        ("IFUNC", "rust"),
        ("weak symbol", "rust"),
    }

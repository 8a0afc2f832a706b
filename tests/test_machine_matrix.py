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


def test_every_installed_compiler_runs_at_every_level_with_and_without_each_option():
    by_language = {"c": ("gcc", "clang"), "c++": ("g++", "clang++"), "rust": ("rustc",)}
    for language, tools in by_language.items():
        for tool in tools:
            if shutil.which(tool):
                family = {"g++": "gcc", "clang++": "clang", "rustc": "rust"}.get(tool, tool)
                kinds = {(c.language, c.family) for c in COMPILERS}
                assert (language, family) in kinds, tool
    assert any(compiler.family == "gcc" for compiler in COMPILERS)
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

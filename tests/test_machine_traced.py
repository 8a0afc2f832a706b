"""Every instruction executed under ptrace is among those that the reader found, or was told of.

Unlike the trap flag (`test_machine_steps.py`) this follows system calls, the allocator, exceptions
and the dynamic linker. Where the walk says that it cannot follow a pointer, more may run.
"""

import ctypes
import os
import platform
import subprocess
from dataclasses import dataclass

import pytest

from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect
from alloccheck.program.machine.handlers import landing_pads
from alloccheck.program.machine.walk import Walker
from truth_builds import SOURCES, address

LIMIT = 150_000
TEXT = ctypes.create_string_buffer(b"12345.25 some words in a row", 256)
OTHER = ctypes.create_string_buffer(256)
PLACE = ctypes.addressof(OTHER)
NAME = ctypes.addressof(TEXT)
PATH = ctypes.create_string_buffer(b"/nowhere/at/all")
NOWHERE = ctypes.addressof(PATH)
LIBC = {
    "getpid": (), "getppid": (), "getuid": (), "geteuid": (), "getgid": (), "getegid": (),
    "malloc": (24,), "calloc": (3, 8), "free": (0,), "realloc": (0, 40), "aligned_alloc": (64, 128),
    "posix_memalign": (PLACE, 64, 100), "memalign": (32, 50), "strdup": (NAME,), "valloc": (10,),
    "strlen": (NAME,), "strcmp": (NAME, PLACE), "strncmp": (NAME, PLACE, 4), "strchr": (NAME, 115),
    "strrchr": (NAME, 115), "strstr": (NAME, NAME + 9), "memcpy": (PLACE, NAME, 20),
    "memmove": (PLACE, NAME, 40), "memset": (PLACE, 7, 100), "memchr": (NAME, 46, 20),
    "memcmp": (NAME, NAME, 20), "strcpy": (PLACE, NAME), "strncpy": (PLACE, NAME, 50),
    "strcat": (PLACE, NAME), "strspn": (NAME, NAME), "strcspn": (NAME, PLACE), "strnlen": (NAME, 9),
    "strtol": (NAME, 0, 10), "strtoul": (NAME, 0, 16), "strtod": (NAME, 0), "atoi": (NAME,),
    "atol": (NAME,), "abs": (-4,), "labs": (-7,), "toupper": (97,), "tolower": (65,),
    "rand": (), "srand": (4,), "random": (), "drand48": (), "lrand48": (), "getenv": (NAME,),
    "sched_yield": (), "close": (-1,), "lseek": (-1, 0, 0), "dup": (-1,), "access": (NOWHERE, 0),
    "umask": (0o22,), "isatty": (-1,), "getpagesize": (), "sbrk": (0,), "brk": (0,),
    "mmap": (0, 4096, 3, 34, -1, 0), "munmap": (0, 0), "mprotect": (0, 0, 0), "madvise": (0, 0, 0),
    "kill": (0, 0), "getpgid": (0,), "getsid": (0,), "gettid": (), "sysconf": (30,), "ffs": (64,),
    "pthread_self": (), "pthread_spin_unlock": (PLACE + 200,), "div": (17, 5), "a64l": (NAME,),
    "index": (NAME, 46), "bcmp": (NAME, NAME, 8), "swab": (NAME, PLACE, 20),
    "stpcpy": (PLACE, NAME),
}  # fmt: skip
TRUTH = {
    "own_pid": (), "map": (), "direct": (8,), "indirect": (8,), "tail": (9,), "zeroed": (5,),
    "recursion": (6,), "greedy_recursion": (4,), "dense_allocating": (5,), "cold_case": (3,),
    "selected_greedy": (0,), "greedy_constant_table": (2,), "through_ifunc": (),
    "through_greedy_ifunc": (), "weak_present": (), "variadic": (), "greedy_variadic": (),
    "general_dynamic": (), "local_dynamic": (), "initial_exec": (), "set_errno": (), "lands": (),
    "write_out": (),
}  # fmt: skip


@dataclass
class Run:
    steps: int
    end: int
    executed: set


@pytest.fixture(scope="module")
def tracer(tmp_path_factory):
    assert platform.machine() == "x86_64"
    directory = tmp_path_factory.mktemp("traced")
    for source, compiler in (("tracer.c", "gcc"), ("truth.c", "gcc"), ("truth.cpp", "g++")):
        command = [compiler, "-O2", "-w", "-fPIC", "-shared", "-Wl,-z,now", str(SOURCES / source)]
        subprocess.run([*command, "-o", str(directory / f"{source}.so"), "-lm"], check=True)
    loaded = ctypes.CDLL(str(directory / "tracer.c.so"))
    loaded.trace.restype = ctypes.c_long
    loaded.truth = ctypes.CDLL(str(directory / "truth.c.so"))
    loaded.throwing = ctypes.CDLL(str(directory / "truth.cpp.so"))
    entry = address(loaded.truth, "arithmetic")
    if trace(loaded, entry).steps < 0:
        pytest.skip("ptrace is not allowed here")
    return loaded


def trace(tracer, entry, arguments=(), numbers=(2.5, 1.25)):
    out = (ctypes.c_uint64 * (1 << 17))()
    count, end = ctypes.c_long(), ctypes.c_long()
    steps = tracer.trace(
        ctypes.c_void_p(entry),
        (ctypes.c_long * 6)(*arguments),
        (ctypes.c_double * 2)(*numbers),
        ctypes.c_long(LIMIT),
        out,
        ctypes.byref(count),
        ctypes.byref(end),
    )
    return Run(steps, end.value, set(out[: count.value]))


def static_addresses(walker, entry):
    found = set()
    for node in walker.explore(entry).nodes.values():
        if node.chunk is not None:
            base = node.image.base if node.image is not None else 0
            found |= {base + relative for relative in node.chunk.addresses}
    return found


def compare(tracer, library, functions):
    """Return the functions that ran within the static set, and those that left it, with where."""
    walker = Walker(keep_addresses=True)
    decider = Decider(names=False, walker=walker)
    inside, outside, steps = [], {}, 0
    for name, arguments in functions.items():
        entry = address(library, name)
        run = trace(tracer, entry, arguments)
        assert run.steps > 0 and run.end == 0, (name, run.steps, run.end)
        steps += run.steps
        extra = run.executed - static_addresses(walker, entry)
        if extra:
            open_end = decider.decide(entry).effects & {Effect.DISPATCH, Effect.UNKNOWN}
            outside[name] = (open_end, sorted({walker.name(a) for a in extra})[:6])
        else:
            inside.append(name)
    return inside, outside, steps


def test_what_the_c_library_executes_is_in_the_static_set(tracer):
    inside, outside, steps = compare(tracer, ctypes.CDLL(None), LIBC)
    assert {name: found for name, found in outside.items() if not found[0]} == {}
    assert len(inside) >= 60, (len(inside), outside)
    assert steps > 2000


def test_what_functions_of_known_effects_execute_is_in_the_static_set(tracer):
    inside, outside, _ = compare(tracer, tracer.truth, TRUTH)
    assert {name: found for name, found in outside.items() if not found[0]} == {}
    assert len(inside) >= 20, outside


def handlers(walker, entry):
    """Where control may continue in the functions that are reached, when something throws."""
    for node in walker.explore(entry).nodes.values():
        if node.chunk is not None and node.image is walker.images.find(entry):
            for part in node.chunk.parts:
                yield from landing_pads(node.image, node.image.base + part)


@pytest.mark.parametrize("name", ["caught", "never_thrown"])
def test_what_runs_when_an_exception_is_caught_is_read_from_its_handler_on(tracer, name):
    walker = Walker(keep_addresses=True)
    entry = address(tracer.throwing, name)
    image = walker.images.find(entry)
    run = trace(tracer, entry, (9,))
    assert run.end == 0
    here = {a for a in run.executed if image.holds(a)}
    direct = static_addresses(walker, entry)
    # The way of the unwinder itself is not static.
    pads = set().union(*(static_addresses(walker, pad) for pad in handlers(walker, entry)))
    assert here <= direct | pads
    assert bool(here - direct) is (name != "never_thrown")
    assert (Effect.RAISE in Decider(walker=walker).decide(entry).effects) is (
        name != "never_thrown"
    )


def test_the_dynamic_linker_runs_at_the_first_call_and_that_is_told(tracer, tmp_path):
    output = tmp_path / "lazy.so"
    command = ["gcc", "-O2", "-w", "-fPIC", "-fplt", "-shared", "-Wl,-z,lazy"]
    command += [str(SOURCES / "truth.c"), "-o", str(output), "-lm"]
    subprocess.run(command, check=True)
    opener = ctypes.CDLL(None).dlopen
    opener.restype, opener.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    library = ctypes.CDLL(str(output), handle=opener(str(output).encode(), os.RTLD_LAZY))
    entry = address(library, "through_ifunc")
    run = trace(tracer, entry)
    walker = Walker(keep_addresses=True)
    extra = run.executed - static_addresses(walker, entry)
    assert any(walker.images.find(a).short.startswith("ld-linux") for a in extra)
    answer = Decider(walker=walker).decide(entry)
    assert Effect.ALLOCATE in answer.effects
    assert not answer.effects_after(first_call=True)
    own = {walker.name(a).partition("+")[0] for a in extra if walker.images.find(a).holds(entry)}
    # The linkage stubs, and the resolver, which the linker calls: the symbol `resolved` is it.
    assert {name for name in own if not name.startswith("sub_")} <= {"choose", "resolved"}, own

"""Every instruction that really runs is among those that the reader found."""

import ctypes
import math
import platform
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from alloccheck.program.machine.walk import Walker

SOURCES = Path(__file__).parent / "native_sources"
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 2.2e-308, 1e300, -1e300, 1.7976931348623157e308]
SPECIAL += [math.inf, -math.inf, math.nan, 2.0, 3.0, -2.5, 171.7, -170.5, 709.8, -745.2, 1e22, 1e5]
UNARY = """acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor
j0 j1 lgamma log log10 log1p log2 logb nearbyint rint round roundeven sin sinh sqrt tan tanh
tgamma trunc y0 y1 significand exp10""".split()
BINARY = "atan2 copysign drem fdim fmax fmin fmod hypot nextafter pow remainder scalb".split()
SINGLE = "cosf expf logf powf sinf tanf atan2f cbrtf erff fmodf hypotf log1pf".split()
TRUTH = """dense last_case_allocating sparse_allocating cold_case constant_table
selected through_ifunc variadic set_errno dense_allocating greedy_constant_table""".split()


@pytest.fixture(scope="module")
def stepper(tmp_path_factory):
    assert platform.machine() == "x86_64"
    directory = tmp_path_factory.mktemp("steps")
    for name, flags in (("stepper", ["-mno-red-zone"]), ("truth", [])):
        command = ["gcc", "-O2", "-w", "-fPIC", "-shared", *flags, "-Wl,-z,now"]
        command += [str(SOURCES / f"{name}.c"), "-o", str(directory / f"{name}.so"), "-lm"]
        subprocess.run(command, check=True)
    library = ctypes.CDLL(str(directory / "stepper.so"))
    library.truth = ctypes.CDLL(str(directory / "truth.so"))
    return library


def static_addresses(walker, entry, libraries):
    """Addresses of all instructions that the reader reaches within some libraries."""

    def stop(address, image):
        return image is None or image.short not in libraries

    found = set()
    for node in walker.explore(entry, stop=stop).nodes.values():
        if node.chunk is not None:
            found |= {node.image.base + relative for relative in node.chunk.addresses}
    return found


def run(stepper, step, address, first, second):
    # Once without looking, so that lazy binding is over.
    n = len(first)
    a, b = first.ctypes.data_as(ctypes.c_void_p), second.ctypes.data_as(ctypes.c_void_p)
    step.restype = ctypes.c_long
    count = step(ctypes.c_void_p(address), a, b, n)
    out = (ctypes.c_uint64 * (1 << 17))()
    stepper.executed.restype = ctypes.c_long
    return count, set(out[: stepper.executed(out)])


def test_executed_instructions_of_libm_are_in_the_static_set(stepper):
    libm = ctypes.CDLL("libm.so.6")
    random.seed(7)
    values = SPECIAL + [random.uniform(-1, 1) * 10.0 ** random.randint(-9, 9) for _ in range(12)]
    x, y = np.array(values), np.array(random.sample(values, len(values)))
    walker = Walker(keep_addresses=True)
    inside, steps, functions, missing = 0, 0, 0, {}
    for name in UNARY + BINARY + SINGLE:
        address = ctypes.cast(getattr(libm, name), ctypes.c_void_p).value
        image = walker.images.find(address)
        count, executed = run(stepper, stepper.step_doubles, address, x, y)
        here = {a for a in executed if image.holds(a)}
        known = static_addresses(walker, address, {"libm.so.6"})
        if here - known:
            missing[name] = sorted(hex(a - image.base) for a in here - known)[:5]
        inside, steps, functions = inside + len(here), steps + count, functions + 1
    assert not missing
    assert functions >= 60
    assert inside > 3000
    assert steps > 20_000


def test_executed_instructions_of_switches_and_tables_are_in_the_static_set(stepper):
    k = np.arange(-3, 40, dtype=np.int64)
    y = np.linspace(0, 5, len(k))
    walker = Walker(keep_addresses=True)
    covered = 0
    for name in TRUTH:
        address = ctypes.cast(getattr(stepper.truth, name), ctypes.c_void_p).value
        image = walker.images.find(address)
        _, executed = run(stepper, stepper.step_mixed, address, k, y)
        here = {a for a in executed if image.holds(a)}
        known = static_addresses(walker, address, {"truth.so"})
        assert here and not here - known, (name, [hex(a - image.base) for a in here - known])
        covered += len(here)
    assert covered > 150

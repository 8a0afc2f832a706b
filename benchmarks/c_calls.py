"""What a call by address costs, checked against plain Numba and C, interleaved in this process.

``python -m benchmarks.c_calls [ROUNDS]``

Rows: a loop in C over a callback, against ``numba.cfunc``; ``integrate.quad`` and
``ndimage.generic_filter`` from end to end, against ``numba.cfunc``; jitted code that calls a
checked function, against jitted code that calls a plain C function through a pointer; checked code
that calls checked code, against the same of ``njit``. Each ratio is the median over rounds of two
measurements that follow each other.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, cfunc, njit
from scipy import LowLevelCallable, integrate, ndimage

from alloccheck import check_allocs, nonblocking
from benchmarks.process import report_result

C_SOURCE = """
typedef double (*callback_t)(double);
double repeat(callback_t f, long n) {
    double x = 0.5;
    for (long i = 0; i < n; i++)
        x = f(x);
    return x;
}
double plain(double x) { return 1.0 / (1.0 + x * x); }
int plain_status(double *result, double x) {
    if (x > 1e300)
        return 1;
    *result = 1.0 / (1.0 + x * x);
    return 0;
}
"""

CALLS = 200_000


def curve(x):
    return 1.0 / (1.0 + x * x)


def checked_curve(x):
    if x > 1e300:
        raise ValueError("too large")
    return 1.0 / (1.0 + x * x)


def mean(values, count, result, data):
    window = carray(values, (count,))
    total = 0.0
    for one in window:
        total += one
    result[0] = total / count
    return 1


MEAN = "int32(CPointer(float64), intp, CPointer(float64), voidptr)"


def compile_c() -> Any:
    """Return the library of `C_SOURCE`, made with the system's compiler."""
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "calls.c", folder / "calls.so"
    source.write_text(C_SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


def ways(library: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return for each row what is compared with, and what is measured."""
    library.repeat.restype = library.plain.restype = ctypes.c_double
    library.repeat.argtypes = (ctypes.c_void_p, ctypes.c_long)
    library.plain.argtypes = (ctypes.c_double,)
    stock = cfunc("float64(float64)", error_model="numpy")(curve)
    clean = nonblocking("float64(float64)", error_model="numpy", entry="c")(curve)
    raising_stock = cfunc("float64(float64)", error_model="numpy")(checked_curve)
    raising = nonblocking("float64(float64)", error_model="numpy", entry="c")(checked_curve)
    stock_mean, clean_mean = cfunc(MEAN)(mean), nonblocking(MEAN, entry="c")(mean)
    image = np.random.default_rng(0).normal(size=(200, 200))
    called = check_allocs("float64(float64)", error_model="numpy")(curve)
    may_raise = check_allocs("float64(float64)", error_model="numpy")(checked_curve)
    pointer, status_pointer = library.plain, library.plain_status
    status_pointer.argtypes = (ctypes.c_void_p, ctypes.c_double)
    helper = njit(error_model="numpy")(curve)

    def over_helper(function: Any) -> Any:
        def loop(n):
            x = 0.5
            for _ in range(n):
                x = function(x)
            return x

        return loop

    inlined = njit(error_model="numpy")(over_helper(helper))
    checked_inlined = check_allocs("float64(int64)", error_model="numpy")(over_helper(called))

    @njit
    def through_status(n):
        place = np.zeros(1)
        x = 0.5
        for _ in range(n):
            if status_pointer(place.ctypes, x):
                raise ValueError
            x = place[0]
        return x

    @njit
    def to_raising(n):
        x = 0.5
        for _ in range(n):
            x = may_raise(x)
        return x

    @njit
    def through_pointer(n):
        x = 0.5
        for _ in range(n):
            x = pointer(x)
        return x

    @njit
    def to_checked(n):
        x = 0.5
        for _ in range(n):
            x = called(x)
        return x

    def quad(callback: Any) -> Callable[[], Any]:
        function = LowLevelCallable(callback)
        return lambda: integrate.quad(function, 0.0, 50.0)

    def filtered(callback: Any) -> Callable[[], Any]:
        function = LowLevelCallable(callback)
        return lambda: ndimage.generic_filter(image, function, size=3)

    return {
        "C call": (
            lambda: library.repeat(stock.address, CALLS),
            lambda: library.repeat(clean.address, CALLS),
        ),
        "C call, may raise": (
            lambda: library.repeat(raising_stock.address, CALLS),
            lambda: library.repeat(raising.address, CALLS),
        ),
        "integrate.quad": (quad(stock.ctypes), quad(clean.ctypes)),
        "ndimage.generic_filter": (filtered(stock_mean.ctypes), filtered(clean_mean.ctypes)),
        "jitted call": (lambda: through_pointer(CALLS), lambda: to_checked(CALLS)),
        "jitted call, may raise": (lambda: through_status(CALLS), lambda: to_raising(CALLS)),
        "checked in checked": (lambda: inlined(CALLS), lambda: checked_inlined(CALLS)),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of both sides and the median ratio of each row."""
    found = {}
    for name, (base, measured) in ways(compile_c()).items():
        repeats = max(1, int(0.01 / max(_seconds(base, 1), 1e-9)))
        pairs = []
        for number in range(rounds):
            order = (base, measured) if number % 2 else (measured, base)
            times = {one: _seconds(one, repeats) for one in order}
            pairs.append((times[base], times[measured]))
        found[name] = {
            "compared with": statistics.median(a for a, _ in pairs),
            "checked": statistics.median(b for _, b in pairs),
            "ratio": statistics.median(b / a for a, b in pairs),
        }
    return found


def _seconds(function: Callable[[], Any], repeats: int) -> float:
    function()
    started = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - started) / repeats


def main(rounds: int = 41) -> None:
    report_result(measure(rounds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Checking ever new functions leaves nothing behind, by the account of both allocators.

The figure over ten thousand checks is `benchmarks/growth.py`'s; this one is exact, and short: once
the kept world is given up, what was in use before the checks is in use after them.
"""

import gc
import subprocess
import sys
import textwrap

import pytest
from numba import types
from numba.core.types import abstract

from alloccheck import analyze
from alloccheck.compile import canonical

PROGRAM = """
    import ctypes, gc, sys
    import numpy as np
    from numba import njit, types
    from alloccheck import analyze
    from alloccheck.compile import canonical

    class Account(ctypes.Structure):
        _fields_ = [(f"field_{k}", ctypes.c_size_t) for k in range(10)]

    account = ctypes.CDLL(None).mallinfo2
    account.restype = Account
    vector = types.float64[::1]

    @njit
    def total(x, k):
        s = 0.0
        for i in range(x.size):
            s += x[i] * k
        return s

    TEXTS = {
        "a helper": ("def f(x):\\n    return total(x, {n}.0) + {n}", (vector,)),
        "an allocation": ("def f(x):\\n    return np.zeros({n} + 1)[0] + x[0]", (vector,)),
        "a tuple and a text": (
            "def f(x):\\n    t = (x[0], {n}, 'a{n}')\\n    return t[0] + t[1] + len(t[2])",
            (vector,),
        ),
        "a raise": (
            "def f(k):\\n    if k == {n}:\\n        raise ValueError('{n}')\\n    return k",
            (types.int64,),
        ),
        "recursion": (
            "@njit\\ndef f(k):\\n    if k < 2:\\n        return {n}\\n    return f(k - 1) + k",
            (types.int64,),
        ),
        "a closure": (
            "def f(k):\\n    def g(a):\\n        return a + {n}\\n    return g(k) + g(k + 1)",
            (types.int64,),
        ),
        "a list": (
            "def f(k):\\n    r = [k, {n}]\\n    r.append(k)\\n    return r[k]", (types.int64,)
        ),
        "no such thing": ("def f(k):\\n    return k.nothing{n}", (types.int64,)),
    }
    def check(kind, first, last):
        text, signature = TEXTS[kind]
        for n in range(first, last):
            names = {"total": total, "np": np, "njit": njit, "__name__": "a program"}
            exec(text.format(n=n), names)
            try:
                analyze(names["f"], signature)
            except Exception as refused:
                assert kind == "no such thing", refused
        names = refused = None

    def in_use():
        canonical.shared.clear()
        gc.collect()
        gc.collect()
        return sys.getallocatedblocks(), account().field_7

    for kind in TEXTS:
        check(kind, 0, CHECKS)
    # Tables that grow by doubling are large enough then.
    for kind in TEXTS:
        blocks, native = in_use()
        check(kind, CHECKS, 2 * CHECKS)
        new_blocks, new_native = in_use()
        each = (new_blocks - blocks) / CHECKS, (new_native - native) / CHECKS
        print(kind, *each, sep=",")
"""
CHECKS = 25


@pytest.mark.skipif(sys.platform != "linux", reason="counts by mallinfo2 of glibc")
def test_a_check_leaves_nothing_behind():
    program = f"CHECKS = {CHECKS}\n" + textwrap.dedent(PROGRAM)
    # Alone in its process: what else a test suite holds and frees is not the question.
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=900
    )
    rows = [line.split(",") for line in ran.stdout.splitlines()]
    assert len(rows) == 8
    # A compiled function has 10,000 blocks and 100 KB. Python's own caches fill by some hundred.
    grown = [row for row in rows if float(row[1]) > 40 or float(row[2]) > 1000]
    assert grown == []


def interned(number):
    """Whether Numba knows a literal type of this number."""
    known = [reference() for reference in list(abstract._typecache)]
    return any(
        isinstance(one, types.IntegerLiteral) and one.literal_value == number for one in known
    )


def test_types_go_with_the_world_that_needed_them():
    number = 987_654_321

    def shifted(k):
        return k + 987_654_321

    kept = types.literal(number)
    assert interned(number)  # or the question below would be a wrong one
    del kept
    assert analyze(shifted, (types.int64,)).ok
    canonical.shared.clear()
    gc.collect()
    assert not interned(number)

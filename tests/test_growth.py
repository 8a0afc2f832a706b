"""Checking ever new functions leaves nothing behind, by the account of both allocators.

The figure over ten thousand checks is `benchmarks/growth.py`'s; this one is exact, and short: once
the kept world is given up, what was in use before the checks is in use after them.
"""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import ctypes, gc, sys
    import numpy as np
    from numba import from_dtype, njit, typed, types
    from numba.experimental import jitclass
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
            "def f(x):\\n    t = (x[0], {n}, 'a{n}')\\n    return t[0] + t[1] + len(t[2])", (vector,)
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
    text, signature = TEXTS[KIND]

    def check(first, last):
        for n in range(first, last):
            names = {"total": total, "np": np, "njit": njit, "__name__": "a program"}
            exec(text.format(n=n), names)
            try:
                analyze(names["f"], signature)
            except Exception as refused:
                assert KIND == "no such thing", refused
        names = refused = None
        canonical.shared.clear()
        gc.collect()
        gc.collect()
        return sys.getallocatedblocks(), account().field_7

    # Tables that grow by doubling, and strings that Python shares, are of their final size then.
    check(0, 40)
    blocks, native = check(40, 50)
    new_blocks, new_native = check(50, 50 + CHECKS)
    print((new_blocks - blocks) / CHECKS, (new_native - native) / CHECKS)
"""
CHECKS = 30


@pytest.mark.skipif(sys.platform != "linux", reason="counts by mallinfo2 of glibc")
@pytest.mark.parametrize(
    "kind",
    [
        "a helper",
        "an allocation",
        "a tuple and a text",
        "a raise",
        "recursion",
        "a closure",
        "a list",
        "no such thing",
    ],
)
def test_a_check_leaves_nothing_behind(kind):
    program = f"KIND = {kind!r}\nCHECKS = {CHECKS}\n" + textwrap.dedent(PROGRAM)
    # Alone in its process: what else a test suite holds and frees is not the question.
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600
    )
    blocks, native = map(float, ran.stdout.split())
    # A compiled function has 10,000 blocks and 100 KB.
    assert blocks < 5
    assert native < 500

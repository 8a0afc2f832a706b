"""Builds the host of ``c_host.c`` with the system's compiler, and calls it with ctypes."""

import ctypes
import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
PORTAUDIO, JACK, UNARY, UNARY_STATUS, ODE = range(5)


class Work(ctypes.Structure):
    """What a thread of the host is to do, and what came of it."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("callback", ctypes.c_void_p),
        ("reader", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("calls", ctypes.c_int64),
        ("total", ctypes.c_double),
        ("events", ctypes.c_int64),
        ("complete", ctypes.c_int64),
        ("first", ctypes.c_int32),
        ("last", ctypes.c_int32),
    )


@cache
def library():
    """Return the host. Its functions keep the interpreter's lock while they run."""
    key = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"alloccheck-c-host-{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "host.so"
            command = ["cc", "-O1", "-shared", "-fPIC", "-o", made, SOURCE, "-lpthread", "-ldl"]
            subprocess.run(command, check=True)
            made.replace(target)
    return ctypes.PyDLL(str(target))


def run(kind, callback, calls, *, reader=0, data=0):
    """Call `callback` from a new C thread while this thread holds the interpreter's lock."""
    work = Work(kind, callback, reader, data, calls)
    error = library().host_run(ctypes.byref(work))
    assert error == 0, error
    return work


def run_many(works):
    """Run several threads of the host at once."""
    array = (Work * len(works))(*works)
    error = library().host_run_many(array, len(works))
    assert error == 0, error
    return array

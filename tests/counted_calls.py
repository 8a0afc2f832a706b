"""Runs in a process with the counting library preloaded: calls every function that the walk calls
clean, and prints what it counted. See `test_clean_functions_never_allocate.py`.
"""

import ctypes
import json
import math
import random
import sys

import numpy as np

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -2.5, 5e-324, -5e-324, 2.2e-308]
SPECIAL += [1e300, -1e300, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 171.7, -170.5]
SPECIAL += [709.8, -745.2, 1e22, 1e5, -1e5, math.pi, -math.pi / 2, 1e-9, -1e-9, 25.0, -40.25]


SINGLE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-45, -1e-45, 1.1e-38, 3.4e38, -3.4e38]
SINGLE += [math.inf, -math.inf, math.nan, 35.1, -34.5, 88.8, -104.0, math.pi, 1e10, 25.0, -40.25]
"""As above, for single precision: subnormal numbers, limits, poles."""


def libm():
    from alloccheck.program.machine.lookup import all_functions

    # Those that change how floating point traps would end the measurement.
    return {n: a for n, a in all_functions("libm.so.6").items() if not n.startswith("fe")}


def helpers():
    from numba import _helperlib

    return {n: a for n, a in _helperlib.c_helpers.items() if isinstance(a, int)}


def cython_special():
    from scipy.special import cython_special as module

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return {n: pointer(c, name(c)) for n, c in module.__pyx_capi__.items()}


def main(counter):
    functions = {"libm": libm, "helpers": helpers, "cython_special": cython_special}
    library = ctypes.CDLL(counter)
    library.run.restype = ctypes.c_long
    values = list(SPECIAL)
    generator = random.Random(5)
    values += [generator.uniform(-1, 1) * 10.0 ** generator.randint(-9, 9) for _ in range(16)]
    # Pairs: poles and branch cuts lie where one part is special and the other is not.
    pairs = [(a, b) for a in SPECIAL[:20] for b in (0.0, -0.0, 1.0, -3.0, math.nan)]
    pairs += list(zip(values, generator.sample(values, len(values)), strict=True))
    # In single precision a register holds one number, or a complex one.
    single = [(a, b) for a in SINGLE for b in (0.0, -0.0, 1.0, -2.5, math.inf, math.nan)]
    packed = np.array(single, np.float32).view(np.float64).ravel().tolist()
    pairs += list(zip(packed, generator.sample(packed, len(packed)), strict=True))
    x, y = (np.array(column) for column in zip(*pairs, strict=True))
    places = [column.ctypes.data_as(ctypes.c_void_p) for column in (x, y)]
    calls = ctypes.c_long()

    def measure(address):
        counted = ended = 0
        # What runs to the end on small integers needs no pointers.
        for way in (2, 0, 1):
            arguments = (ctypes.c_void_p(address), *places, len(x), way)
            counted += max(0, library.run(*arguments, ctypes.byref(calls)))
            ended += calls.value
            if calls.value == len(x):
                break
        return counted, ended

    from alloccheck.analysis.native import Decider

    found = {}
    for group, members in functions.items():
        chosen = members()
        decider = Decider()
        found[group] = {n: measure(a) for n, a in chosen.items() if not decider.decide(a).effects}
    malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    found["control"] = {"malloc": measure(malloc)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

"""Every external symbol that real Numba programs use has a contract.

The programs are compiled with plain Numba; their symbols are read from LLVM's own view of the
final module and from the object code that it becomes.
"""

import math

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import njit, objmode, prange, typed, types, vectorize
from numba.experimental import jitclass

from alloccheck.analysis.contracts import load_contracts
from alloccheck.compile.numba_symbols import object_undefined_symbols

F8 = types.float64
I8 = types.int64
TEXT = types.unicode_type
VECTOR = types.float64[::1]
MATRIX = types.float64[:, ::1]


def dictionary(n):
    table = {}
    for i in range(n):
        table[i] = float(i)
    del table[3]
    total = table.get(1, 2.0) + table.pop(2, 0.0) + len(table)
    for key, value in table.items():
        total += key * value
    return total


def typed_list(n):
    items = typed.List.empty_list(types.int64)
    for i in range(n):
        items.append(i)
    items[0] = items.pop() + items[-1]
    del items[1:2]
    total = 0
    for item in items:
        total += item
    return total


def reflected_list(n):
    items = [float(i) for i in range(n)]
    items.append(2.0)
    return items


def python_set(n):
    numbers = {1, 2, n}
    numbers.add(n + 1)
    numbers.discard(2)
    return numbers


def text(a, b):
    return a == b, hash(a)


def text_of_numbers(i):
    return str(i)


def dot(a, b):
    return np.dot(a, b)


def dot_matrices(a, b, out):
    np.dot(a, b, out)
    return np.linalg.norm(a[0])


def matrix_times_vector(a, b):
    return a @ b


def eigenvalues(a):
    return np.linalg.eigvals(a)


def random_numbers(n):
    np.random.seed(n)
    return np.random.random() + np.random.normal() + np.random.poisson(30.0)


def random_generator(g):
    return g.random() + g.integers(0, 5)


def sorting(a):
    b = a.copy()
    b.sort()
    return b


def reductions(a):
    return (a + 1.0).sum() + a.mean() + np.abs(a).max()


def reshaping(a):
    return a.T.reshape(2, -1)


def datetimes(a, b):
    return (a - b) * 2


def parallel(a):
    total = 0.0
    for i in prange(a.size):
        total += a[i]
    return total


def printing(n, x):
    print(n, x, "text")


def generator(n):
    for i in range(n):
        yield i * 0.5


def constant_exception(n):
    if n < 0:
        raise ValueError("negative")
    return n


def run_time_exception(n):
    if n < 0:
        raise ValueError(n)
    return n


def caught_exception(n):
    try:
        if n < 0:
            raise ValueError("negative")
    except Exception:
        return 0
    return n


def object_mode(n):
    with objmode(y="int64"):
        y = int(str(n))
    return y


def complex_mathematics(z, w):
    return z**w + np.exp(z) + np.log(w) + abs(z) + np.sqrt(w)


def real_mathematics(x, y):
    return (
        math.sin(x)
        + math.cos(x)
        + math.tan(x)
        + math.exp(y)
        + math.log10(x)
        + math.log1p(x)
        + math.gamma(x)
        + math.lgamma(x)
        + math.erf(y)
        + math.hypot(x, y)
        + math.atan2(x, y)
        + np.fmod(x, y)
        + math.frexp(x)[0]
        + math.ldexp(x, 3)
        + math.copysign(x, y)
        + x**y
        + x % y
        + x**5
        + round(x, 2)
        + np.nextafter(x, y)
    )


def single_precision(x, y):
    return np.sin(x) + np.exp(x) + np.log2(y) + x**y + np.arctan2(x, y) + np.fmod(x, y)


def wide_integers(a, b):
    return a // b + a % b + a**b


def slice_copy(a, b):
    a[:] = b
    return a


def buffers(a):
    return a[0]


@jitclass([("total", types.float64)])
class Accumulator:
    def __init__(self, start):
        self.total = start

    def add(self, x):
        self.total += x
        return self.total


def jit_class(x):
    return Accumulator(x).add(2.0)


@vectorize
def kernel(x, y):
    return math.hypot(x, y) if x > y else x * y


def universal_function(a, b):
    return kernel(a, b)


PROGRAMS = [
    (dictionary, (I8,)),
    (typed_list, (I8,)),
    (reflected_list, (I8,)),
    (python_set, (I8,)),
    (text, (TEXT, TEXT)),
    (text_of_numbers, (I8,)),
    (dot, (VECTOR, VECTOR)),
    (dot_matrices, (MATRIX, MATRIX, MATRIX)),
    (matrix_times_vector, (MATRIX, VECTOR)),
    (eigenvalues, (MATRIX,)),
    (random_numbers, (I8,)),
    (random_generator, (types.NumPyRandomGeneratorType("random"),)),
    (sorting, (VECTOR,)),
    (reductions, (VECTOR,)),
    (reshaping, (MATRIX,)),
    (datetimes, (types.NPDatetime("s"), types.NPDatetime("ms"))),
    (parallel, (VECTOR,)),
    (printing, (I8, F8)),
    (generator, (I8,)),
    (constant_exception, (I8,)),
    (run_time_exception, (I8,)),
    (caught_exception, (I8,)),
    (object_mode, (I8,)),
    (complex_mathematics, (types.complex128, types.complex128)),
    (real_mathematics, (F8, F8)),
    (single_precision, (types.float32, types.float32)),
    (wide_integers, (types.uint64, I8)),
    (slice_copy, (VECTOR, VECTOR)),
    (buffers, (types.MemoryView(types.float64, 1, "C"),)),
    (jit_class, (F8,)),
    (universal_function, (VECTOR, VECTOR)),
]


def compiled_module(function, signature):
    """Return the final LLVM module of a function with its wrappers, and the target machine."""
    dispatcher = njit(parallel=function is parallel)(function)
    dispatcher.compile(signature)
    library = dispatcher.overloads[signature].library
    module = llvm.parse_assembly(library.get_llvm_str())
    return module, library.codegen._tm


def of_the_program(symbol):
    """Tell whether Numba compiled it from Python: such functions are read, not described."""
    return symbol.startswith(("_ZN", "cfunc._ZN", "__gufunc__", ".numba", "numba.dynamic.globals"))


@pytest.mark.parametrize(
    ("function", "signature"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS]
)
def test_each_external_symbol_of_a_program_has_a_contract(function, signature):
    module, machine = compiled_module(function, signature)
    declared = {
        item.name
        for item in [*module.functions, *module.global_variables]
        if item.is_declaration and not item.name.startswith("llvm.")
    }
    undefined = object_undefined_symbols(machine.emit_object(module))
    # The wrapper that Python calls reads its arguments through CPython in every program.
    assert any(symbol.startswith("PyArg_") for symbol in undefined)

    table = load_contracts()
    used = {symbol for symbol in declared | undefined if not of_the_program(symbol)}
    lacking = sorted(symbol for symbol in used if table.lookup(symbol) is None)
    assert not lacking, f"{function.__name__} uses symbols without a contract: {lacking}"

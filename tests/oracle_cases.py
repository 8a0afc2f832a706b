"""Functions whose effects are known by construction; `test_oracle.py` measures them."""

import ctypes
import mmap
import os
import threading

import numba
import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic
from numba.typed import List

libc = ctypes.CDLL(None)

# A system call by its instruction, past every C library (x86-64): shifts the arguments from the
# registers of a call to those of a system call.
_page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
_page.write(bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3"))
inline_system_call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 7)(
    ctypes.addressof(ctypes.c_char.from_buffer(_page))
)


def _function_of(library, name, result, *arguments):
    # A pointer of its own: attributes of the library object are shared with everybody.
    return ctypes.CFUNCTYPE(result, *arguments)(
        ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    )


def _function(name, result, *arguments):
    return _function_of(libc, name, result, *arguments)


c_malloc = _function("malloc", ctypes.c_void_p, ctypes.c_size_t)
c_free = _function("free", None, ctypes.c_void_p)
c_strdup = _function("strdup", ctypes.c_void_p, ctypes.c_void_p)
c_calloc = _function("calloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
c_realloc = _function("realloc", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
c_reallocarray = _function(
    "reallocarray", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
c_memalign = _function("memalign", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
c_aligned_alloc = _function("aligned_alloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
c_posix_memalign = _function(
    "posix_memalign", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
c_valloc = _function("valloc", ctypes.c_void_p, ctypes.c_size_t)
c_pvalloc = _function("pvalloc", ctypes.c_void_p, ctypes.c_size_t)
c_mmap = _function(
    "mmap",
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
c_munmap = _function("munmap", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
c_sbrk = _function("sbrk", ctypes.c_void_p, ctypes.c_ssize_t)
c_syscall = _function("syscall", ctypes.c_long, ctypes.c_long, ctypes.c_long)
c_syscall_of_six = _function("syscall", ctypes.c_long, *[ctypes.c_long] * 7)
c_mutex_lock = _function("pthread_mutex_lock", ctypes.c_int, ctypes.c_void_p)
c_mutex_unlock = _function("pthread_mutex_unlock", ctypes.c_int, ctypes.c_void_p)
c_usleep = _function("usleep", ctypes.c_int, ctypes.c_uint)
c_write = _function("write", ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
c_dprintf = _function("dprintf", ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
c_poll = _function("poll", ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int)
c_pthread_create = _function(
    "pthread_create",
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
c_pthread_join = _function("pthread_join", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
c_sigmask = _function(
    "pthread_sigmask", ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
)
gil_ensure = ctypes.CFUNCTYPE(ctypes.c_int)(
    ctypes.cast(libc.PyGILState_Ensure, ctypes.c_void_p).value
)
gil_release = ctypes.CFUNCTYPE(None, ctypes.c_int)(
    ctypes.cast(libc.PyGILState_Release, ctypes.c_void_p).value
)


@njit
def scalar_loop(x, n):
    total = 0.0
    for i in range(n):
        total += x / (i + 1)
    return total


@njit
def empties(n):
    total = 0
    for i in range(n):
        a = np.empty(i + 1)
        a[0] = i
        total += int(a[0])
    return total


@njit
def new_array(n):
    return np.ones(n)


@njit
def append(items, n):
    for i in range(n):
        items.append(i)


@njit
def product(a, b, out):
    np.dot(a, b, out)


@njit
def direct_malloc(n):
    for _ in range(n):
        c_free(c_malloc(48))


@njit
def whole_family(cell):
    address = cell.ctypes.data
    c_free(c_malloc(10))
    c_free(c_calloc(3, 5))
    c_free(c_realloc(c_realloc(0, 7), 20))
    c_free(c_reallocarray(0, 2, 4))
    c_free(c_memalign(64, 64))
    c_free(c_aligned_alloc(64, 128))
    status = c_posix_memalign(address, 32, 96)
    c_free(cell[0])
    c_free(c_valloc(1))
    c_free(c_pvalloc(1))
    p = c_mmap(0, 4096, 3, 0x22, -1, 0)
    c_munmap(p, 4096)
    c_free(0)
    return status


@njit
def through_libc(text):
    c_free(c_strdup(text.ctypes.data))


@njit
def break_moves():
    c_sbrk(0)
    c_sbrk(16)
    c_sbrk(-16)


@njit
def raw_brk_query_and_getpid():
    c_syscall(12, 0)
    c_syscall(39, 0)


@njit
def through_libc_malloc():
    c_free(c_malloc(8))


@njit
def raw_mmap():
    p = c_syscall_of_six(9, 0, 4096, 3, 0x22, -1, 0)
    c_syscall_of_six(11, p, 4096, 0, 0, 0, 0)


@njit
def locks(mutex, n):
    for _ in range(n):
        c_mutex_lock(mutex.ctypes.data)
        c_mutex_unlock(mutex.ctypes.data)


@njit
def sleeps():
    c_usleep(1)


@njit
def writes(text, fd):
    c_write(fd, text.ctypes.data, 1)


@njit
def prints_through_libc(text, fd):
    c_dprintf(fd, text.ctypes.data)


@njit
def polls():
    c_poll(0, 0, 0)


@njit
def takes_gil():
    gil_release(gil_ensure())


@njit
def starts_thread(cell, start):
    status = c_pthread_create(cell.ctypes.data, 0, start, 0)
    c_pthread_join(cell[0], 0)
    return status


@njit
def blocks_signal(wanted, before, now):
    """Block some signals, ask which are blocked, and put back what was before."""
    c_sigmask(0, wanted.ctypes.data, before.ctypes.data)
    c_sigmask(0, 0, now.ctypes.data)
    c_sigmask(2, before.ctypes.data, 0)
    return now[0]


@njit
def inline_mmap():
    p = inline_system_call(9, 0, 4096, 3, 0x22, -1, 0)
    return inline_system_call(11, p, 4096, 0, 0, 0, 0)


@njit
def increments(cell):
    cell[0] += 1
    return cell[0]


@njit
def same_list(items):
    return items


def _plain_identity(x):
    return x


compiled_alias = njit(_plain_identity)


def open_for_append(path):
    return os.open(path, os.O_WRONLY | os.O_APPEND)


@njit
def facts(a, b):
    return a.shape, a.strides, b.shape, b.strides, a.sum(), b.sum()


@njit
def address_mod_4096(a):
    return a.ctypes.data % 4096


@njit
def write_first_read_second(a, b):
    a[1] = 77
    return b[0]


@njit
def record_fields(r):
    return r.x, r.y


@njit
def raises_with(n):
    if n > 2:
        raise ValueError("n is", n)
    return n


@njit
def raises_const(n):
    if n > 2:
        raise IndexError("too many")
    return n


@njit
def with_default(x, factor=3.0):
    return x * factor


@njit
def starred(x, *rest):
    return x + rest[0] + rest[1]


@njit("int32(int32)")
def eager(x):
    return x + 1


@njit
def maybe(x):
    if x > 0:
        return x
    return None


@intrinsic
def _null_store(typingctx):
    def code(context, builder, signature, arguments):
        i64 = context.get_value_type(types.int64)
        pointer = builder.inttoptr(context.get_constant(types.intp, 8), i64.as_pointer())
        store = builder.store(i64(1), pointer)
        store.volatile = True
        return context.get_dummy_value()

    return types.none(), code


@njit
def crashes():
    _null_store()


@njit
def spins(n):
    total = 0
    while n > 0:
        total += n
        if total > 1 << 60:
            total = 0
    return total


@njit
def callee(n):
    return np.zeros(n)


@njit
def takes_function(f, n):
    return f(n).size


def make_list(n):
    items = List()
    for i in range(n):
        items.append(i)
    return items


def make_adder(k):
    @njit
    def add(x):
        return x + k

    return add


@njit(nogil=True)
def _churn(stop):
    rounds = 0
    while stop[0] == 0:
        a = np.empty(100 + rounds % 7)
        a[0] = 1
        rounds += 1
    return rounds


def make_churning(seconds_of_work):
    """A pure function, measured while another thread allocates without pause."""
    stop = np.zeros(1, np.int64)
    _churn(np.ones(1, np.int64))
    threading.Thread(target=_churn, args=(stop,), daemon=True).start()

    @njit
    def work(x):
        total = 0.0
        for i in range(seconds_of_work):
            total += np.sqrt(x + i)
        return total

    return work


def thread_start():
    """Address of a C function that any thread can run and return from."""
    return ctypes.cast(libc.getppid, ctypes.c_void_p).value


def not_compiled(x):
    return x


changing = os.environ.get("ORACLE_CASES_CHANGING")
if changing:

    @njit
    def changed(x):
        return x + 2

else:

    @njit
    def changed(x):
        return x + 1


@cfunc("int64(int64)")
def c_entry(n):
    return -n


class Artifact:
    """What a checked function keeps per signature, as far as the oracle reads it."""

    def __init__(self, compiled):
        self.fndesc = compiled.fndesc
        self.address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        self.digest = "0123abcd"
        self.c_address = c_entry.address
        self._owner = compiled


class WithArtifacts(numba.core.registry.CPUDispatcher):
    """Its overloads are one thing, its artifacts another: the artifacts are what runs."""

    @property
    def artifacts(self):
        return {key: Artifact(callee.overloads[key]) for key in self.overloads}


def make_with_artifacts():
    callee.compile((types.int64,))

    def harmless(n):
        return np.zeros(0) if n < 0 else np.ones(n)

    return WithArtifacts(harmless)


def make_with_c_entry(address):
    """Like `make_with_artifacts`, with `c_entry` (or no address) as the C entry of `negated`."""

    class Entered(WithArtifacts):
        @property
        def artifacts(self):
            negated.compile((types.int64,))
            made = Artifact(negated.overloads[types.int64,])
            made.c_address = c_entry.address if address else None
            return dict.fromkeys(self.overloads, made)

    def harmless(n):
        return n

    return Entered(harmless)


@njit
def negated(n):
    return n * 2


@njit("float64(CPointer(float64), intp, CPointer(float64), voidptr)")
def lowest(values, n, out, data):
    found = carray(values, n).min()
    if n == 3:
        found = min(found, carray(data, 1, np.float64)[0])
    out[0] = found
    return found


POINTERS = "(CPointer(float32), int64)"


@njit("float64(CPointer(float32), int64)")
def copies_behind_pointer(values, n):
    return carray(values, (n,)).copy().sum()


@cfunc("float64(float64)")
def callback_with_copies(x):
    if x < 0:
        raise ValueError("negative")
    a = np.full(3, x)
    b = a.copy()
    return a[0] + b[0]


@cfunc("void(CPointer(float64), int64)")
def callback_on_memory(values, n):
    for i in range(n):
        values[i] *= 2.0


@cfunc("float64(CPointer(float64))")
def callback_of_pointer(values):
    return values[0]


def make_callback(k):
    @cfunc("int64(int64)")
    def add(x):
        return x + k

    return add


@njit
def calls_function(f, x):
    return f(x)


def _kernel(x):
    return np.full(3, x).sum()


static_ufunc = numba.vectorize("float64(float64)")(_kernel)
dynamic_ufunc = numba.vectorize(_kernel)
parallel_ufunc = numba.vectorize("float64(float64)", target="parallel")(_kernel)
kernel = njit(_kernel)


@numba.guvectorize("(float64[:], float64[:])", "(n)->(n)")
def static_gufunc(x, out):
    out[:] = x + 1.0


@numba.guvectorize("(n)->(n)")
def dynamic_gufunc(x, out):
    out[:] = x + 1.0


def make_ufunc():
    return numba.vectorize("float64(float64)")(_kernel)


@njit
def calls_ufunc(x, out):
    static_ufunc(x, out)


def make_run(library):
    """Call the C function ``long run(long)`` of a library."""
    run = _function_of(ctypes.CDLL(library), "run", ctypes.c_long, ctypes.c_long)

    @njit
    def calls(which):
        return run(which)

    return calls


def make_allocating(way, library):
    """Obtain and free memory once, by a way that passes the C library's first names."""
    if way == "the library's own name":
        module, names = ctypes.CDLL("libc.so.6"), ("malloc", "free")
    elif way == "the second name":
        module, names = libc, ("__libc_malloc", "__libc_free")
    else:
        deeply = way == "deep binding"
        mode = os.RTLD_NOW | (os.RTLD_DEEPBIND if deeply else 0)
        name = "grab" if deeply else "grab_next"
        grab = _function_of(ctypes.CDLL(library, mode), name, ctypes.c_long)

        @njit
        def grabs():
            return grab()

        return grabs
    obtain = _function_of(module, names[0], ctypes.c_void_p, ctypes.c_size_t)
    release = _function_of(module, names[1], None, ctypes.c_void_p)

    @njit
    def calls():
        release(obtain(48))
        return 0

    return calls


def found_by_name(library):
    """Return which functions of these names the process finds: in the library, and in none."""
    own = ctypes.cast(ctypes.CDLL(library).sleep, ctypes.c_void_p).value
    everywhere = ctypes.cast(libc.sleep, ctypes.c_void_p).value
    missing = hasattr(libc, "no_such_function")

    @njit
    def found():
        return own != everywhere, missing

    return found


c_fork = _function("fork", ctypes.c_int)


@njit
def forks():
    return c_fork()


def make_by_forking(n):
    os.fork()
    return negated

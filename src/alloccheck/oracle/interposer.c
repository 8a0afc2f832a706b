/* Counts what one thread does to the heap, to locks and to the kernel while its window is open.
 *
 * Loaded with LD_PRELOAD. It knows nothing of Python objects or Numba: it wraps C functions, and,
 * where the kernel can (Linux 5.11, x86-64), sees every system call of the measured thread.
 *
 * Rules that keep it exact and harmless:
 *  - state is initial-exec thread-local storage: touching it never allocates;
 *  - a wrapper does nothing but count and forward; it takes no lock and calls nothing else;
 *  - a call of a wrapper raises `depth`, so that a system call that serves a counted call is not
 *    counted a second time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define FRAME ((const uintptr_t *)__builtin_frame_address(0))

/* ---- the table of what is wrapped: name, category ------------------------------------------
 * a allocates, f frees, l locks, w waits, g takes the interpreter's lock, o none of these */

enum {
    CATEGORY_a = 'a',
    CATEGORY_f = 'f',
    CATEGORY_l = 'l',
    CATEGORY_w = 'w',
    CATEGORY_g = 'g',
    CATEGORY_o = 'o'
};

#define HEAP_FUNCTIONS(K) \
    K(malloc, a) K(calloc, a) K(realloc, a) K(reallocarray, a) K(memalign, a) \
    K(aligned_alloc, a) K(posix_memalign, a) K(valloc, a) K(pvalloc, a) K(free, f) \
    K(mmap, a) K(munmap, f) K(mremap, a) K(brk, a) K(sbrk, a) K(pthread_create, a) \
    K(thrd_create, a)

/* What only newer C libraries have: where it is missing, nobody must find ours. */
#if __GLIBC_PREREQ(2, 30)
#define SINCE_2_30(F) \
    F(int, pthread_mutex_clocklock, l, \
      (pthread_mutex_t * m, clockid_t c, const struct timespec *t), (m, c, t)) \
    F(int, pthread_rwlock_clockrdlock, l, \
      (pthread_rwlock_t * k, clockid_t c, const struct timespec *t), (k, c, t)) \
    F(int, pthread_rwlock_clockwrlock, l, \
      (pthread_rwlock_t * k, clockid_t c, const struct timespec *t), (k, c, t)) \
    F(int, pthread_cond_clockwait, l, \
      (pthread_cond_t * c, pthread_mutex_t * m, clockid_t k, const struct timespec *t), \
      (c, m, k, t)) \
    F(int, sem_clockwait, l, (sem_t * s, clockid_t c, const struct timespec *t), (s, c, t))
#else
#define SINCE_2_30(F)
#endif
#if __GLIBC_PREREQ(2, 31)
#define SINCE_2_31(F) \
    F(int, pthread_clockjoin_np, l, \
      (pthread_t t, void **r, clockid_t c, const struct timespec *e), (t, r, c, e))
#else
#define SINCE_2_31(F)
#endif
#if __GLIBC_PREREQ(2, 35)
#define SINCE_2_35(F) \
    F(int, epoll_pwait2, w, \
      (int fd, struct epoll_event *v, int n, const struct timespec *t, const sigset_t *s), \
      (fd, v, n, t, s))
#else
#define SINCE_2_35(F)
#endif

/* Forwarded wrappers: kind of result, name, category, parameters, arguments. */
#define FORWARDED(F) \
    F(int, pthread_mutex_lock, l, (pthread_mutex_t * m), (m)) \
    F(int, pthread_mutex_timedlock, l, (pthread_mutex_t * m, const struct timespec *t), (m, t)) \
    F(int, pthread_rwlock_rdlock, l, (pthread_rwlock_t * k), (k)) \
    F(int, pthread_rwlock_wrlock, l, (pthread_rwlock_t * k), (k)) \
    F(int, pthread_rwlock_timedrdlock, l, (pthread_rwlock_t * k, const struct timespec *t), (k, t)) \
    F(int, pthread_rwlock_timedwrlock, l, (pthread_rwlock_t * k, const struct timespec *t), (k, t)) \
    F(int, pthread_spin_lock, l, (pthread_spinlock_t * k), (k)) \
    F(int, pthread_cond_wait, l, (pthread_cond_t * c, pthread_mutex_t * m), (c, m)) \
    F(int, pthread_cond_timedwait, l, \
      (pthread_cond_t * c, pthread_mutex_t * m, const struct timespec *t), (c, m, t)) \
    F(int, pthread_barrier_wait, l, (pthread_barrier_t * b), (b)) \
    F(int, pthread_join, l, (pthread_t t, void **r), (t, r)) \
    F(int, pthread_timedjoin_np, l, (pthread_t t, void **r, const struct timespec *e), (t, r, e)) \
    F(int, mtx_lock, l, (mtx_t * m), (m)) \
    F(int, mtx_timedlock, l, (mtx_t * m, const struct timespec *t), (m, t)) \
    F(int, cnd_wait, l, (cnd_t * c, mtx_t * m), (c, m)) \
    F(int, cnd_timedwait, l, (cnd_t * c, mtx_t * m, const struct timespec *t), (c, m, t)) \
    F(int, thrd_join, l, (thrd_t t, int *r), (t, r)) \
    SINCE_2_30(F) SINCE_2_31(F) SINCE_2_35(F) \
    F(int, sem_wait, l, (sem_t * s), (s)) \
    F(int, sem_timedwait, l, (sem_t * s, const struct timespec *t), (s, t)) \
    F(ssize_t, read, w, (int fd, void *b, size_t n), (fd, b, n)) \
    F(ssize_t, pread64, w, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o)) \
    F(ssize_t, readv, w, (int fd, const struct iovec *v, int n), (fd, v, n)) \
    F(ssize_t, write, w, (int fd, const void *b, size_t n), (fd, b, n)) \
    F(ssize_t, pwrite64, w, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o)) \
    F(ssize_t, writev, w, (int fd, const struct iovec *v, int n), (fd, v, n)) \
    F(ssize_t, recv, w, (int fd, void *b, size_t n, int g), (fd, b, n, g)) \
    F(ssize_t, recvfrom, w, (int fd, void *b, size_t n, int g, void *a, void *l), \
      (fd, b, n, g, a, l)) \
    F(ssize_t, recvmsg, w, (int fd, void *m, int g), (fd, m, g)) \
    F(ssize_t, send, w, (int fd, const void *b, size_t n, int g), (fd, b, n, g)) \
    F(ssize_t, sendto, w, (int fd, const void *b, size_t n, int g, const void *a, unsigned l), \
      (fd, b, n, g, a, l)) \
    F(ssize_t, sendmsg, w, (int fd, const void *m, int g), (fd, m, g)) \
    F(int, accept, w, (int fd, void *a, void *l), (fd, a, l)) \
    F(int, accept4, w, (int fd, void *a, void *l, int g), (fd, a, l, g)) \
    F(int, connect, w, (int fd, const void *a, unsigned l), (fd, a, l)) \
    F(int, poll, w, (struct pollfd * p, nfds_t n, int t), (p, n, t)) \
    F(int, ppoll, w, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *s), \
      (p, n, t, s)) \
    F(int, select, w, (int n, fd_set *r, fd_set *o, fd_set *e, struct timeval *t), (n, r, o, e, t)) \
    F(int, pselect, w, \
      (int n, fd_set *r, fd_set *o, fd_set *e, const struct timespec *t, const sigset_t *s), \
      (n, r, o, e, t, s)) \
    F(int, epoll_wait, w, (int fd, struct epoll_event *v, int n, int t), (fd, v, n, t)) \
    F(int, epoll_pwait, w, (int fd, struct epoll_event *v, int n, int t, const sigset_t *s), \
      (fd, v, n, t, s)) \
    F(int, nanosleep, w, (const struct timespec *t, struct timespec *r), (t, r)) \
    F(int, clock_nanosleep, w, \
      (clockid_t c, int g, const struct timespec *t, struct timespec *r), (c, g, t, r)) \
    F(int, thrd_sleep, w, (const struct timespec *t, struct timespec *r), (t, r)) \
    F(int, usleep, w, (useconds_t t), (t)) \
    F(unsigned, sleep, w, (unsigned t), (t)) \
    F(int, sched_yield, w, (void), ()) \
    F(int, pause, w, (void), ()) \
    F(pid_t, wait, w, (int *s), (s)) \
    F(pid_t, waitpid, w, (pid_t p, int *s, int o), (p, s, o)) \
    F(pid_t, wait4, w, (pid_t p, int *s, int o, struct rusage *u), (p, s, o, u)) \
    F(int, waitid, w, (idtype_t k, id_t p, siginfo_t * s, int o), (k, p, s, o)) \
    F(int, sigwait, w, (const sigset_t *s, int *n), (s, n)) \
    F(int, sigwaitinfo, w, (const sigset_t *s, siginfo_t *i), (s, i)) \
    F(int, sigtimedwait, w, (const sigset_t *s, siginfo_t *i, const struct timespec *t), (s, i, t)) \
    F(int, sigsuspend, w, (const sigset_t *s), (s)) \
    F(int, flock, w, (int fd, int o), (fd, o)) \
    F(int, fsync, w, (int fd), (fd)) \
    F(int, fdatasync, w, (int fd), (fd)) \
    F(int, close, w, (int fd), (fd)) \
    F(int, PyGILState_Ensure, g, (void), ()) \
    F(void *, PyEval_AcquireThread, g, (void *t), (t)) \
    F(void *, PyEval_RestoreThread, g, (void *t), (t))

/* Wrapped by hand below. */
#define VARIADIC(K) \
    K(open, w) K(openat, w) K(flockfile, l) K(pthread_once, l) K(call_once, l) K(thrd_yield, w)

#define AS_ENUM(name, category) KIND_##name,
#define AS_ENUM_F(type, name, category, parameters, arguments) KIND_##name,
enum { HEAP_FUNCTIONS(AS_ENUM) FORWARDED(AS_ENUM_F) VARIADIC(AS_ENUM) KIND_system_call, KINDS };

typedef struct {
    const char *name;
    char category;
} kind_t;

#define AS_ROW(name, category) {#name, CATEGORY_##category},
#define AS_ROW_F(type, name, category, parameters, arguments) {#name, CATEGORY_##category},
static const kind_t kinds[KINDS] = {
    HEAP_FUNCTIONS(AS_ROW) FORWARDED(AS_ROW_F) VARIADIC(AS_ROW){"system call", '?'}};

/* System calls that obtain or release memory, or may wait. Others are listed, not judged. */
#define SYSTEM_CALLS(S) \
    S(mmap, a) S(mremap, a) S(brk, a) S(shmat, a) S(munmap, f) S(shmdt, f) S(read, w) S(write, w) \
    S(pread64, w) S(pwrite64, w) S(readv, w) S(writev, w) S(openat, w) S(close, w) S(fsync, w) \
    S(fdatasync, w) S(ioctl, w) S(fcntl, w) S(futex, w) S(nanosleep, w) S(clock_nanosleep, w) \
    S(ppoll, w) S(pselect6, w) S(epoll_pwait, w) S(recvfrom, w) S(recvmsg, w) S(sendto, w) \
    S(sendmsg, w) S(accept, w) S(accept4, w) S(connect, w) S(wait4, w) S(waitid, w) \
    S(sched_yield, w) S(rt_sigsuspend, w) S(rt_sigtimedwait, w) S(flock, w) S(msync, w) \
    S(semtimedop, w) S(madvise, o) S(mprotect, o) S(getpid, o) S(getppid, o) S(gettid, o) \
    S(clock_gettime, o) S(gettimeofday, o) S(getrandom, w) S(rt_sigprocmask, o) \
    S(rt_sigaction, o) S(rt_sigreturn, o) S(sigaltstack, o) S(clone, a) S(execve, w) S(exit, o) \
    S(exit_group, o) S(tgkill, o) S(newfstatat, w) S(fstat, w) S(statx, w) S(readlinkat, w) \
    S(lseek, o) S(getdents64, w) S(mbind, o) S(get_mempolicy, o) S(set_mempolicy, o) \
    S(sched_getaffinity, o) S(sched_setaffinity, o) S(sched_getparam, o) S(uname, o) \
    S(getuid, o) S(prctl, o) S(set_robust_list, o) S(getrusage, o) S(membarrier, w) \
    S(sysinfo, o) S(clock_getres, o) S(getcpu, o) S(mlock, w) S(munlock, o) S(dup, o)
#define AS_CALL(name, category) {#name, SYS_##name, CATEGORY_##category},
static const struct {
    const char *name;
    long number;
    char category;
} system_calls[] = {
    SYSTEM_CALLS(AS_CALL)
#if defined(__x86_64__)
    AS_CALL(open, w) AS_CALL(poll, w) AS_CALL(select, w) AS_CALL(pause, w) AS_CALL(epoll_wait, w)
    AS_CALL(fork, a) AS_CALL(vfork, a) AS_CALL(arch_prctl, o) AS_CALL(stat, w) AS_CALL(access, w)
    AS_CALL(readlink, w)
#endif
#ifdef SYS_clone3
    AS_CALL(clone3, a)
#endif
    /* Newer than some headers; its number is the same on every machine. */
    {"map_shadow_stack", 453, 'a'},
};
#define SYSTEM_CALL_ROWS (sizeof system_calls / sizeof *system_calls)

/* ---- the ledger ------------------------------------------------------------------------------ */

enum { EVENTS = 256, NUMBERS = 1024 };

typedef struct {
    int64_t kind;
    uint64_t size; /* bytes asked for; the number of a system call */
    const void *caller;
    const void *site;
} event_t;

typedef struct {
    int64_t armed;
    int64_t depth;
    int64_t sees_system_calls;
    int64_t complete; /* no system call of this window went past us */
    const uintptr_t *stack_top;
    uint64_t bytes;
    uint64_t event_count;
    uint64_t counts[KINDS];
    uint64_t others[KINDS]; /* the same window, all other threads */
    uint32_t all_calls[NUMBERS];
    uint32_t bare_calls[NUMBERS]; /* those that serve no counted function */
    event_t events[EVENTS];
} ledger_t;

static __thread ledger_t ledger __attribute__((tls_model("initial-exec")));
static __thread volatile char selector __attribute__((tls_model("initial-exec")));
static __thread char dispatching __attribute__((tls_model("initial-exec")));

static int windows; /* how many threads are armed */
static uint64_t others[KINDS];

enum { RANGES = 512, STACK_WORDS = 1 << 16 };
static uintptr_t ranges[RANGES][2];
static size_t range_count;

/* Whether `word` can be a return address into the code of interest: it lies there, behind a call. */
static int is_return_address(uintptr_t word) {
    for (size_t i = 0; i < range_count; i++) {
        if (word < ranges[i][0] + 7 || word >= ranges[i][1])
            continue;
#if defined(__x86_64__)
        const unsigned char *p = (const unsigned char *)word;
        if (p[-5] == 0xe8) /* call rel32 */
            return 1;
        for (int length = 2; length <= 7; length++) /* call reg, call [...]: ff /2 */
            if (p[-length] == 0xff && (p[1 - length] & 0x38) == 0x10)
                return 1;
        return 0;
#else
        return 1;
#endif
    }
    return 0;
}

/* The innermost return address into the code of interest, found by reading the stack upwards. */
static const void *find_site(const uintptr_t *from, const void *caller) {
    if (is_return_address((uintptr_t)caller))
        return caller;
    if (from > ledger.stack_top || ledger.stack_top - from > STACK_WORDS)
        return NULL; /* another stack, or too deep to search */
    for (const uintptr_t *p = from; p < ledger.stack_top; p++)
        if (is_return_address(*p))
            return (const void *)*p;
    return NULL;
}

static void record(int kind, uint64_t size, const void *caller, const uintptr_t *frame) {
    ledger.counts[kind]++;
    if (kinds[kind].category == 'a')
        ledger.bytes += size;
    if (ledger.event_count < EVENTS) {
        event_t *event = &ledger.events[ledger.event_count];
        event->kind = kind;
        event->size = size;
        event->caller = caller;
        event->site = find_site(frame, caller);
    }
    ledger.event_count++;
}

static inline __attribute__((always_inline)) void enter(int kind, uint64_t size,
                                                        const void *caller,
                                                        const uintptr_t *frame) {
    if (__builtin_expect(ledger.armed, 0))
        record(kind, size, caller, frame);
    else if (__builtin_expect(__atomic_load_n(&windows, __ATOMIC_RELAXED), 0))
        __atomic_add_fetch(&others[kind], 1, __ATOMIC_RELAXED);
    ledger.depth++;
}

static inline __attribute__((always_inline)) void leave(void) { ledger.depth--; }

#define ENTER(name, size) enter(KIND_##name, (uint64_t)(size), CALLER, FRAME)

/* ---- looking up what we forward to ------------------------------------------------------------ */

typedef void *find_t(void *, const char *);

#if __GLIBC_PREREQ(2, 34)
#define VERSION_OF_DLSYM "GLIBC_2.34"
#elif defined(__x86_64__)
#define VERSION_OF_DLSYM "GLIBC_2.2.5"
#else
#define VERSION_OF_DLSYM "GLIBC_2.17"
#endif

/* The C library's own dlsym: ours is below. */
static find_t *real_dlsym(void) {
    static find_t *real;
    if (__builtin_expect(!real, 0))
        real = (find_t *)dlvsym(RTLD_NEXT, "dlsym", VERSION_OF_DLSYM);
    if (!real)
        abort();
    return real;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (__builtin_expect(!real, 0)) \
        real = (__typeof__(&name))next_definition(#name)

static void *next_definition(const char *name) {
    int64_t armed = ledger.armed; /* what the look-up does is ours, not the measured code's */
    char trapped = selector;
    selector = 0;
    ledger.armed = 0;
    void *p = NULL;
#if defined(__x86_64__)
    /* These have an ancient first version with another layout of the condition variable. */
    if (!strncmp(name, "pthread_cond_", 13))
        p = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
#endif
    if (!p)
        p = real_dlsym()(RTLD_NEXT, name);
    ledger.armed = armed;
    selector = trapped;
    if (!p) {
        static const char text[] = "alloccheck interposer: no next definition of a function\n";
        (void)!syscall(SYS_write, 2, text, sizeof text - 1);
        abort();
    }
    return p;
}

/* ---- the heap ---------------------------------------------------------------------------------
 * The C library has a second name for each of these, by which a program can pass the first one. So we
 * define both, and must look up what we forward to. Looking up may allocate, in some C libraries: that
 * once is served from memory of our own. */

static void *(*heap_malloc)(size_t), *(*heap_calloc)(size_t, size_t),
    *(*heap_realloc)(void *, size_t), *(*heap_memalign)(size_t, size_t), *(*heap_valloc)(size_t),
    *(*heap_pvalloc)(size_t);
static void (*heap_free)(void *);

enum { EARLY = 1 << 14 };
static char early[EARLY] __attribute__((aligned(64)));
static size_t early_used;

static void *early_memory(size_t n) {
    if (n > EARLY - 64 - early_used)
        abort();
    char *p = early + early_used;
    early_used += (n + 63) & ~(size_t)63;
    return p;
}

static inline int is_early(const void *p) {
    return (uintptr_t)p - (uintptr_t)early < EARLY;
}

/* False while they are being looked up. */
static __attribute__((noinline, cold)) int find_heap(void) {
    static int looking; /* the first allocation of a process comes before its first thread */
    if (looking)
        return 0;
    looking = 1;
    heap_calloc = (void *(*)(size_t, size_t))next_definition("__libc_calloc");
    heap_realloc = (void *(*)(void *, size_t))next_definition("__libc_realloc");
    heap_memalign = (void *(*)(size_t, size_t))next_definition("__libc_memalign");
    heap_valloc = (void *(*)(size_t))next_definition("__libc_valloc");
    heap_pvalloc = (void *(*)(size_t))next_definition("__libc_pvalloc");
    heap_free = (void (*)(void *))next_definition("__libc_free");
    heap_malloc = (void *(*)(size_t))next_definition("__libc_malloc"); /* the last: all are there */
    looking = 0;
    return 1;
}

#define HEAP_OR(otherwise) \
    if (__builtin_expect(!heap_malloc, 0) && !find_heap()) \
    return otherwise

PUBLIC void *malloc(size_t n) {
    HEAP_OR(early_memory(n));
    ENTER(malloc, n);
    void *p = heap_malloc(n);
    leave();
    return p;
}

PUBLIC void *calloc(size_t count, size_t size) {
    size_t n;
    int overflow = __builtin_mul_overflow(count, size, &n);
    HEAP_OR(early_memory(n));
    ENTER(calloc, overflow ? 0 : n);
    void *p = heap_calloc(count, size);
    leave();
    return p;
}

/* Moves what was served early; the new size is the least that is known to lie there. */
static void *leave_early(void *old, size_t n) {
    size_t rest = early + EARLY - (char *)old;
    void *p = heap_malloc ? heap_malloc(n) : early_memory(n);
    if (p)
        memcpy(p, old, n < rest ? n : rest);
    return p;
}

PUBLIC void *realloc(void *old, size_t n) {
    HEAP_OR(old ? leave_early(old, n) : early_memory(n));
    ENTER(realloc, n);
    void *p = is_early(old) ? leave_early(old, n) : heap_realloc(old, n);
    leave();
    return p;
}

PUBLIC void *reallocarray(void *old, size_t count, size_t size) {
    size_t n;
    int overflow = __builtin_mul_overflow(count, size, &n);
    HEAP_OR(NULL);
    ENTER(reallocarray, overflow ? 0 : n);
    void *p = NULL;
    if (overflow)
        errno = ENOMEM;
    else
        p = heap_realloc(old, n);
    leave();
    return p;
}

PUBLIC void *memalign(size_t alignment, size_t n) {
    HEAP_OR(NULL);
    ENTER(memalign, n);
    void *p = heap_memalign(alignment, n);
    leave();
    return p;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t n) {
    HEAP_OR(NULL);
    ENTER(aligned_alloc, n);
    void *p = heap_memalign(alignment, n);
    leave();
    return p;
}

PUBLIC int posix_memalign(void **out, size_t alignment, size_t n) {
    if (!alignment || alignment % sizeof(void *) || (alignment & (alignment - 1)))
        return EINVAL;
    HEAP_OR(ENOMEM);
    ENTER(posix_memalign, n);
    int saved = errno;
    void *p = heap_memalign(alignment, n);
    errno = saved;
    leave();
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

PUBLIC void *valloc(size_t n) {
    HEAP_OR(NULL);
    ENTER(valloc, n);
    void *p = heap_valloc(n);
    leave();
    return p;
}

PUBLIC void *pvalloc(size_t n) {
    HEAP_OR(NULL);
    ENTER(pvalloc, n);
    void *p = heap_pvalloc(n);
    leave();
    return p;
}

PUBLIC void free(void *p) {
    if (!p || is_early(p)) /* nothing to do, by definition or because it stays */
        return;
    HEAP_OR();
    ENTER(free, 0);
    heap_free(p);
    leave();
}

#define SECOND_NAME(type, name, parameters) \
    PUBLIC type __libc_##name parameters __attribute__((alias(#name)));
SECOND_NAME(void *, malloc, (size_t))
SECOND_NAME(void *, calloc, (size_t, size_t))
SECOND_NAME(void *, realloc, (void *, size_t))
SECOND_NAME(void *, memalign, (size_t, size_t))
SECOND_NAME(void *, valloc, (size_t))
SECOND_NAME(void *, pvalloc, (size_t))
SECOND_NAME(void, free, (void *))

/* ---- pages ------------------------------------------------------------------------------------ */

extern void *mmap(void *, size_t, int, int, int, off64_t);
extern int munmap(void *, size_t);
extern void *mremap(void *, size_t, size_t, int, ...);

PUBLIC void *mmap(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
    REAL(mmap);
    ENTER(mmap, n);
    void *p = real(at, n, protection, flags, fd, offset);
    leave();
    return p;
}

PUBLIC void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
    REAL(mmap);
    ENTER(mmap, n);
    void *p = real(at, n, protection, flags, fd, offset);
    leave();
    return p;
}

PUBLIC int munmap(void *p, size_t n) {
    REAL(munmap);
    ENTER(munmap, n);
    int r = real(p, n);
    leave();
    return r;
}

PUBLIC void *mremap(void *old, size_t old_size, size_t n, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = va_arg(rest, void *);
    va_end(rest);
    REAL(mremap);
    ENTER(mremap, n);
    void *p = real(old, old_size, n, flags, to);
    leave();
    return p;
}

PUBLIC int brk(void *p) {
    REAL(brk);
    ENTER(brk, 0);
    int r = real(p);
    leave();
    return r;
}

PUBLIC void *sbrk(intptr_t increment) {
    REAL(sbrk);
    if (!increment) /* asks where the break is */
        return real(0);
    ENTER(sbrk, increment > 0 ? increment : 0);
    void *p = real(increment);
    leave();
    return p;
}

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument) {
    REAL(pthread_create);
    ENTER(pthread_create, 0);
    int r = real(thread, attributes, start, argument);
    leave();
    return r;
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t start, void *argument) {
    REAL(thrd_create);
    ENTER(thrd_create, 0);
    int r = real(thread, start, argument);
    leave();
    return r;
}

/* ---- locks, waiting, the interpreter ------------------------------------------------------------ */

extern ssize_t recv(int, void *, size_t, int), recvfrom(int, void *, size_t, int, void *, void *),
    recvmsg(int, void *, int), send(int, const void *, size_t, int),
    sendto(int, const void *, size_t, int, const void *, unsigned), sendmsg(int, const void *, int);
extern int accept(int, void *, void *), accept4(int, void *, void *, int),
    connect(int, const void *, unsigned);
extern int sched_yield(void), flock(int, int);
extern int PyGILState_Ensure(void);
/* These return nothing; a result in a register that nobody reads keeps one shape for all. */
extern void *PyEval_AcquireThread(void *), *PyEval_RestoreThread(void *);

#define DEFINE(type, name, category, parameters, arguments) \
    PUBLIC type name parameters { \
        REAL(name); \
        ENTER(name, 0); \
        type result = real arguments; \
        leave(); \
        return result; \
    }
FORWARDED(DEFINE)

PUBLIC void flockfile(FILE *file) {
    REAL(flockfile);
    ENTER(flockfile, 0);
    real(file);
    leave();
}

PUBLIC void thrd_yield(void) {
    REAL(thrd_yield);
    ENTER(thrd_yield, 0);
    real();
    leave();
}

/* What these call is the program's: its system calls serve no counted function. */
PUBLIC int pthread_once(pthread_once_t *once, void (*what)(void)) {
    REAL(pthread_once);
    ENTER(pthread_once, 0);
    leave();
    return real(once, what);
}

PUBLIC void call_once(once_flag *once, void (*what)(void)) {
    REAL(call_once);
    ENTER(call_once, 0);
    leave();
    real(once, what);
}

PUBLIC ssize_t pread(int fd, void *b, size_t n, off_t o) {
    REAL(pread64);
    ENTER(pread64, 0);
    ssize_t r = real(fd, b, n, o);
    leave();
    return r;
}

PUBLIC ssize_t pwrite(int fd, const void *b, size_t n, off_t o) {
    REAL(pwrite64);
    ENTER(pwrite64, 0);
    ssize_t r = real(fd, b, n, o);
    leave();
    return r;
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = (mode_t)va_arg(rest, int); \
        va_end(rest); \
    }

#define DEFINE_OPEN(name) \
    PUBLIC int name(const char *path, int flags, ...) { \
        MODE_OF(flags) \
        REAL(name); \
        ENTER(open, 0); \
        int r = real(path, flags, mode); \
        leave(); \
        return r; \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name) \
    PUBLIC int name(int directory, const char *path, int flags, ...) { \
        MODE_OF(flags) \
        REAL(name); \
        ENTER(openat, 0); \
        int r = real(directory, path, flags, mode); \
        leave(); \
        return r; \
    }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

static char category_of(long number, const unsigned long *a) {
    if (number == SYS_brk && !a[0])
        return 'o'; /* asks where the break is */
    if (number == SYS_futex) {
        int operation = (int)a[1] & 127; /* FUTEX_CMD_MASK without the private and clock bits */
        int waits = operation == 0 || operation == 6 || operation == 9 || operation == 11 ||
                    operation == 13;
        return waits ? 'w' : 'o';
    }
    for (size_t i = 0; i < SYSTEM_CALL_ROWS; i++)
        if (system_calls[i].number == number)
            return system_calls[i].category;
    return 'w'; /* not known to be harmless */
}

static void record_system_call(long number, const unsigned long *a, const void *caller,
                               const uintptr_t *frame) {
#if defined(__x86_64__)
    number &= ~0x40000000l; /* the bit of the x32 convention */
#endif
    if (number < 0 || number >= NUMBERS)
        number = NUMBERS - 1;
    ledger.all_calls[number]++;
    if (ledger.depth || category_of(number, a) == 'o')
        return;
    ledger.bare_calls[number]++;
    record(KIND_system_call, (uint64_t)number, caller, frame);
}

/* libc's function `syscall`: the number says what it is. */
PUBLIC long syscall(long number, ...) {
    unsigned long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, unsigned long);
    va_end(rest);
    static long (*real)(long, ...);
    if (__builtin_expect(!real, 0)) {
        /* not next_definition: it would come back here to report a failure */
        real = (long (*)(long, ...))real_dlsym()(RTLD_NEXT, "syscall");
        if (!real)
            abort();
    }
    if (ledger.armed && !ledger.sees_system_calls)
        record_system_call(number, a, CALLER, FRAME);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- every system call, where the kernel hands them to us --------------------------------------- */

#if defined(__x86_64__)

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define USER_DISPATCH_CODE 2 /* si_code SYS_USER_DISPATCH */
#ifndef AUDIT_ARCH_X86_64
#define AUDIT_ARCH_X86_64 0xc000003e
#endif
#define KERNEL_SA_RESTORER 0x04000000

/* The only instructions from which system calls always pass. Nothing may be the last byte: the
   kernel compares the address after the instruction. */
__asm__(".pushsection alloccheck_gate,\"ax\",@progbits\n"
        "alloccheck_gate_call:\n"
        "  mov %rdi, %rax\n  mov %rsi, %rdi\n  mov %rdx, %rsi\n  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n  mov %r9, %r8\n  mov 8(%rsp), %r9\n  syscall\n  ret\n"
        "alloccheck_gate_return:\n"
        "  mov $15, %eax\n  syscall\n  ud2\n"
        ".popsection\n");
extern long alloccheck_gate_call(long number, ...) __attribute__((visibility("hidden")));
extern void alloccheck_gate_return(void) __attribute__((visibility("hidden")));
extern char __start_alloccheck_gate[] __attribute__((visibility("hidden")));
extern char __stop_alloccheck_gate[] __attribute__((visibility("hidden")));

/* The number that a 32-bit system call has here, as far as it obtains or releases memory. */
static long of_32_bits(long number) {
    switch (number) {
    case 2:
        return SYS_fork;
    case 45:
        return SYS_brk;
    case 90:
    case 192:
        return SYS_mmap;
    case 91:
        return SYS_munmap;
    case 120:
        return SYS_clone;
    case 163:
        return SYS_mremap;
    case 190:
        return SYS_vfork;
    }
    return NUMBERS - 1;
}

static void on_system_call(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number;
    ucontext_t *interrupted = context;
    greg_t *r = interrupted->uc_mcontext.gregs;
    if (info->si_code != USER_DISPATCH_CODE) { /* somebody else's: the default is to die */
        selector = 0;
        signal(SIGSYS, SIG_DFL);
        raise(SIGSYS);
        return;
    }
    long number = info->si_syscall;
    if (info->si_arch != AUDIT_ARCH_X86_64) {
        /* int 0x80, with numbers and registers of its own: let the thread make it itself. */
        if (ledger.armed)
            record_system_call(of_32_bits(number), (unsigned long[6]){r[REG_RBX]},
                               info->si_call_addr, (const uintptr_t *)r[REG_RSP]);
        selector = 0;
        ledger.complete = 0;
        r[REG_RIP] -= 2;
        r[REG_RAX] = number;
        return;
    }
    unsigned long a[6] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]};
    if (ledger.armed)
        record_system_call(number, a, info->si_call_addr, (const uintptr_t *)r[REG_RSP]);
    switch (number) {
    case SYS_clone:
#ifdef SYS_clone3
    case SYS_clone3:
#endif
    case SYS_fork:
    case SYS_vfork:
    case SYS_rt_sigreturn:
    case SYS_sigaltstack:
        /* These depend on the stack or frame that they are made from: let the thread make them
           itself, and admit that the rest of this window is not seen. */
        selector = 0;
        ledger.complete = 0;
        r[REG_RIP] -= 2;
        r[REG_RAX] = number;
        return;
    }
    r[REG_RAX] = alloccheck_gate_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if ((number == SYS_prctl && a[0] == PR_SET_SYSCALL_USER_DISPATCH) ||
        (number == SYS_rt_sigaction && a[0] == SIGSYS && a[1])) {
        /* From now on the kernel tells somebody else: begin anew in the next window. */
        selector = 0;
        dispatching = 0;
        ledger.complete = 0;
    }
    if (number == SYS_rt_sigprocmask) {
        /* Returning restores the mask of before: carry the new one over, and keep our signal. */
        uint64_t mask = 0;
        alloccheck_gate_call(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask, 0, 0);
        mask &= ~(1ull << (SIGSYS - 1));
        memcpy(&interrupted->uc_sigmask, &mask, sizeof mask);
    }
}

static void dispatch_this_thread(void) {
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {on_system_call, SA_SIGINFO | SA_NODEFER | KERNEL_SA_RESTORER,
                alloccheck_gate_return, 0};
    dispatching = -1;
    if (alloccheck_gate_call(SYS_rt_sigaction, SIGSYS, &action, NULL, sizeof action.mask, 0, 0))
        return;
    uint64_t unblock = 1ull << (SIGSYS - 1);
    alloccheck_gate_call(SYS_rt_sigprocmask, SIG_UNBLOCK, &unblock, NULL, sizeof unblock, 0, 0);
    if (!alloccheck_gate_call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 1,
                              (long)__start_alloccheck_gate,
                              __stop_alloccheck_gate - __start_alloccheck_gate, &selector, 0))
        dispatching = 1;
}

#else

static void dispatch_this_thread(void) { dispatching = -1; }

#endif

/* ---- ways past the dynamic linker's order ---------------------------------------------------------
 * A program may ask the C library itself for its malloc, or load a library that looks there first. */

#define AS_NAME(name, category) {#name, (const void *)name},
#define AS_NAME_F(type, name, category, parameters, arguments) AS_NAME(name, category)
static const struct {
    const char *name;
    const void *function;
} wrapped[] = {
    HEAP_FUNCTIONS(AS_NAME) FORWARDED(AS_NAME_F) VARIADIC(AS_NAME) AS_NAME(__libc_malloc, a)
    AS_NAME(__libc_calloc, a) AS_NAME(__libc_realloc, a) AS_NAME(__libc_memalign, a)
    AS_NAME(__libc_valloc, a) AS_NAME(__libc_pvalloc, a) AS_NAME(__libc_free, f)
    AS_NAME(mmap64, a) AS_NAME(pread, w) AS_NAME(pwrite, w) AS_NAME(open64, w)
    AS_NAME(openat64, w) AS_NAME(syscall, o)};

/* Those of ours that go to the C library at once, past all other functions of the name. A library that
 * wraps one itself can therefore be given ours as the next: they never lead back to it. */
static const void *counted_heap(const char *name) {
    static const struct {
        const char *name;
        const void *function;
    } heap[] = {AS_NAME(malloc, a) AS_NAME(calloc, a) AS_NAME(realloc, a) AS_NAME(reallocarray, a)
                    AS_NAME(memalign, a) AS_NAME(aligned_alloc, a) AS_NAME(posix_memalign, a)
                        AS_NAME(valloc, a) AS_NAME(pvalloc, a) AS_NAME(free, f)};
    for (size_t i = 0; i < sizeof heap / sizeof *heap; i++)
        if (!strcmp(heap[i].name, name))
            return heap[i].function;
    return NULL;
}

PUBLIC void *dlsym(void *handle, const char *name) {
    find_t *real = real_dlsym();
    const void *counted = handle == RTLD_NEXT ? counted_heap(name) : NULL;
    if (counted)
        return (void *)counted;
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT)
        return real(handle, name); /* a jump: who asks is told by the return address */
    void *found = real(handle, name);
    for (size_t i = 0; found && i < sizeof wrapped / sizeof *wrapped; i++)
        if (!strcmp(wrapped[i].name, name)) {
            if (found == real(RTLD_NEXT, name)) /* not a function of its own by this name */
                return (void *)wrapped[i].function;
            dlerror(); /* that one was found nowhere is our affair */
            break;
        }
    return found;
}

PUBLIC void *dlopen(const char *file, int flags) {
    REAL(dlopen);
    return real(file, flags & ~RTLD_DEEPBIND); /* a jump, as above */
}

/* ---- the interface ------------------------------------------------------------------------------ */

/* Opens the window of the calling thread; the caller's frame is where the measured stack begins. */
PUBLIC __attribute__((noinline)) void alloccheck_arm(void) {
    memset(&ledger, 0, sizeof ledger);
    memset(others, 0, sizeof others);
    if (!dispatching)
        dispatch_this_thread();
    ledger.stack_top = FRAME + 2;
    ledger.sees_system_calls = dispatching == 1;
    ledger.complete = dispatching == 1;
    __atomic_add_fetch(&windows, 1, __ATOMIC_SEQ_CST);
    selector = dispatching == 1;
    ledger.armed = 1;
}

PUBLIC __attribute__((noinline)) void alloccheck_disarm(void) {
    ledger.armed = 0;
    selector = 0;
    __atomic_sub_fetch(&windows, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < KINDS; i++)
        ledger.others[i] = __atomic_load_n(&others[i], __ATOMIC_RELAXED);
}

PUBLIC const ledger_t *alloccheck_ledger(void) { return &ledger; }

PUBLIC const char *alloccheck_kind(int index, char *category) {
    if (index < 0 || index >= KINDS)
        return NULL;
    *category = kinds[index].category;
    return kinds[index].name;
}

PUBLIC const char *alloccheck_system_call(int row, long *number, char *category) {
    if (row < 0 || (size_t)row >= SYSTEM_CALL_ROWS)
        return NULL;
    *number = system_calls[row].number;
    *category = system_calls[row].category;
    return system_calls[row].name;
}

/* The code of interest, as pairs of addresses; false when there are too many to keep. */
PUBLIC int alloccheck_set_code(const uintptr_t *pairs, size_t count) {
    int fits = count <= RANGES;
    range_count = 0;
    memcpy(ranges, pairs, (fits ? count : RANGES) * sizeof *ranges);
    range_count = fits ? count : RANGES;
    return fits;
}

PUBLIC void alloccheck_shape(int64_t *shape) {
    shape[0] = KINDS;
    shape[1] = NUMBERS;
    shape[2] = EVENTS;
    shape[3] = sizeof(ledger_t);
}

/* What this process can see: bit 0 libc's own allocations, bit 1 system calls, bit 2 the GIL. */
PUBLIC int alloccheck_coverage(void) {
    int seen = 0;
    pid_t (*volatile ask)(void) = getppid;
    char *(*volatile copy)(const char *) = strdup;
    alloccheck_arm();
    char *p = copy("x");
    free(p);
    ask();
    alloccheck_disarm();
    if (ledger.counts[KIND_malloc] == 1 && ledger.counts[KIND_free] == 1)
        seen |= 1;
    if (ledger.complete && ledger.all_calls[SYS_getppid] == 1)
        seen |= 2;
    if (dlsym(RTLD_DEFAULT, "PyGILState_Ensure") == (void *)PyGILState_Ensure)
        seen |= 4;
    return seen;
}

/* One function for each function that the counter wraps because it takes a lock or waits: each makes
 * exactly that call, on something that is free, and undoes it. test_oracle_functions.py runs them. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t semaphore;
static mtx_t mtx;
static cnd_t cnd;
static int epoll_fd, pair[2];
static const struct timespec past = {1, 0}, nothing = {0, 0};
static struct timespec rest;
static sigset_t usr1;

__attribute__((constructor)) static void prepare(void) {
    pthread_spin_init(&spin, 0);
    pthread_barrier_init(&barrier, NULL, 1);
    sem_init(&semaphore, 0, 1000);
    mtx_init(&mtx, mtx_timed);
    cnd_init(&cnd);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
}

static void *of_thread(void *argument) { return argument; }
static int of_c_thread(void *argument) { return argument == NULL; }
static void nothing_done(void) {}
static void asks_the_kernel(void) { sched_yield(); }
static pthread_once_t once_again;
static once_flag again;

static long unlocked(int failed) {
    return failed ? -1 : pthread_mutex_unlock(&mutex);
}

static pthread_t started(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, of_thread, NULL))
        abort();
    return thread;
}

static thrd_t started_in_c(void) {
    thrd_t thread;
    if (thrd_create(&thread, of_c_thread, NULL) != thrd_success)
        abort();
    return thread;
}

static struct timespec later(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 60;
    return t;
}

static long raw(long number, long a, long b, long c, long d) {
    long result;
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
#else
    result = syscall(number, a, b, c, d);
#endif
    return result;
}

static int word;

#define ACTS(X) \
    X(mtx_lock, mtx_lock(&mtx) || mtx_unlock(&mtx)) \
    X(mtx_timedlock, mtx_timedlock(&mtx, &past) || mtx_unlock(&mtx)) \
    X(cnd_wait, told(by_c)) \
    X(cnd_timedwait, cnd_timed()) \
    X(thrd_join, thrd_join(started_in_c(), NULL)) \
    X(thrd_sleep, thrd_sleep(&nothing, NULL)) \
    X(thrd_yield, (thrd_yield(), 0)) \
    X(call_once, (again = (once_flag)ONCE_FLAG_INIT, call_once(&again, nothing_done), 0)) \
    X(flockfile, (flockfile(stdin), funlockfile(stdin), 0)) \
    X(pthread_mutex_lock, unlocked(pthread_mutex_lock(&mutex))) \
    X(pthread_mutex_timedlock, unlocked(pthread_mutex_timedlock(&mutex, &past))) \
    X(pthread_mutex_clocklock, unlocked(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &past))) \
    X(pthread_rwlock_rdlock, pthread_rwlock_rdlock(&rwlock) || pthread_rwlock_unlock(&rwlock)) \
    X(pthread_rwlock_wrlock, pthread_rwlock_wrlock(&rwlock) || pthread_rwlock_unlock(&rwlock)) \
    X(pthread_rwlock_timedrdlock, \
      pthread_rwlock_timedrdlock(&rwlock, &past) || pthread_rwlock_unlock(&rwlock)) \
    X(pthread_rwlock_timedwrlock, \
      pthread_rwlock_timedwrlock(&rwlock, &past) || pthread_rwlock_unlock(&rwlock)) \
    X(pthread_rwlock_clockrdlock, pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &past) || \
                                      pthread_rwlock_unlock(&rwlock)) \
    X(pthread_rwlock_clockwrlock, pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &past) || \
                                      pthread_rwlock_unlock(&rwlock)) \
    X(pthread_spin_lock, pthread_spin_lock(&spin) || pthread_spin_unlock(&spin)) \
    X(pthread_cond_wait, told_posix()) \
    X(pthread_cond_timedwait, condition_timed(0)) \
    X(pthread_cond_clockwait, condition_timed(1)) \
    X(pthread_barrier_wait, pthread_barrier_wait(&barrier) != PTHREAD_BARRIER_SERIAL_THREAD) \
    X(pthread_once, (once_again = PTHREAD_ONCE_INIT, pthread_once(&once_again, nothing_done))) \
    X(pthread_once_that_waits, \
      (once_again = PTHREAD_ONCE_INIT, pthread_once(&once_again, asks_the_kernel))) \
    X(pthread_join, pthread_join(started(), NULL)) \
    X(pthread_timedjoin_np, joined(0)) \
    X(pthread_clockjoin_np, joined(1)) \
    X(sem_wait, sem_wait(&semaphore)) \
    X(sem_timedwait, sem_timedwait(&semaphore, &past)) \
    X(sem_clockwait, sem_clockwait(&semaphore, CLOCK_MONOTONIC, &past)) \
    X(nanosleep, nanosleep(&nothing, NULL)) \
    X(clock_nanosleep, clock_nanosleep(CLOCK_MONOTONIC, 0, &nothing, &rest)) \
    X(sleep, sleep(0)) \
    X(poll, poll(NULL, 0, 0)) \
    X(ppoll, ppoll(NULL, 0, &nothing, NULL)) \
    X(select, select(0, NULL, NULL, NULL, &(struct timeval){0, 0})) \
    X(pselect, pselect(0, NULL, NULL, NULL, &nothing, NULL)) \
    X(epoll_wait, epoll_wait(epoll_fd, &(struct epoll_event){0}, 1, 0)) \
    X(epoll_pwait, epoll_pwait(epoll_fd, &(struct epoll_event){0}, 1, 0, NULL)) \
    X(epoll_pwait2, epoll_pwait2(epoll_fd, &(struct epoll_event){0}, 1, &nothing, NULL)) \
    X(accept4, accept4(-1, NULL, NULL, 0) != -1) \
    X(sigtimedwait, sigtimedwait(&usr1, NULL, &nothing) != -1) \
    X(flock, flock(-1, LOCK_SH) != -1) \
    X(wait, wait(NULL) != -1) \
    X(waitpid, waitpid(1 << 22, NULL, WNOHANG) != -1) \
    X(wait4, wait4(1 << 22, NULL, WNOHANG, NULL) != -1) \
    X(waitid, waitid(P_PID, 1 << 22, NULL, WNOHANG | WEXITED) != -1) \
    X(futex_wait, raw(SYS_futex, (long)&word, 0, 1, 0) != -EAGAIN) \
    X(futex_wait_by_function, syscall(SYS_futex, &word, 9, 1, NULL, NULL, -1) != -1) \
    X(futex_wake, raw(SYS_futex, (long)&word, 1, 1, 0)) \
    X(mtx_trylock, mtx_trylock(&mtx) || mtx_unlock(&mtx))

static int flag;

/* Each signals once the other side waits: until then that holds the mutex. */
static int by_c(void *argument) {
    mtx_lock(&mtx);
    flag = 1;
    cnd_signal(&cnd);
    mtx_unlock(&mtx);
    return argument != NULL;
}

static void *by_posix(void *argument) {
    pthread_mutex_lock(&mutex);
    flag = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static long told(thrd_start_t start) {
    thrd_t thread;
    flag = 0;
    if (mtx_trylock(&mtx) || thrd_create(&thread, start, NULL))
        return -1;
    while (!flag)
        cnd_wait(&cnd, &mtx);
    mtx_unlock(&mtx);
    return thrd_join(thread, NULL);
}

static long told_posix(void) {
    pthread_t thread;
    flag = 0;
    if (pthread_mutex_trylock(&mutex) || pthread_create(&thread, NULL, by_posix, NULL))
        return -1;
    while (!flag)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return pthread_join(thread, NULL);
}

static long cnd_timed(void) {
    if (mtx_trylock(&mtx))
        return -1;
    int r = cnd_timedwait(&cnd, &mtx, &past);
    mtx_unlock(&mtx);
    return r != thrd_timedout;
}

static long condition_timed(int by_clock) {
    if (pthread_mutex_trylock(&mutex))
        return -1;
    int r = by_clock ? pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &past)
                     : pthread_cond_timedwait(&condition, &mutex, &past);
    return unlocked(r != ETIMEDOUT);
}

static long joined(int by_clock) {
    struct timespec until = later();
    pthread_t thread = started();
    return by_clock ? pthread_clockjoin_np(thread, NULL, CLOCK_REALTIME, &until)
                    : pthread_timedjoin_np(thread, NULL, &until);
}

#define AS_FUNCTION(name, call) \
    static long act_##name(void) { return call; }
ACTS(AS_FUNCTION)
#define AS_ROW(name, call) {#name, act_##name},
static const struct {
    const char *name;
    long (*act)(void);
} acts[] = {ACTS(AS_ROW)};

const char *name_of(long which) {
    return which < (long)(sizeof acts / sizeof *acts) ? acts[which].name : NULL;
}

long run(long which) { return acts[which].act(); }

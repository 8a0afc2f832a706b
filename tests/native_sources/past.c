/* Ways to obtain memory, and to get out of sight, that pass the dynamic linker's usual order. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

long grab(void) {
    void *volatile p = malloc(48);
    free(p);
    return p == NULL;
}

/* As a library does that wraps the heap for its own use. */
long grab_next(void) {
    void *(*obtain)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    void (*release)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    void *volatile p = obtain(48);
    release(p);
    return p == NULL;
}

/* A function of its own by the name of a wrapped one. */
unsigned sleep(unsigned n) { return n; }

#if defined(__x86_64__)
static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* mmap2 and munmap by the system calls of 32-bit programs. */
static long by_interrupt(void) {
    long p, r;
    __asm__ volatile("push %%rbp\n xor %%ebp, %%ebp\n int $0x80\n pop %%rbp"
                     : "=a"(p)
                     : "a"(192l), "b"(0l), "c"(4096l), "d"(3l), "S"(0x22l), "D"(-1l)
                     : "memory", "r8", "r9", "r10", "r11");
    if ((unsigned)p > -4096u)
        return -1;
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(91l), "b"((long)(unsigned)p), "c"(4096l)
                     : "memory", "r8", "r9", "r10", "r11");
    return r;
}

/* mmap by the x32 convention, which most kernels refuse: that it was tried is seen. */
static long by_x32(void) {
    long p = raw(0x40000000 + SYS_mmap, 0, 4096, 3, 0x22, -1, 0);
    if (p > 0)
        munmap((void *)p, 4096);
    return 0;
}

/* Turns the dispatch off: what follows cannot be seen. */
static long dispatch_off(void) {
    prctl(59, 0, 0, 0, 0);
    return raw(SYS_getppid, 0, 0, 0, 0, 0, 0) <= 0;
}

static void ignored(int number) { (void)number; }

/* Takes the signal of the dispatch for itself, and gives it up. */
static long signal_taken(void) {
    struct sigaction own = {.sa_handler = ignored}, before;
    sigaction(SIGSYS, &own, &before);
    long r = raw(SYS_getppid, 0, 0, 0, 0, 0, 0) <= 0;
    sigaction(SIGSYS, &before, NULL);
    return r;
}

static long handled(void) {
    struct sigaction own = {.sa_handler = ignored}, before;
    sigaction(SIGUSR2, &own, &before);
    raise(SIGUSR2);
    sigaction(SIGUSR2, &before, NULL);
    return 0;
}

static long shadow_stack(void) { return raw(453, 0, 0, 0xff, 0, 0, 0) >= 0; }

static long (*const acts[])(void) = {by_interrupt, by_x32, dispatch_off, signal_taken, handled,
                                     shadow_stack};

long run(long which) { return acts[which](); }
#endif

/* Functions whose effects are known by construction. EXPECT names every effect that a caller sees
 * outside process death: "clean" for none, "raise:allocate" for one that happens only when the call
 * ends by unwinding, "more" if there may be others. The tests read these lines. Compiled as C and as
 * C++. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#ifndef EXPECT
#define EXPECT(...)
#endif
#define NOINLINE __attribute__((noinline))
#ifdef __cplusplus
extern "C" {
#endif

void *volatile sink;
volatile int one = 1;

static NOINLINE double grow(int n) {
  double *p = (double *)malloc(n * sizeof *p + 1);
  sink = p;
  return p[0];
}
static NOINLINE double middle(int n) { return grow(n + 1) * 2.0; }
static NOINLINE double plus(double x) { return x + 1; }
static NOINLINE double twice(double x) { return x * 2; }
static NOINLINE double less(double x) { return x - 3; }
static NOINLINE double same(double x) { return x; }
static NOINLINE double greedy(double x) { return grow((int)x); }

/* --- direct, indirect and tail calls ------------------------------------------------------- */
EXPECT(clean) double arithmetic(double x) { return x * x + 1; }
EXPECT(allocate, block) double direct(int n) { sink = malloc(n); return 1; }
EXPECT(allocate, block) double indirect(int n) { return middle(n) + 1; }
EXPECT(allocate, block) double tail(int n) { return grow(n); }
EXPECT(clean) double tail_clean(double x) { return pow(x, 3.0); }
EXPECT(clean) double library(double x) { return sin(x) + cos(x) + exp(x); }
EXPECT(allocate, block) double zeroed(int n) { sink = calloc(n, 8); return 0; }
EXPECT(free, block, allocate) double release(void *p) { free(p); return 0; }
EXPECT(clean) long recursion(long n) { return n < 2 ? n : recursion(n - 1) + recursion(n - 2); }
EXPECT(allocate, block) long greedy_recursion(long n) {
  if (n < 2) { sink = malloc(n + 1); return n; }
  return greedy_recursion(n - 1) + greedy_recursion(n - 2);
}

/* --- switches ------------------------------------------------------------------------------ */
EXPECT(clean) double dense(int k, double x) {
  switch (k) {
  case 0: return sin(x);
  case 1: return cos(x) + 1;
  case 2: return exp(x) * x;
  case 3: return x * x * x + 1;
  case 4: return log(x) - 2;
  case 5: return x / 7;
  case 6: return fabs(x) + 3;
  case 7: return atan(x) + 9;
  default: return 0;
  }
}
EXPECT(allocate, block) double dense_allocating(int k, double x) {
  switch (k) {
  case 0: return sin(x);
  case 1: return cos(x) + 1;
  case 2: return exp(x) * x;
  case 3: return x * x * x + 1;
  case 4: return log(x) - 2;
  case 5: return grow(k) / 7;
  case 6: return fabs(x) + 3;
  case 7: return atan(x) + 9;
  default: return 0;
  }
}
EXPECT(allocate, block) double last_case_allocating(unsigned char k, double x) {
  switch (k) {
  case 10: return sin(x);
  case 11: return cos(x) + 1;
  case 12: return exp(x) * x;
  case 13: return x * x * x + 1;
  case 14: return log(x) - 2;
  case 15: return x / 7;
  case 16: return grow(k);
  }
  return x;
}
EXPECT(allocate, block) double sparse_allocating(long k, double x) {
  switch (k) {
  case 1: return sin(x);
  case 1000: return cos(x) + 1;
  case 50000: return exp(x) * x;
  case 1234567: return grow(2);
  case 99999999999L: return log(x) - 2;
  default: return x;
  }
}
EXPECT(allocate, block) double cold_case(int k, double x) {
  switch (k) {
  case 0: return sin(x);
  case 1: return cos(x) + 1;
  case 2: return exp(x) * x;
  case 3: if (__builtin_expect(x > 1e9, 0)) return grow(3); return x;
  case 4: return log(x) - 2;
  case 5: return x / 7;
  default: return 0;
  }
}
EXPECT(clean) double computed_goto(const unsigned char *p, double x) {
  static const void *const label[] = {&&a, &&b, &&c, &&d};
  goto *label[*p & 3];
a: x += 1; p++; goto *label[*p & 3];
b: x *= 2; p++; goto *label[*p & 3];
c: x = sin(x); p++; goto *label[*p & 3];
d: return x;
}
EXPECT(allocate, block) double computed_goto_allocating(const unsigned char *p, double x) {
  static const void *const label[] = {&&a, &&b, &&c, &&d};
  goto *label[*p & 3];
a: x += 1; p++; goto *label[*p & 3];
b: x *= 2; p++; goto *label[*p & 3];
c: x = grow(*p); p++; goto *label[*p & 3];
d: return x;
}

/* --- pointers to functions ----------------------------------------------------------------- */
typedef double (*unary)(double);
EXPECT(dispatch) double argument(unary f, double x) { return f(x) + 1; }
static const unary table[4] = {plus, twice, less, same};
EXPECT(clean) double constant_table(unsigned i, double x) { return table[i & 3](x) + 1; }
static const unary greedy_table[4] = {plus, twice, greedy, same};
EXPECT(allocate, block) double greedy_constant_table(unsigned i, double x) { return greedy_table[i & 3](x) + 1; }
unary open_table[4] = {plus, twice, less, same};
EXPECT(dispatch) double writable_table(unsigned i, double x) { return open_table[i & 3](x) + 1; }
EXPECT(clean) double selected(double x, int k) { unary f = k ? plus : twice; return f(x) + f(x + 1); }
EXPECT(allocate, block) double selected_greedy(double x, int k) { unary f = k ? plus : greedy; return f(x) + f(x + 1); }
struct methods { unary f; };
struct object { const struct methods *methods; double state; };
EXPECT(dispatch) double virtual_call(struct object *o, double x) { return o->methods->f(x); }
static const struct methods fixed = {plus};
EXPECT(clean) double fixed_method(double x) { return fixed.f(x); }
EXPECT(dispatch) double overwritten(double x, unary g) {
  volatile unary f = plus;
  f = g;
  return f(x);
}

/* --- process death and other ways out ------------------------------------------------------- */
EXPECT(clean) double asserted(double x) { assert(x > 0); return x; }
EXPECT(clean) double trap(double x) { if (x < 0) __builtin_trap(); return x; }
EXPECT(clean) double aborting(double x) { if (x < 0) abort(); return x; }
EXPECT(clean) double dying_words(double x) { if (x < 0) { sink = malloc(8); abort(); } return x; }
EXPECT(allocate, block) double long_death(double x) {
  if (x < 0) { while (one) sink = malloc(8); abort(); }
  return x;
}
EXPECT(allocate, block) void never_returns(void) { for (;;) sink = malloc(1); }
static NOINLINE void grow_for_ever(void) { for (;;) sink = malloc(8); }
EXPECT(allocate, block) double death_that_never_comes(double x) { if (x < 0) { grow_for_ever(); abort(); } return x; }
jmp_buf place;
EXPECT(raise, raise:allocate, raise:block) double grows_and_jumps_away(double x) { if (x < 0) { sink = malloc(8); longjmp(place, 1); } return x; }
EXPECT(raise, allocate, block) double grows_and_jumps_back(double x) {
  if (setjmp(place)) return 1;
  if (x < 0) { sink = malloc(8); longjmp(place, 1); }
  return x;
}
EXPECT(raise, allocate, block) double grows_in_a_loop_and_jumps(double x) {
  if (x < 0) { while (one) sink = malloc(8); longjmp(place, 1); }
  return x;
}
EXPECT(raise, allocate, block) double never_comes_to_jump(double x) {
  if (x < 0) { if (x < -9) grow_for_ever(); longjmp(place, 1); }
  return x;
}
static NOINLINE void spin(void) { while (one) sink = malloc(8); for (;;) one = 1; }
EXPECT(allocate, block) double spins_before_it_jumps(double x) {
  if (x < 0) { spin(); longjmp(place, 1); }
  return x;
}
static NOINLINE void perhaps_for_ever(void) { if (one) for (;;) sink = malloc(8); }
EXPECT(raise, allocate, block) double perhaps_never_comes_to_jump(double x) {
  if (x < 0) { perhaps_for_ever(); longjmp(place, 1); }
  return x;
}
EXPECT(allocate, block) double perhaps_never_dies(double x) { if (x < 0) { perhaps_for_ever(); abort(); } return x; }
EXPECT(raise, allocate, block) double grows_before_it_hangs_or_jumps(double x) {
  if (x < 0) { sink = malloc(8); if (one) for (;;) one = 1; longjmp(place, 1); }
  return x;
}
/* Nobody catches: the unwinder comes back. */
EXPECT(raise, allocate, block) double nobody_catches(struct _Unwind_Exception *e) { _Unwind_RaiseException(e); sink = malloc(8); return 1; }
EXPECT(raise) double jump_away(double x) { if (x < 0) longjmp(place, 1); return x; }
EXPECT(clean) double lands(double x) { if (setjmp(place)) return -x; return x; }
EXPECT(clean) double guarded(const char *s) { char b[64]; strncpy(b, s, 63); b[63] = 0; return strlen(b) + b[3]; }

/* --- waiting and system calls ---------------------------------------------------------------- */
EXPECT(block) double pause_call(int n) { long r = SYS_pause; __asm__ volatile("syscall" : "+a"(r) : : "rcx", "r11", "memory"); return n + r; }
EXPECT(clean) long own_pid(void) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_getpid) : "rcx", "r11", "memory"); return r; }
EXPECT(allocate) long map(void) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_brk), "D"(0) : "rcx", "r11", "memory"); return r; }
EXPECT(unknown) long any_system_call(long n) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(n) : "rcx", "r11", "memory"); return r; }
EXPECT(unknown) long old_gate(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory"); return r; }
/* A cancellation point: what a cancelled thread does is reached too. */
EXPECT(block, more) double write_out(double x) { return write(1, &x, sizeof x) + x; }

/* --- thread-local variables, errno, stack --------------------------------------------------- */
__thread double dynamic_tls = 3;
EXPECT(allocate/first call per thread, block/first call per thread) double general_dynamic(double x) { dynamic_tls += x; return dynamic_tls; }
static __thread double local_a __attribute__((tls_model("local-dynamic"))), local_b __attribute__((tls_model("local-dynamic")));
EXPECT(allocate/first call per thread, block/first call per thread) double local_dynamic(double x) { local_a += x; local_b -= local_a; return local_a * local_b; }
static __thread double initial __attribute__((tls_model("initial-exec")));
EXPECT(clean) double initial_exec(double x) { initial += x; return initial; }
EXPECT(clean) double set_errno(double x) { if (x < 0) { errno = EDOM; return 0; } return x; }
EXPECT(clean) double on_stack(int n) { double a[n + 1]; for (int i = 0; i < n; i++) a[i] = i; double s = 0; for (int i = 0; i < n; i++) s += a[n - 1 - i]; return s; }

/* --- indirect functions, weak symbols, variadic calls, callbacks --------------------------- */
static double chosen(double x) { return x + 4; }
unary choose(void) { return chosen; }
double resolved(double) __attribute__((ifunc("choose")));
EXPECT(clean) double through_ifunc(double x) { return resolved(x) + 1; }
static double choosy(double x) { return grow((int)x); }
unary choose_greedy(void) { return choosy; }
double resolved_greedy(double) __attribute__((ifunc("choose_greedy")));
EXPECT(allocate, block) double through_greedy_ifunc(double x) { return resolved_greedy(x) + 1; }
extern double nowhere(double) __attribute__((weak));
EXPECT(clean) double weak_missing(double x) { return nowhere ? nowhere(x) : x; }
__attribute__((weak)) double overridable(double x) { return grow((int)x); }
EXPECT(allocate, block) double weak_present(double x) { return overridable(x) + 1; }
static NOINLINE double sum(int n, ...) { va_list l; va_start(l, n); double s = 0; for (int i = 0; i < n; i++) s += va_arg(l, double); va_end(l); return s; }
EXPECT(clean) double variadic(double x) { return sum(3, x, 2.0, 3.0); }
static NOINLINE double greedy_sum(int n, ...) { va_list l; va_start(l, n); sink = malloc(n); double s = va_arg(l, double); va_end(l); return s; }
EXPECT(allocate, block) double greedy_variadic(double x) { return greedy_sum(3, x, 2.0, 3.0); }
static int ordered(const void *a, const void *b) { double x = *(const double *)a, y = *(const double *)b; return (x > y) - (x < y); }
static int greedy_order(const void *a, const void *b) { sink = malloc(1); return a < b; }
EXPECT(clean) double small_sort(double *a) { qsort(a, 5, sizeof *a, ordered); return a[0]; }
EXPECT(allocate, block, free) double sort(double *a, int n) { qsort(a, n, sizeof *a, ordered); return a[0]; }
EXPECT(allocate, block) double greedy_sort(double *a) { qsort(a, 5, sizeof *a, greedy_order); return a[0]; }
// Calls of the same function with other arguments: each counts.
EXPECT(allocate, block, free) double two_sizes(double *a, int n) { qsort(a, 5, sizeof *a, ordered); qsort(a, n, sizeof *a, ordered); return a[0]; }
EXPECT(allocate, block) double two_orders(double *a) { qsort(a, 5, sizeof *a, ordered); qsort(a, 5, sizeof *a, greedy_order); return a[0]; }
EXPECT(dispatch) void *search(const double *k, const double *a, int n, int (*f)(const void *, const void *)) { return bsearch(k, a, n, sizeof *a, f); }
EXPECT(clean) void *ordered_search(const double *k, const double *a, int n) { return bsearch(k, a, n, sizeof *a, ordered); }
EXPECT(allocate, block) void *greedy_search(const double *k, const double *a, int n) { return bsearch(k, a, n, sizeof *a, greedy_order); }
#ifdef __cplusplus
}
#endif

/* Functions whose effects are known by construction, without any library; see truth.c for EXPECT.
 * Built for other machines too, where nothing is loaded: the code is read as data. */
#ifndef EXPECT
#define EXPECT(...)
#endif
#define NOINLINE __attribute__((noinline))
typedef double (*unary)(double);
void *volatile sink;
volatile int one = 1;

static inline __attribute__((always_inline)) long kernel(long number, long a) {
#ifdef __aarch64__
  register long n __asm__("x8") = number;
  register long r __asm__("x0") = a;
  __asm__ volatile("svc #0" : "+r"(r) : "r"(n) : "memory");
#else
  long r;
  __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a) : "rcx", "r11", "memory");
#endif
  return r;
}
#ifdef __aarch64__
enum { BRK = 214, GETPID = 172, EXIT = 94 };
#else
enum { BRK = 12, GETPID = 39, EXIT = 231 };
#endif
static NOINLINE double grow(int n) { sink = (void *)kernel(BRK, n); return n; }
static NOINLINE double middle(int n) { return grow(n + 1) * 2.0; }
static NOINLINE double plus(double x) { return x + 1; }
static NOINLINE double twice(double x) { return x * 2; }
static NOINLINE double less(double x) { return x - 3; }
static NOINLINE double same(double x) { return x * one; }
static NOINLINE double greedy(double x) { return grow((int)x); }
static NOINLINE _Noreturn void end(void) { for (;;) kernel(EXIT, 1); }

EXPECT(clean) double arithmetic(double x) { return x * x + 1; }
EXPECT(allocate) double direct(int n) { sink = (void *)kernel(BRK, n); return 1; }
EXPECT(allocate) double indirect(int n) { return middle(n) + 1; }
EXPECT(allocate) double tail(int n) { return grow(n); }
EXPECT(clean) long own_pid(void) { return kernel(GETPID, 0); }
EXPECT(unknown) long any_system_call(long n) { return kernel(n, 0); }
EXPECT(allocate) long one_of_two(long n) { return kernel(n ? BRK : GETPID, 0); }

/* --- dense switches: entries of one, two and four bytes ------------------------------------ */
#define CASES(F, G) \
  case 0: return F(x) + k; case 1: return F(x + 1) * 3; case 2: return less(x) / 7; case 3: return x * x * x + 1; \
  case 4: return same(x) - 2; case 5: return x / 7; case 6: return twice(x) + 3; case 7: return plus(x) + 9; \
  case 8: return F(x) * k; case 9: return F(x * 5) - 3; case 10: return less(x) * 7; case 11: return x * x - 1; \
  case 12: return same(x) / 2; case 13: return x / 17; case 14: return twice(x) - 3; case 15: return plus(x) - 9; \
  case 16: return F(x) / k; case 17: return F(x - 5) - 3; case 18: return less(x) * 27; case 19: return G(x - 8); \
  case 20: return same(x + 2); case 21: return x / 3; case 22: return twice(x) * 33; case 23: return plus(x) - 19;
EXPECT(clean) double dense(int k, double x) { switch (k) { CASES(plus, less) default: return 0; } }
EXPECT(allocate) double dense_allocating(int k, double x) { switch (k) { CASES(plus, greedy) default: return 0; } }
EXPECT(allocate) double dense_shifted(unsigned char k, double x) { switch (k + 3 - 13) { CASES(twice, greedy) } return x; }
EXPECT(clean) double dense_long(long k, double x) { switch (k) { CASES(twice, less) } return x; }
EXPECT(allocate) double dense_last(unsigned k, double x) { switch (k) { CASES(twice, less) case 24: return grow(k); } return x; }
/* Between the cases lies so much that their distances do not fit into a byte. */
#define MUCH(n) if (x > n) { sink = (char *)sink + n; x = x / 3 + n; sink = (char *)sink - 7 * n; x = x * x - n; }
#define MORE(n) MUCH(n) MUCH(n + 1) MUCH(n + 2) MUCH(n + 3) MUCH(n + 4) MUCH(n + 5) MUCH(n + 6) MUCH(n + 7)
#define FAR(n, f) case n: MORE(10 * n) return f(x);
EXPECT(clean) double wide(int k, double x) {
  switch (k) { FAR(0, plus) FAR(1, less) FAR(2, twice) FAR(3, same) FAR(4, plus) FAR(5, less) FAR(6, twice) FAR(7, same)
    FAR(8, plus) FAR(9, less) FAR(10, twice) FAR(11, same) FAR(12, plus) FAR(13, less) FAR(14, twice) FAR(15, same)
    FAR(16, plus) FAR(17, less) FAR(18, twice) FAR(19, same) default: return 0; }
}
EXPECT(allocate) double wide_allocating(int k, double x) {
  switch (k) { FAR(0, plus) FAR(1, less) FAR(2, twice) FAR(3, same) FAR(4, plus) FAR(5, less) FAR(6, twice) FAR(7, same)
    FAR(8, plus) FAR(9, less) FAR(10, twice) FAR(11, same) FAR(12, plus) FAR(13, less) FAR(14, twice) FAR(15, same)
    FAR(16, plus) FAR(17, less) FAR(18, greedy) FAR(19, same) default: return 0; }
}
EXPECT(allocate) double sparse_allocating(long k, double x) {
  switch (k) { case 1: return plus(x); case 1000: return twice(x); case 50000: return less(x); case 1234567: return grow(2); }
  return x;
}
EXPECT(clean) double computed_goto(const unsigned char *p, double x) {
  static const void *const label[] = {&&a, &&b, &&c, &&d};
  goto *label[*p & 3];
a: x += 1; p++; goto *label[*p & 3];
b: x *= 2; p++; goto *label[*p & 3];
c: x = same(x); p++; goto *label[*p & 3];
d: return x;
}
EXPECT(allocate) double computed_goto_allocating(const unsigned char *p, double x) {
  static const void *const label[] = {&&a, &&b, &&c, &&d};
  goto *label[*p & 3];
a: x += 1; p++; goto *label[*p & 3];
b: x *= 2; p++; goto *label[*p & 3];
c: x = grow(*p); p++; goto *label[*p & 3];
d: return x;
}

/* --- pointers to functions ------------------------------------------------------------------ */
EXPECT(dispatch) double argument(unary f, double x) { return f(x) + 1; }
static const unary table[4] = {plus, twice, less, same};
EXPECT(clean) double constant_table(unsigned i, double x) { return table[i & 3](x) + 1; }
static const unary greedy_table[4] = {plus, twice, greedy, same};
EXPECT(allocate) double greedy_constant_table(unsigned i, double x) { return greedy_table[i & 3](x) + 1; }
EXPECT(dispatch) double unbounded_table(unsigned i, double x) { return table[i](x) + 1; }
unary open_table[4] = {plus, twice, less, same};
EXPECT(dispatch) double writable_table(unsigned i, double x) { return open_table[i & 3](x) + 1; }
EXPECT(clean) double selected(double x, int k) { unary f = k ? plus : twice; return f(x) + f(x + 1); }
EXPECT(allocate) double selected_greedy(double x, int k) { unary f = k ? plus : greedy; return f(x) + f(x + 1); }
EXPECT(dispatch) double overwritten(double x, unary g) { volatile unary f = plus; f = g; return f(x); }
EXPECT(dispatch) double given_away(double x, void (*fill)(volatile int *)) {
  volatile int k = 2;
  fill(&k);
  return x * k;
}

/* --- ways out, thread-local variables ------------------------------------------------------- */
EXPECT(clean) double trap(double x) { if (x < 0) __builtin_trap(); return x; }
EXPECT(clean) double ending(double x) { if (x < 0) end(); return x; }
EXPECT(allocate) void never_returns(void) { for (;;) sink = (void *)kernel(BRK, 0); }
static __thread double initial __attribute__((tls_model("initial-exec")));
EXPECT(clean) double initial_exec(double x) { initial += x; return initial; }
EXPECT(clean) long recursion(long n) { return n < 2 ? n : recursion(n - 1) + recursion(n - 2); }
EXPECT(allocate) long greedy_recursion(long n) { if (n < 2) { grow(n); return n; } return greedy_recursion(n - 1) + greedy_recursion(n - 2); }
static double chosen(double x) { return x + 4; }
EXPECT(clean) double plain_pointer(double x) { unary volatile f = 0; return f ? x : chosen(x); }

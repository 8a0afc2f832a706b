// C++ functions whose effects are known by construction; see truth.c for EXPECT.
#include <cstdlib>
#include <stdexcept>
#ifndef EXPECT
#define EXPECT(...)
#endif
#define NOINLINE __attribute__((noinline))
struct Shape { virtual double area() const = 0; virtual ~Shape() = default; };
struct Square final : Shape { double side; explicit Square(double s) : side(s) {} double area() const override { return side * side; } };
struct Sack final : Shape { double area() const override; };
extern "C" {
extern int *volatile kept;
int *volatile kept;
volatile int one = 1;
static NOINLINE void grow(int n) { kept = static_cast<int *>(malloc(n)); }
EXPECT(allocate, block, raise) int make(int n) { kept = new int[n & 63]; return 1; }
EXPECT(free, block, allocate/first call per thread) int drop(int *p) { delete[] p; return 1; }

// --- virtual calls ---
EXPECT(dispatch, more) double area(const Shape *s) { return s->area(); }
EXPECT(clean) double known_area(double x) { Square s(x); return s.area(); }
EXPECT(allocate, block) double known_sack() { Sack s; return s.area(); }
EXPECT(clean) double plain(double x) noexcept { return x + 1; }

// --- exceptions that leave the call: what happens only on the way is told apart ---
EXPECT(raise, raise:allocate) int thrower(int n) { if (n > 3) throw n; return n; }
static NOINLINE int risky(int n) { if (n > 3) throw n; return n; }
static NOINLINE int calm(int n) { __asm__ volatile("" : "+r"(n)); return n; }
static NOINLINE int grows_and_fails(int n) { if (n > 3) { grow(n); throw n; } return n; }
EXPECT(raise, raise:allocate) int passes_on(int n) { return risky(n) + 1; }
EXPECT(raise, raise:allocate, raise:block) int grows_before_it_throws(int n) { return grows_and_fails(n) + 1; }
EXPECT(raise, more) int out_of_range(int n) { if (n > 3) throw std::out_of_range("n"); return n; }
EXPECT(raise, raise:allocate) int rethrows(int n) { try { return risky(n); } catch (...) { kept = static_cast<int *>(realloc(kept, 9)); throw; } }
EXPECT(raise, raise:allocate) int terminates(int n) noexcept { return risky(n); }

// --- and what does not: it is done before the throw, in a loop, or the exception is caught ---
EXPECT(raise, allocate, block) int grows_anyway(int n) { grow(n); return risky(n); }
EXPECT(raise, allocate, block) int grows_in_a_loop(int n) { if (n > 3) { while (one) grow(n); throw n; } return n; }
// The call may hang on the way to the throw, by a loop that does nothing else.
static NOINLINE void stalls(int n) { if (n > 3) for (;;) asm volatile(""); }
EXPECT(raise, allocate, block) int grows_and_stalls(int n) { if (n > 1) { grow(n); stalls(n); throw n; } return n; }
EXPECT(raise, allocate, block, more) int caught(int n) { try { return risky(n); } catch (int) { kept = static_cast<int *>(realloc(kept, 9)); return 0; } }
EXPECT(raise, allocate, block, more) int swallowed(int n) { try { return grows_and_fails(n); } catch (...) { return 0; } }
static NOINLINE int forgives(int n) { try { return grows_and_fails(n); } catch (...) { return 0; } }
EXPECT(raise, allocate, block, more) int swallowed_below(int n) { return forgives(n) + risky(n); }
EXPECT(clean) int never_thrown(int n) { try { return calm(n); } catch (int) { kept = static_cast<int *>(realloc(kept, 9)); return 0; } }
}
struct Guard { ~Guard() { grow(4); } };
extern "C" {
EXPECT(raise, allocate, block) int cleans_up(int n) { Guard g; return risky(n); }
}
double Sack::area() const { grow(4); return 1; }

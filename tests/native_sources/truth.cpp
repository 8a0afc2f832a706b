// C++ functions whose effects are known by construction; see truth.c for EXPECT.
#include <cstdlib>
#define EXPECT(...)
struct Shape { virtual double area() const = 0; virtual ~Shape() = default; };
struct Square final : Shape { double side; explicit Square(double s) : side(s) {} double area() const override { return side * side; } };
extern "C" {
extern int *volatile kept;
int *volatile kept;
EXPECT(allocate, block, raise) int make(int n) { kept = new int[n & 63]; return 1; }
EXPECT(free, block, allocate/first call per thread) int drop(int *p) { delete[] p; return 1; }
EXPECT(raise, allocate, block) int thrower(int n) { if (n > 3) throw n; return n; }
EXPECT(dispatch) double area(const Shape *s) { return s->area(); }
EXPECT(clean) double known_area(double x) { Square s(x); return s.area(); }
EXPECT(clean) double plain(double x) noexcept { return x + 1; }
}
// What a handler does counts when something that may throw is called, and only then.
struct Guard { ~Guard() { kept = static_cast<int *>(malloc(4)); } };
extern "C" {
static __attribute__((noinline)) int risky(int n) { if (n > 3) throw n; return n; }
static __attribute__((noinline)) int calm(int n) { __asm__ volatile("" : "+r"(n)); return n; }
EXPECT(raise, allocate) int caught(int n) { try { return risky(n); } catch (int) { kept = static_cast<int *>(realloc(kept, 9)); return 0; } }
EXPECT(clean) int never_thrown(int n) { try { return calm(n); } catch (int) { kept = static_cast<int *>(realloc(kept, 9)); return 0; } }
}

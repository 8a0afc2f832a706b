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

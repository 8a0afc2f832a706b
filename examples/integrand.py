"""Integrands that SciPy's quadrature calls directly, without the interpreter.

SciPy takes a C function through `LowLevelCallable`. A checked function's C entry is one.
"""

import math

from scipy import LowLevelCallable
from scipy.integrate import nquad, quad

from alloccheck import nonblocking


@nonblocking("float64(float64)", entry="c", error_model="numpy")
def planck(x):
    """Spectral radiance of a black body, without its units."""
    if x == 0.0:
        return 0.0
    return x**3 / math.expm1(x)


@nonblocking("float64(int32, CPointer(float64))", entry="c")
def bell(n, x):
    """A bell-shaped hill over any number of dimensions."""
    total = 0.0
    for i in range(n):
        total += x[i] * x[i]
    return math.exp(-total)


def main() -> None:
    """Integrate both and compare with what is known."""
    value, _ = quad(LowLevelCallable(planck.ctypes), 0.0, 50.0)
    print(f"black body: {value:.9f}, and pi^4/15 is {math.pi**4 / 15:.9f}")
    value, _ = nquad(LowLevelCallable(bell.ctypes), [(-6.0, 6.0), (-6.0, 6.0)])
    print(f"bell: {value:.9f}, and pi is {math.pi:.9f}")


if __name__ == "__main__":
    main()

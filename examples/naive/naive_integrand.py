"""An integrand like those of `integrand.py`, in whole-array notation over its few coordinates."""

import math

import numpy as np
from numba import carray
from scipy import LowLevelCallable
from scipy.integrate import nquad

from alloccheck import nonblocking


@nonblocking("float64(int32, CPointer(float64))", entry="c", on_failure="report")
def bell(n, x):
    """A bell-shaped hill over any number of dimensions."""
    point = carray(x, (n,))
    return math.exp(-np.sum(point * point))  # the squares are an array before they are summed


def main() -> None:
    """Integrate it over a plane."""
    value, _ = nquad(LowLevelCallable(bell.ctypes), [(-6.0, 6.0), (-6.0, 6.0)])
    print(f"bell: {value:.9f}, and pi is {math.pi:.9f}")


if __name__ == "__main__":
    main()

"""Densities of a few distributions; all functions of the package have declared signatures."""

import numpy as np
from numba_stats import expon, norm, truncexpon, uniform

PACKAGE = "numba_stats"


def run() -> None:
    x = np.linspace(0.1, 2.0, 5)
    norm.pdf(x, 0.0, 1.0)
    norm.cdf(x, 0.0, 1.0)
    expon.pdf(x, 0.0, 1.0)
    truncexpon.pdf(x, 0.0, 3.0, 0.0, 1.0)
    uniform.pdf(x, 0.0, 1.0)

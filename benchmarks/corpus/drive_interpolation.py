"""Interpolation on grids: linear and cubic splines, multilinear, and series of polynomials."""

import numpy as np
from interpolation import interp
from interpolation.splines import CGrid, UCGrid, eval_linear, eval_spline, filter_cubic
from interpolation.splines.eval_splines import eval_cubic

PACKAGE = "interpolation"


def run() -> None:
    x = np.linspace(0.0, 1.0, 10) ** 2
    y = np.linspace(0.0, 1.0, 10)
    u = np.linspace(-0.1, 1.1, 7)
    interp(x, y, u)
    interp(x, y, 0.5)
    grid = UCGrid((0.0, 1.0, 10), (0.0, 1.0, 10))
    values = np.add.outer(np.linspace(0.0, 1.0, 10), np.linspace(0.0, 1.0, 10) ** 2)
    points = np.random.default_rng(0).uniform(size=(6, 2))
    eval_linear(grid, values, np.array([0.3, 0.4]))
    eval_linear(grid, values, points)
    coefficients = filter_cubic(grid, values)
    eval_cubic(grid, coefficients, points)
    eval_spline(grid, coefficients, (0.5, 0.4), order=3, extrap_mode="linear")
    uneven = CGrid(np.linspace(0.0, 1.0, 10) ** 2, (0.0, 1.0, 10))
    eval_linear(uneven, values, points)

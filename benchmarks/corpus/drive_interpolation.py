"""Interpolation on grids: linear, multilinear and cubic splines."""

import numpy as np
from interpolation import interp
from interpolation.splines import CGrid, UCGrid, eval_cubic, eval_linear, filter_cubic
from interpolation.splines import extrap_options as extrapolation

PACKAGE = "interpolation"


def run() -> None:
    x = np.linspace(0.0, 1.0, 10) ** 2
    y = np.linspace(0.0, 1.0, 10)
    interp(x, y, np.linspace(-0.1, 1.1, 7))
    interp(x, y, 0.5)
    grid = UCGrid((0.0, 1.0, 10), (0.0, 1.0, 10))
    values = np.add.outer(np.linspace(0.0, 1.0, 10), np.linspace(0.0, 1.0, 10) ** 2)
    points = np.random.default_rng(0).uniform(size=(6, 2))
    eval_linear(grid, values, np.array([0.3, 0.4]))
    eval_linear(grid, values, points)
    eval_linear(grid, values, points, extrapolation.NEAREST)
    coefficients = filter_cubic(grid, values)
    eval_cubic(grid, coefficients, points)
    uneven = CGrid(np.linspace(0.0, 1.0, 10) ** 2, (0.0, 1.0, 10))
    eval_linear(uneven, values, points)

"""Root finding, optimisation, linear programming and a few statistics."""

import numpy as np
import quantecon as qe
from numba import njit
from quantecon.optimize import (
    bisect,
    brent_max,
    brentq,
    linprog_simplex,
    nelder_mead,
    newton,
    newton_secant,
)

PACKAGE = "quantecon"


@njit
def cubic(x):
    return x**3 - 1.0


@njit
def slope(x):
    return 3.0 * x**2


@njit
def hill(x):
    return -((x + 2.0) ** 2) + 1.0


@njit
def rosenbrock(x):
    return -(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)


def run() -> None:
    newton(cubic, 0.5, slope)
    newton_secant(cubic, 0.5)
    bisect(cubic, 0.0, 2.0)
    brentq(cubic, 0.0, 2.0)
    brent_max(hill, -3.0, 2.0)
    nelder_mead(rosenbrock, np.array([-2.0, 1.0]))
    linprog_simplex(
        np.array([4.0, 3.0]),
        A_ub=np.array([[1.0, 1.0], [1.0, 2.0]]),
        b_ub=np.array([10.0, 16.0]),
    )
    wealth = np.linspace(1.0, 5.0, 9)
    qe.gini_coefficient(wealth)
    qe.lorenz_curve(wealth)
    qe.shorrocks_index(np.array([[0.9, 0.1], [0.2, 0.8]]))
    qe.util.combinatorics.next_k_array(np.array([0, 1, 2]))
    qe.util.combinatorics.k_array_rank_jit(np.array([0, 1, 2]))
    qe.rouwenhorst(3, 0.1, 0.9)
    qe.tauchen(3, 0.9, 0.1)

"""Robertson's three chemical reactions: the right-hand side of a stiff ODE.

A solver evaluates it thousands of times. `derivatives` works on arrays; `right_hand_side` is the
same for solvers written in C or Fortran, LSODA among them, which pass pointers.
"""

import numpy as np
from numba import carray
from scipy.integrate import solve_ivp

from alloccheck import check_allocs, nonblocking


@check_allocs("void(float64, float64[::1], float64[::1], float64[::1])")
def derivatives(t, y, dy, rates):
    """Write the rates of change of the three concentrations into `dy`."""
    slow = rates[0] * y[0]
    fast = rates[1] * y[1] * y[1]
    back = rates[2] * y[1] * y[2]
    dy[0] = back - slow
    dy[1] = slow - back - fast
    dy[2] = fast


@nonblocking("void(float64, CPointer(float64), CPointer(float64), CPointer(float64))", entry="c")
def right_hand_side(t, y, dy, rates):
    """Do the same in the form that LSODA takes: time, state, result, parameters."""
    derivatives(t, carray(y, (3,)), carray(dy, (3,)), carray(rates, (3,)))


def main() -> None:
    """Solve it with SciPy, through one array for all evaluations."""
    rates = np.array([0.04, 3e7, 1e4])
    dy = np.zeros(3)

    def evaluate(t, y):
        derivatives(t, y, dy, rates)
        return dy.copy()  # SciPy keeps what it is given

    solution = solve_ivp(evaluate, (0, 1e5), [1.0, 0.0, 0.0], method="LSODA", rtol=1e-8, atol=1e-12)
    a, b, c = solution.y[:, -1]
    print(f"after 1e5 s: {a:.5f}, {b:.3e}, {c:.5f}; their sum is {a + b + c:.9f}")

    pointer = right_hand_side.ctypes.argtypes[1]
    state = np.array([1.0, 0.0, 0.0])
    right_hand_side.ctypes(0.0, *(v.ctypes.data_as(pointer) for v in (state, dy, rates)))
    print(f"through the C entry at the start: {dy[0]:.2f}, {dy[1]:.2f}, {dy[2]:.2f}")


if __name__ == "__main__":
    main()

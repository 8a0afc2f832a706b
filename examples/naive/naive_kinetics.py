"""The right-hand side of `kinetics.py` as a function that returns an array."""

import numpy as np

from alloccheck import check_allocs


@check_allocs("float64[::1](float64, float64[::1], float64[::1])", on_failure="report")
def derivatives(t, y, rates):
    """Return the rates of change of the three concentrations."""
    flows = rates * np.array([y[0], y[1] * y[1], y[1] * y[2]])
    return np.array([flows[2] - flows[0], flows[0] - flows[2] - flows[1], flows[1]])


def main() -> None:
    """Evaluate it at the start."""
    dy = derivatives(0.0, np.array([1.0, 0.0, 0.0]), np.array([0.04, 3e7, 1e4]))
    print(f"at the start: {dy[0]:.2f}, {dy[1]:.2f}, {dy[2]:.2f}")


if __name__ == "__main__":
    main()

"""The observer of `control_loop.py` in matrix notation: every product is a new array, from BLAS."""

import numpy as np

from alloccheck import nonblocking


@nonblocking(
    "float64[::1](float64[::1], float64[::1], float64[::1],"
    " float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1])",
    on_failure="report",
)
def observer_step(estimate, command, measured, a, b, feedback, correction):
    """Correct the estimate by what was measured, choose the command, predict the next state."""
    corrected = estimate + correction @ (measured - estimate[: measured.size])
    command[:] = feedback @ corrected
    return a @ corrected + b @ command


def main() -> None:
    """Bring an arm to its target."""
    dt = 0.001
    a, b = np.array([[1.0, dt], [0.0, 0.98]]), np.array([[0.0], [0.05]])
    feedback, correction = np.array([[-20.0, -2.0]]), np.array([[0.5], [20.0]])
    arm, estimate, command = np.array([-1.0, 0.0]), np.zeros(2), np.zeros(1)
    for _ in range(5_000):
        estimate = observer_step(estimate, command, arm[:1], a, b, feedback, correction)
        arm = a @ arm + b @ command
    print(f"state feedback: the arm is {abs(arm[0]):.4f} rad from its target")


if __name__ == "__main__":
    main()

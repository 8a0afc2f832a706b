"""Two controllers for a motor that turns an arm: PID, and state feedback with an observer.

A control loop runs a thousand times a second for months. One allocation in each turn is not slow;
it is a turn that takes a millisecond longer on the day that memory is fragmented. Everything that
the loop needs is made before it starts.
"""

import numpy as np

from alloccheck import nonblocking

KP, KI, KD = range(3)
INTEGRAL, LAST_ERROR = range(2)


@nonblocking("float64(float64[::1], float64[::1], float64, float64, float64)")
def pid_step(state, gains, error, dt, limit):
    """One turn of a PID controller whose output and integral stay within the limit."""
    derivative = (error - state[LAST_ERROR]) / dt
    integral = state[INTEGRAL] + gains[KI] * error * dt
    state[INTEGRAL] = min(max(integral, -limit), limit)
    state[LAST_ERROR] = error
    return min(max(gains[KP] * error + state[INTEGRAL] + gains[KD] * derivative, -limit), limit)


@nonblocking("void(float64[::1], float64[:, ::1], float64[::1])")
def add_product(out, matrix, vector):
    """Add a matrix times a vector to `out`; three loops beat BLAS at this size, and never wait."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[i] += matrix[i, j] * vector[j]


@nonblocking(
    "void(float64[::1], float64[::1], float64[::1],"
    " float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1],"
    " float64[::1], float64[::1])"
)
def observer_step(estimate, command, measured, a, b, feedback, correction, predicted, innovation):
    """Correct the estimate by what was measured, choose the command, predict the next state.

    `predicted` and `innovation` are workspace: their values on entry do not matter. The measured
    quantities are the first components of the state.
    """
    for i in range(measured.size):
        innovation[i] = measured[i] - estimate[i]
    add_product(estimate, correction, innovation)
    for i in range(command.size):
        command[i] = 0.0
    add_product(command, feedback, estimate)
    for i in range(predicted.size):
        predicted[i] = 0.0
    add_product(predicted, a, estimate)
    add_product(predicted, b, command)
    for i in range(estimate.size):
        estimate[i] = predicted[i]


def main() -> None:
    """Bring the arm to one radian, and hold it."""
    dt = 0.001
    a = np.array([[1.0, dt], [0.0, 0.98]])  # angle and speed
    b = np.array([[0.0], [0.05]])

    arm = np.zeros(2)
    state, gains = np.zeros(2), np.array([20.0, 5.0, 0.6])
    for _ in range(5_000):
        command = pid_step(state, gains, 1.0 - arm[0], dt, 10.0)
        arm = a @ arm + b[:, 0] * command
    print(f"PID: the arm is at {arm[0]:.4f} rad")

    arm = np.array([-1.0, 0.0])  # as seen from the target
    estimate, command, measured = np.zeros(2), np.zeros(1), np.zeros(1)
    feedback, correction = np.array([[-20.0, -2.0]]), np.array([[0.5], [20.0]])
    predicted, innovation = np.zeros(2), np.zeros(1)
    for _ in range(5_000):
        measured[0] = arm[0]
        observer_step(
            estimate, command, measured, a, b, feedback, correction, predicted, innovation
        )
        arm = a @ arm + b @ command
    print(f"state feedback: the arm is {abs(arm[0]):.4f} rad from its target")


if __name__ == "__main__":
    main()

"""The filter of `biquad.py` as a function that returns its result: a new block for each block."""

import numpy as np

from alloccheck import nonblocking


@nonblocking(
    "float32[:, ::1](float32[:, ::1], float64[::1], float64[:, ::1])",
    on_failure="report",
)
def biquad(block, coefficients, state):
    """Filter a block and return the result."""
    out = np.empty_like(block)
    b0, b1, b2 = coefficients[0], coefficients[1], coefficients[2]
    a1, a2 = coefficients[3], coefficients[4]
    for channel in range(block.shape[1]):
        for i in range(block.shape[0]):
            x = block[i, channel]
            y = b0 * x + state[channel, 0]
            state[channel, 0] = b1 * x - a1 * y + state[channel, 1]
            state[channel, 1] = b2 * x - a2 * y
            out[i, channel] = y
    return out


def main() -> None:
    """Send an impulse through a smoothing filter."""
    block = np.zeros((4, 1), np.float32)
    block[0] = 1.0
    out = biquad(block, np.array([0.25, 0.5, 0.25, 0.0, 0.0]), np.zeros((1, 2)))
    print("impulse response:", *out[:, 0])


if __name__ == "__main__":
    main()

"""The limiter of `limiter.py` in whole-array notation: each block takes memory several times.

With ``on_failure="report"`` it runs all the same, so that the two can be compared.
"""

import numpy as np

from alloccheck import nonblocking

ENVELOPE, THRESHOLD, RELEASE = range(3)


@nonblocking(
    "void(float32[:, ::1], float32[:, ::1], float64[::1])",
    on_failure="report",
)
def limit(out, block, state):
    """Scale down what exceeds the threshold."""
    peaks = np.maximum(np.abs(block[:, 0]), np.abs(block[:, 1]))  # a new array
    gains = np.ones(peaks.size)
    envelope = state[ENVELOPE]
    for i in range(peaks.size):
        envelope = max(peaks[i], envelope * state[RELEASE])
        if envelope > state[THRESHOLD]:
            gains[i] = state[THRESHOLD] / envelope
    state[ENVELOPE] = envelope
    out[:] = block * gains.reshape(-1, 1)  # the product is an array before it is copied


def main() -> None:
    """Limit a block that is twice too loud."""
    block = np.full((256, 2), 1.0, np.float32)
    out = np.zeros_like(block)
    limit(out, block, np.array([0.0, 0.5, 0.9995]))
    print(f"loudest sample: {np.abs(block).max():.3f} before, {np.abs(out).max():.3f} after")


if __name__ == "__main__":
    main()

"""A second-order low-pass filter over blocks of interleaved channels.

The coefficients are computed once, in plain Python, where memory is cheap. What runs for each block
keeps its state in an array that the caller made, so that blocks join without a seam.
"""

import math

import numpy as np

from alloccheck import nonblocking


def low_pass(cutoff: float, rate: float, q: float = math.sqrt(0.5)) -> np.ndarray:
    """Coefficients b0, b1, b2, a1, a2 of a low-pass, normalised so that a0 is 1.

    They are those of R. Bristow-Johnson's audio EQ cookbook.
    """
    w = 2 * math.pi * cutoff / rate
    alpha = math.sin(w) / (2 * q)
    b1 = 1 - math.cos(w)
    return np.array([b1 / 2, b1, b1 / 2, -2 * math.cos(w), 1 - alpha]) / (1 + alpha)


@nonblocking("void(float32[:, ::1], float32[:, ::1], float64[::1], float64[:, ::1])")
def biquad(out, block, coefficients, state):
    """Filter a block; `state` holds two numbers for each channel (transposed direct form II)."""
    b0, b1, b2 = coefficients[0], coefficients[1], coefficients[2]
    a1, a2 = coefficients[3], coefficients[4]
    for channel in range(block.shape[1]):
        z1, z2 = state[channel, 0], state[channel, 1]
        for i in range(block.shape[0]):
            x = block[i, channel]
            y = b0 * x + z1
            z1 = b1 * x - a1 * y + z2
            z2 = b2 * x - a2 * y
            out[i, channel] = y
        state[channel, 0], state[channel, 1] = z1, z2


def main() -> None:
    """Send a low tone on the left and a high one on the right through the filter."""
    rate, frames = 48_000, 480
    t = np.arange(rate // 4) / rate
    tones = np.stack([np.sin(2 * np.pi * 100 * t), np.sin(2 * np.pi * 8_000 * t)], axis=1)
    signal = np.ascontiguousarray(tones, dtype=np.float32)
    filtered = np.zeros_like(signal)
    coefficients = low_pass(1_000, rate)
    state = np.zeros((2, 2))
    for start in range(0, signal.shape[0], frames):
        block = slice(start, start + frames)
        biquad(filtered[block], signal[block], coefficients, state)
    low, high = np.abs(filtered[rate // 8 :]).max(axis=0)
    print(f"after a low-pass at 1 kHz: 100 Hz at {low:.3f}, 8 kHz at {high:.3f}")


if __name__ == "__main__":
    main()

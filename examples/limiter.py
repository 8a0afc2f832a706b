"""A stereo peak limiter as an audio callback.

An audio driver calls back from a thread of its own, with a deadline of a few milliseconds. In that
thread nothing may allocate, free, wait for a lock or touch the interpreter. `callback` is such a
function in C's calling convention, with the parameters of PortAudio's; its address can be given to
any library that expects one. It hands the driver's buffers to `limit`, which works on arrays and
can be used and tested from Python.
"""

import numpy as np
from numba import carray

from alloccheck import nonblocking

CHANNELS = 2
ENVELOPE, THRESHOLD, RELEASE = range(3)  # what the state array holds


@nonblocking("void(float32[:, ::1], float32[:, ::1], float64[::1])")
def limit(out, block, state):
    """Scale down what exceeds the threshold: at once when it rises, slowly when it falls."""
    envelope = state[ENVELOPE]
    for i in range(block.shape[0]):
        peak = 0.0
        for channel in range(CHANNELS):
            peak = max(peak, abs(block[i, channel]))
        envelope = max(peak, envelope * state[RELEASE])
        gain = 1.0
        if envelope > state[THRESHOLD]:
            gain = state[THRESHOLD] / envelope
        for channel in range(CHANNELS):
            out[i, channel] = gain * block[i, channel]
    state[ENVELOPE] = envelope


@nonblocking(
    # input, output, frames, time information, status flags, user data
    "int32(CPointer(float32), CPointer(float32), uint64, voidptr, uint64, CPointer(float64))",
    entry="c",
)
def callback(source, target, frames, time, status, user):
    """Limit one block; 0 tells the driver to go on."""
    limit(
        carray(target, (frames, CHANNELS)),
        carray(source, (frames, CHANNELS)),
        carray(user, (3,)),
    )
    return 0


def main() -> None:
    """Play the driver: a tone that swells beyond the threshold, block by block."""
    rate, frames = 48_000, 256
    t = np.arange(rate // 2) / rate
    tone = (4.0 * t * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    signal = np.repeat(tone[:, None], CHANNELS, axis=1)
    signal = np.ascontiguousarray(signal[: signal.shape[0] // frames * frames])
    limited = np.zeros_like(signal)
    state = np.array([0.0, 0.5, 0.9995])

    call = callback.ctypes
    _, _, _, _, _, user = call.argtypes
    samples = call.argtypes[0]
    for start in range(0, signal.shape[0], frames):
        go_on = call(
            signal[start:].ctypes.data_as(samples),
            limited[start:].ctypes.data_as(samples),
            frames,
            None,
            0,
            state.ctypes.data_as(user),
        )
        assert go_on == 0
    print(f"loudest sample: {np.abs(signal).max():.3f} before, {np.abs(limited).max():.3f} after")


if __name__ == "__main__":
    main()

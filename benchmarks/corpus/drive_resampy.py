"""A short signal at another rate, serially and in parallel, and at uneven times."""

import numpy as np
import resampy

PACKAGE = "resampy"


def run() -> None:
    signal = np.sin(np.arange(200.0) / 7.0)
    resampy.resample(signal, 22050, 16000)
    resampy.resample(signal, 22050, 16000, parallel=True)
    resampy.resample_nu(signal, 22050.0, np.linspace(0.0, 0.005, 50))

"""Entropies and fractal dimensions of a short signal."""

import antropy
import numpy as np

PACKAGE = "antropy"


def run() -> None:
    signal = np.sin(np.arange(120.0)) + 0.1 * np.cos(np.arange(120.0) ** 2)
    antropy.perm_entropy(signal, normalize=True)
    antropy.spectral_entropy(signal, sf=100, method="welch")
    antropy.svd_entropy(signal, normalize=True)
    antropy.app_entropy(signal)
    antropy.sample_entropy(signal)
    antropy.lziv_complexity(signal > signal.mean(), normalize=True)
    antropy.petrosian_fd(signal)
    antropy.katz_fd(signal)
    antropy.higuchi_fd(signal)
    antropy.detrended_fluctuation(signal)

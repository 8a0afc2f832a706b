"""Matrix profiles of a short series: self-join, join, streaming, motifs, consensus."""

import numpy as np
import stumpy

PACKAGE = "stumpy"


def run() -> None:
    series = np.sin(np.arange(80.0)) + np.linspace(0.0, 1.0, 80)
    other = np.cos(np.arange(60.0))
    profile = stumpy.stump(series, m=8)
    stumpy.stump(series, m=8, T_B=other, ignore_trivial=False)
    stumpy.aamp(series, m=8)
    stumpy.mass(series[:8], series)
    stumpy.motifs(series, profile[:, 0].astype(np.float64))
    stumpy.fluss(profile[:, 1], L=8, n_regimes=2)
    stream = stumpy.stumpi(series, m=8, egress=False)
    stream.update(0.5)
    stumpy.scrump(series, m=8, percentage=0.1).update()

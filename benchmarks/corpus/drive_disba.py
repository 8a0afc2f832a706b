"""Surface waves of a small layered earth: dispersion and ellipticity."""

import numpy as np
from disba import Ellipticity, GroupDispersion, PhaseDispersion

PACKAGE = "disba"

MODEL = np.array(
    [
        [10.0, 7.00, 3.50, 2.00],
        [10.0, 6.80, 3.40, 2.00],
        [10.0, 7.00, 3.50, 2.00],
        [10.0, 9.40, 4.70, 2.00],
    ]
)


def run() -> None:
    periods = np.logspace(0.0, 1.0, 4)
    for kind in (PhaseDispersion, GroupDispersion):
        dispersion = kind(*MODEL.T)
        dispersion(periods, mode=0, wave="rayleigh")
        dispersion(periods, mode=0, wave="love")
    Ellipticity(*MODEL.T)(periods)

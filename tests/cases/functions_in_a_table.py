"""A table of functions, entered by a number that is known only when it runs."""

from numba import njit


@njit(["float64(float64)"])
def saw(phase):
    return 2.0 * phase - 1.0


@njit(["float64(float64)"])
def square(phase):
    return 1.0 if phase < 0.5 else -1.0


@njit(["float64(float64)"])
def parabola(phase):
    return 4.0 * phase * (1.0 - phase)


WAVES = (saw, square, parabola)


def ENTRY(wave, phase):
    return WAVES[wave](phase)


SIGNATURE = "(int64, float64)"
GUARANTEE = "nonblocking"
RESULT = 0.75


def ARGS():
    return 2, 0.25

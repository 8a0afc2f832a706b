"""An array expression that is returned is a new array."""


def ENTRY(a, b):
    return 2.0 * a + b  # ! allocate NRT_*


SIGNATURE = "(float64[::1], float64[::1])"
RETURNS = "array(float64, 1d, C)"

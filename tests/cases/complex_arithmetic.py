"""Products, quotients and magnitudes of complex numbers."""


def ENTRY(z, w):
    return abs(z * w / (1.0 + 0.0j)) + w.conjugate().imag


SIGNATURE = "(complex128, complex128)"
RESULT = 5.0


def ARGS():
    return 3.0 + 4.0j, 1.0 + 0.0j

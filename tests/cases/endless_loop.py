"""A loop without an end that works in place."""


def ENTRY(x):
    while True:
        x[0] += 1.0


SIGNATURE = "(float64[::1],)"
GUARANTEE = "nonblocking"

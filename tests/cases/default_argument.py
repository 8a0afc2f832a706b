"""An argument that is left out takes its default."""


def ENTRY(x, gain=2.0):
    return gain * x


SIGNATURE = "(float64,)"
GUARANTEE = "nonblocking"
RESULT = 6.0


def ARGS():
    return (3.0,)

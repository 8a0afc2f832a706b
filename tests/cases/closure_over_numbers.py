"""An inner function that captures a local number."""


def ENTRY(x, y):
    def scaled(v):
        return v * x

    return scaled(y) + scaled(1.0)


SIGNATURE = "(float64, float64)"
GUARANTEE = "nonblocking"
RESULT = 8.0


def ARGS():
    return 2.0, 3.0

"""Integers wrap silently; their floor division may raise."""


def ENTRY(a, b):
    return (a * b) // (a + b)


SIGNATURE = "(int64, int64)"
GUARANTEE = "nonblocking"
RAISES = True
RESULT = 0


def ARGS():
    return 2**62, 4

"""A failing assertion is an exception that is a constant."""


def ENTRY(x):
    assert x >= 0, "negative"
    return x + 1


SIGNATURE = "(int64,)"
RAISES = True
RESULT = 2


def ARGS():
    return (1,)

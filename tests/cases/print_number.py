"""Printing is the interpreter's work."""


def ENTRY(x):
    print(x)  # ! python; allocate
    return x


SIGNATURE = "(float64,)"

"""A number written as text is a new string."""


def ENTRY(n):
    return len(str(n))  # ! allocate


SIGNATURE = "(int64,)"

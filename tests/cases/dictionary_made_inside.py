"""A dictionary that lives for one call."""


def ENTRY(n):
    counts = {0: 0}  # ! allocate
    return counts[0] + n


SIGNATURE = "(int64,)"

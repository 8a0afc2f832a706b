"""A dictionary that lives for one call."""


def ENTRY(n):
    counts = {0: 0}  # ! allocate
    return counts[0] + n  # ! allocate raise


SIGNATURE = "(int64,)"

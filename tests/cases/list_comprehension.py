"""A list that is built and summed."""


def ENTRY(n):
    squares = [i * i for i in range(n)]  # ! allocate
    return squares[0]


SIGNATURE = "(int64,)"

"""A matrix product is a new matrix."""


def ENTRY(a, b):
    return (a @ b)[0, 0]  # ! allocate


SIGNATURE = "(float64[:, ::1], float64[:, ::1])"

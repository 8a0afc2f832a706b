"""These two always copy."""


def ENTRY(a):
    x = a.flatten()  # ! allocate
    y = a.copy()  # ! allocate
    return x[0] + y[0, 0]


SIGNATURE = "(float64[:, ::1],)"

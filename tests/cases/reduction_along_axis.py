"""A sum along an axis is a new array."""


def ENTRY(a):
    return a.sum(axis=0)[0]  # ! allocate NRT_*


SIGNATURE = "(float64[:, ::1],)"

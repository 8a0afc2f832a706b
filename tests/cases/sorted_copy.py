"""Sorting into a new list."""


def ENTRY(a):
    return sorted(a)[0]  # ! allocate


SIGNATURE = "(float64[::1],)"

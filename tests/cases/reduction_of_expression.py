"""The sum of a product of arrays first makes the product."""


def ENTRY(a, b):
    return (a * b).sum()  # ! allocate NRT_*


SIGNATURE = "(float64[::1], float64[::1])"

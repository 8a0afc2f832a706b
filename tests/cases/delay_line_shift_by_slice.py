"""Moving a delay line by one copies the source to the heap, for its ranges overlap.

https://github.com/numba/numba/pull/1965
"""


def ENTRY(line, x):
    line[1:] = line[:-1]  # ! allocate
    line[0] = x


SIGNATURE = "(float64[::1], float64)"
RAISES = True

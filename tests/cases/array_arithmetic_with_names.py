"""Array expressions are fused within a statement, never across names: one array for each name.

https://github.com/numba/numba/issues/3980
"""


def ENTRY(x, out):
    a = x * 2.0  # ! allocate NRT_*
    b = a + 1.0  # ! allocate NRT_*
    for i in range(x.size):
        out[i] = b[i]


SIGNATURE = "(float64[::1], float64[::1])"
RAISES = True

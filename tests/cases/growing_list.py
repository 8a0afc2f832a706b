"""Results gathered in a list: one block at the start, others as it grows.

https://github.com/jrenaud90/CyRK/issues/27
"""


def ENTRY(n, h):
    ys = [0.0]  # ! allocate
    y = 1.0
    for _ in range(n):
        y += h * y
        ys.append(y)  # ! allocate
    return ys[-1]


SIGNATURE = "(int64, float64)"

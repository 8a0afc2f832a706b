"""Writes random typed programs: a module's text for each seed. Knows nothing of proofs.

A program takes two contiguous arrays, a strided one, a matrix, an integer, a float, a typed list,
a typed dict and a string, arrays overlapping in memory, and does a few random things with them.
"""

from __future__ import annotations

import random

PARAMETERS = "x, y, s, m, n, a, items, table, text"
HEADER = '''"""Program {seed}."""

import math

import numpy as np
from numba import guvectorize, njit, types, vectorize
from numba.typed import Dict, List


@njit{options}
def scale(v):
    return v * 0.5 + 1.0


@njit{options}
def scratch(k):
    return np.ones(k + 1).sum()


@njit{options}
def fails(k):
    t = np.ones(k + 2)
    if t[0] > 0.0:
        raise ValueError("no")
    return t.sum()


@njit{options}
def fails_dearly(k):
    if k > 1:
        raise ValueError("too many", k)
    return float(k)


@njit{options}
def fails_plainly(k):
    if k > 1:
        raise KeyError("no")
    return float(k)


@njit
def passes_on(k):
    return {failing}(k) + 1.0


@njit
def wraps(k):
    r = 0.0
    try:
        r = {failing}(k)
    except Exception:
        raise IndexError("wrapped")
    return r


@njit
def factorial(k):
    return 1.0 if k <= 1 else k * factorial(k - 1)


@njit
def even(k):
    if k <= 0:
        return {base}
    return odd(k - 1) + 1.0


@njit
def odd(k):
    if k <= 0:
        return 2.0
    return even(k - 1)


@njit
def counted(v):
    for i in range(v.size):
        yield v[i]


@njit
def doubled(v):
    for one in counted(v):
        yield one * 2.0


@njit
def buffered(k):
    t = np.ones(k + 1)
    for i in range(t.size):
        yield t[i]


@njit
def stops(k):
    for i in range(k):
        if i == 2:
            raise ValueError("stopped", i)
        yield float(i)


@vectorize
def blend(p, q):
    return {kernel}


{smooth}FUNCTIONS = (scale, {second})


@njit
def f({parameters}):
    acc = 0.0
{body}
    return acc


F = types.float64
SIGNATURE = (
    *(F[::1], F[::1], F[:], F[:, ::1], types.int64, F),
    *(types.ListType(F), types.DictType(types.int64, F), types.unicode_type),
)


def arguments(k):
    """Arguments of the call number k, some of which overlap."""
    size = (1, 4, 6)[k % 3]
    memory = np.linspace(-1.0, 2.0, 2 * size + 1)
    x, y = memory[:size], memory[{overlap}: size + {overlap}]
    items, table = List.empty_list(types.float64), Dict.empty(types.int64, types.float64)
    for i in range(4):
        items.append(float(i))
        table[i] = float(i)
    square = np.linspace(0.5, 2.0, size * size).reshape(size, size) + np.eye(size)
    number, text = (0, 2, 5)[k % 3], ("", "ab", "é")[k % 3]
    return x, y, memory[:2 * size:2], square, number, 0.75, items, table, text
'''

SMOOTH = """@guvectorize(["(float64[:], float64[:])"], "(k)->(k)")
def smooth(v, out):
    for i in range(v.size):
        out[i] = v[i] * 0.5


"""
"""Compiled when it is defined, so only where it is used."""

STATEMENTS = """
acc += a * n
acc += math.sqrt(abs(a)) + math.sin(acc)
acc += a ** 2.5 + n // 3 + n % 4
acc += scale(acc)
acc += factorial(n)
acc += even(n)
acc += odd(n)
acc += x.sum() + y.max()
acc += s.mean()
acc += x.var()
acc += x.argmax() + np.argmin(y)
acc += m[0].sum()
acc += m[:, 0].sum()
acc += m.T.sum()
acc += m.sum(axis=0)[0]
acc += np.dot(x, y)
acc += np.dot(s, x)
acc += np.linalg.det(m)
acc += np.linalg.norm(x)
acc += np.trace(m)
acc += np.median(x)
acc += np.interp(a, x, y)
acc += np.searchsorted(x, a)
acc += np.abs(x).sum()
acc += (x * y).sum()
acc += x[::-1][0] + x[-1:][0]
acc += x.reshape(1, x.size)[0, 0]
acc += m.ravel()[0]
acc += m.T.ravel()[0]
acc += items[0]
acc += len(items) + len(table)
acc += table[0]
acc += table.get(n, a)
acc += items.pop()
acc += np.random.random()
acc += len(text)
acc += hash(text) % 3
acc += 1.0 if text == "ab" else 0.0
acc += len(text + "x")
acc += len(str(n))
acc += scratch(n)
acc += passes_on(n)
acc += wraps(n)
acc += fails_dearly(n)
acc += fails_plainly(n)
acc += [n, 2][0]
acc += (n, 2.5)[1]
acc += FUNCTIONS[0](acc)
acc += 1.0 if np.any(x > a) else 0.0
acc += 1.0 if a in x else 0.0
acc += 1.0 if np.array_equal(x, y) else 0.0
x[0] = acc
x[:] = y
x[:] = a
y[1:] = y[:-1]
x[:] = x[::-1]
x[:] = x * y + a
m[0, :] = m[:, 0]
m[0] = x
s[:] = x
x += y
x *= s
m *= m.T
x.fill(a)
x.sort()
np.add(x, y, x)
np.multiply(x, s, y)
np.sqrt(np.abs(a) + 1.0)
np.clip(x, 0.0, 1.0, y)
np.copyto(x, y)
np.dot(m, x, y)
blend(x, y, x)
blend(x, a, y)
smooth(x, y)
items[0] = acc
items[0] = items[1]
items.append(acc)
items[0:1] = items[1:2]
table[0] = acc
table[n + 9] = acc
table.pop(9, 0.0)
np.random.shuffle(x)
x[x > 100.0] = 0.0
""".strip().splitlines()

BLOCKS = (
    ("for i in range(n):",),
    ("for i in range(x.size):",),
    ("for v in x:",),
    ("for v in items:",),
    ("for k in table:",),
    ("for v in doubled(x):",),
    ("for v in buffered(n):",),
    ("for p, q in zip(x, y):",),
    ("for i, v in enumerate(x):",),
    ("for v in m.flat:",),
    ("for c in text:",),
    ("if n > 1:", "else:"),
    ("if a > acc:", "else:"),
    ("if n > 100:",),
    ("if x.size > 4 and n != 5:",),
)
TRIED = ("fails(n)", "fails_dearly(n)", "fails_plainly(n)", "passes_on(n)", "wraps(n)", "1 / n")


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.names = 0

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, nested: int) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.statement(depth, nested)

    def statement(self, depth: int, nested: int) -> None:
        rng = self.rng
        kind = rng.random()
        if nested == 0 or kind < 0.5:
            self.put(depth, rng.choice(STATEMENTS))
        elif kind < 0.7:
            for head in rng.choice(BLOCKS):
                self.put(depth, head)
                self.block(depth + 1, nested - 1)
        elif kind < 0.78:
            self.names += 1
            turn = f"turn{self.names}"
            self.put(depth, f"{turn} = 0")
            self.put(depth, "while True:")
            self.put(depth + 1, f"{turn} += 1")
            self.put(depth + 1, f"if {turn} > {rng.choice(('n', '3', 'x.size'))}:")
            self.put(depth + 2, "break")
            self.block(depth + 1, nested - 1)
        elif kind < 0.93:
            self.put(depth, "try:")
            self.put(depth + 1, f"acc += {rng.choice(TRIED)}")
            if rng.random() < 0.3:
                self.put(depth + 1, "for v in stops(n):")
                self.put(depth + 2, "acc += v")
            ending = rng.random()
            if ending < 0.8:
                self.put(depth, "except Exception:")
                self.block(depth + 1, 0)
                if ending < 0.25:
                    self.put(depth + 1, f"raise ValueError({rng.choice(('', 'n'))})")
            if ending >= 0.65:
                self.put(depth, "finally:")
                self.put(depth + 1, "acc += 1.0")
        elif kind < 0.97:
            self.names += 1
            inner = f"inner{self.names}"
            self.put(depth, f"def {inner}(v):")
            self.put(depth + 1, f"return {rng.choice(('v + a', 'v * n', 'scratch(int(v))'))}")
            self.put(depth, f"acc += {inner}(1.0)")
        else:
            self.put(depth, f"z = x if n < 3 else {rng.choice(('y', 'x[1:]', 'np.ones(3)'))}")
            self.put(depth, "acc += z.sum()")


def program(seed: int) -> str:
    """Return the text of a module with a function `f`, its `SIGNATURE` and `arguments(k)`.

    Parameters
    ----------
    seed : int
        The same seed gives the same program.
    """
    rng = random.Random(seed)
    writer = _Writer(rng)
    for _ in range(rng.randint(1, 3)):
        writer.statement(1, 2)
    options = ("", "(fastmath=True)", "(boundscheck=True)", "(error_model='numpy')")
    body = "\n".join(writer.lines)
    return HEADER.format(
        smooth=SMOOTH if "smooth(" in body else "",
        seed=seed,
        options=rng.choice((*options, "(inline='always')")),
        failing=rng.choice(("fails", "fails_dearly", "fails_plainly")),
        base=rng.choice(("1.0", "1.0", "np.ones(2).sum()")),
        kernel=rng.choice(("p * q + 1.0", "scale(p) - q", "p / (q + 3.0)")),
        second=rng.choice(("scale", "factorial", "scratch")),
        parameters=PARAMETERS,
        body=body,
        overlap=rng.choice((0, 1, "size")),
    )

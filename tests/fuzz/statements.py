"""The words of random programs: helpers, statements and blocks. Knows nothing of how they are put.

Every statement leaves `acc` a float. *Quiet* ones are thought to do nothing that a guarantee
forbids, so that many programs are provable; nothing relies on it.
"""

from __future__ import annotations

HELPERS = {
    "scale": """
@njit{options}
def scale(v):
    return v * 0.5 + 1.0
""",
    "square": """
@njit{options}
def square(v):
    return v * v
""",
    "ratio": """
@njit{options}
def ratio(v, k):
    return v / k
""",
    "summed": """
@njit{options}
def summed(v):
    t = 0.0
    for i in range(v.size):
        t += v[i]
    return t
""",
    "pick": """
@njit{options}
def pick(v, w, k):
    return v if k > 2 else w
""",
    "scratch": """
@njit{options}
def scratch(k):
    return np.ones(k + 1).sum()
""",
    "fails": """
@njit{options}
def fails(k):
    t = np.ones(k + 2)
    if t[0] > 0.0:
        raise ValueError("no")
    return t.sum()
""",
    "fails_dearly": """
@njit{options}
def fails_dearly(k):
    if k > 1:
        raise ValueError("too many", k)
    return float(k)
""",
    "fails_plainly": """
@njit{options}
def fails_plainly(k):
    if k > 1:
        raise KeyError("no")
    return float(k)
""",
    "passes_on": """
@njit
def passes_on(k):
    return {failing}(k) + 1.0
""",
    "wraps": """
@njit
def wraps(k):
    r = 0.0
    try:
        r = {failing}(k)
    except Exception:
        raise IndexError("wrapped")
    return r
""",
    "tidies": """
@njit
def tidies(k, box):
    try:
        return {failing}(k)
    finally:
        box.count += 1
""",
    "factorial": """
@njit{options}
def factorial(k):
    return 1.0 if k <= 1 else k * factorial(k - 1)
""",
    "fibonacci": """
@njit
def fibonacci(k):
    return 1.0 if k < 2 else fibonacci(k - 1) + fibonacci(k - 2)
""",
    "walk": """
@njit
def walk(v, k):
    if v.size < 2 or k <= 0:
        return v[0]
    return walk(v[1:], k - 1) + 1.0
""",
    "even": """
@njit
def even(k):
    if k <= 0:
        return {base}
    return odd(k - 1) + 1.0
""",
    "odd": """
@njit
def odd(k):
    if k <= 0:
        return 2.0
    return even(k - 1)
""",
    "counted": """
@njit
def counted(v):
    for i in range(v.size):
        yield v[i]
""",
    "doubled": """
@njit
def doubled(v):
    for one in counted(v):
        yield one * 2.0
""",
    "ramp": """
@njit
def ramp(k):
    for i in range(k):
        yield i * 0.5
""",
    "buffered": """
@njit
def buffered(k):
    t = np.ones(k + 1)
    for i in range(t.size):
        yield t[i]
""",
    "stops": """
@njit
def stops(k):
    for i in range(k):
        if i == 2:
            raise ValueError("stopped", i)
        yield float(i)
""",
    "apply": """
@njit
def apply(g, v):
    return g(v)
""",
    "chosen": """
@njit{options}
def chosen(k):
    if k % 2:
        return scale
    return square
""",
    "TABLE": """
@njit(["float64(float64)"])
def declared(v):
    return v * 0.75


@njit(["float64(float64)"])
def lowered(v):
    return v - 1.0


TABLE = (declared, lowered)
""",
    "LOUD_TABLE": """
@njit(["float64(float64)"])
def rather(v):
    return v * 0.5


@njit(["float64(float64)"])
def spread(v):
    return np.full(4, v).sum()


LOUD_TABLE = (rather, spread)
""",
    "twice": """
@njit{options}
def twice(g, v):
    return g(g(v))
""",
    "folded": """
@njit
def folded(g, v):
    t = 0.0
    for one in v:
        t += g(one)
    return t
""",
    "blend": """
@vectorize
def blend(p, q):
    return {kernel}
""",
    "smooth": """
@guvectorize(["(float64[:], float64[:])"], "(k)->(k)")
def smooth(v, out):
    for i in range(v.size):
        out[i] = v[i] * 0.5
""",
    "Point": """
Point = namedtuple("Point", "u w")
""",
    "FUNCTIONS": """
FUNCTIONS = (scale, {second})
""",
}
"""Each with its own options; a program has those that it names."""

QUIET = """
acc += a * n
acc += math.sqrt(abs(a)) + math.sin(acc)
acc += a ** 2.5 + n // 3 + n % 4
acc += float((n << 2) ^ 5)
acc += min(a, acc, 2.0) + max(n, 3)
acc += abs(complex(a, 1.0)) + (a + 2j).imag
acc += np.float32(a)
acc += math.floor(a) + math.hypot(a, 2.0)
acc += divmod(n, 3)[1]
acc += 1.0 if n > 2 and a < 1.0 else 0.5
acc += ratio(acc, 3)
acc += ratio(a, n + 1)
acc += scale(acc)
acc += scale(x[0]) + square(a)
acc += factorial(n)
acc += fibonacci(n)
acc += walk(x, n)
acc += walk(s, 3)
acc += even(n)
acc += odd(n)
acc += summed(x) + summed(s)
acc += summed(m[0]) + summed(fm[:, 0])
acc += pick(x, y, n)[0]
acc += pick(x, x[1:], n).size
acc += pick(a, acc, n)
acc += x.sum() + y.max()
acc += s.mean()
acc += ro.sum() + ro[-1]
acc += x.var()
acc += x.argmax() + np.argmin(y)
acc += m[0].sum()
acc += m[:, 0].sum()
acc += m.T.sum()
acc += fm.sum() + fm[0].sum()
acc += am.sum() + am[-1, ::-1][0]
acc += m[-1, -1] + fm[0, -1] + am[0, 0]
acc += m.T[0, 0] + fm.T.size
acc += am[::2, ::-1][0, 0]
acc += x[::-1][0] + x[-1:][0]
acc += x[::2].max() + s[1:].size
acc += x.reshape(1, x.size)[0, 0]
acc += m.ravel()[0]
acc += x.ndim + m.shape[1]
acc += np.dot(x, y)
acc += np.trace(m)
acc += np.searchsorted(x, a)
acc += np.sum(ro) + np.prod(x)
acc += x.size if x is y else 1.0
acc += items[0]
acc += items[n % 4]
acc += len(items) + len(table)
acc += table[0]
acc += table[n]
acc += table.get(n, a)
acc += 1.0 if n in table else 0.0
acc += names["a"]
acc += names.get(text, a)
acc += len(text)
acc += 1.0 if text == "ab" else 0.0
acc += 1.0 if text != "ab" and text < "b" else 0.0
acc += 1.0 if "a" in text else 0.0
acc += (n, 2.5)[1]
acc += (a, acc, 1.0)[n % 3]
acc += ((a, n), (x, 2))[0][0]
p, q = a, acc
p, q = x[0], x[-1]
acc += Point(a, n).u
acc += FUNCTIONS[0](acc)
acc += apply(scale, acc)
acc += (scale if n < 3 else square)(acc)
acc += chosen(n)(a)
acc += apply(chosen(n), acc)
acc += TABLE[n % 2](a)
acc += twice(square, a)
acc += folded(scale, x)
acc += folded(square, items)
acc += folded(scale, (a, acc))
acc += rec[0].a + rec[-1].b
acc += rec[0].v[1]
acc += rec.a.sum()
rec[0].a = acc
rec[0].b += 1
rec[0] = rec[-1]
rec[0].v[2] = a
rec.a[:] = a
acc += box.total + box.pair[0]
acc += box.data.sum()
box.total += acc
box.count += 1
box.put(a)
box.pair = (box.pair[1], a)
box.data[0] = acc
x[0] = acc
x[:] = a
x[1:] = a
m[0, :] = a
fm[:, 0] = acc
am[0] = 0.5
x[x.size - 1] = x[0]
x += y
x *= s
m += fm
x -= 1.0
x.fill(a)
np.add(x, y, x)
np.multiply(x, s, y)
np.maximum(x, ro, x)
np.subtract(m, fm, m)
np.add(am, 1.0, am)
np.negative(x, y)
np.clip(x, 0.0, 1.0, y)
blend(x, y, x)
blend(x, a, y)
items[0] = acc
items[0] = items[1]
assert a < 1.0
assert n != 5
acc += hash(text) % 3
acc += float(text.find("b"))
acc += fails_dearly(n)
acc += fails_plainly(n)
acc += 1.0 if a in x else 0.0
m *= m.T
np.sqrt(np.abs(a) + 1.0)
smooth(x, y)
items.reverse()
table.pop(9, 0.0)
x[:] = x
x[:2] = x[2:4]
x[:n] = x[n : 2 * n]
x[::2] = x[1::2]
m[0] = m[1]
fm[:, 0] = fm[:, 1]
x[1:] *= 0.5
x[:1] += y[-1:]
m[0] -= m[1]
am[:, 0] /= 2.0
box.data[:1] += a
""".strip().splitlines()

LOUD = """
acc += m.sum(axis=0)[0]
acc += np.dot(s, x)
acc += np.linalg.det(m)
acc += np.linalg.norm(x)
acc += np.linalg.norm(fm)
acc += np.linalg.solve(m, x)[0]
acc += np.median(x)
acc += np.interp(a, x, y)
acc += np.abs(x).sum()
acc += (x * y).sum()
acc += (m @ x)[0]
acc += m.T.ravel()[0]
acc += fm.copy()[0, 0]
acc += items.pop()
acc += np.random.random()
acc += np.random.normal(a, 2.0)
acc += np.random.randint(0, 3)
acc += draw.random()
acc += draw.integers(0, 3)
acc += draw.random(3).sum()
acc += len(text + "x")
acc += len(text[0:1])
acc += len(str(n))
acc += ord(text[0])
acc += scratch(n)
acc += apply(scratch, n)
acc += (scratch if n > 2 else fibonacci)(n)
acc += LOUD_TABLE[n % 2](a)
acc += passes_on(n)
acc += wraps(n)
acc += tidies(n, box)
acc += [n, 2][0]
acc += FUNCTIONS[1](n)
acc += 1.0 if np.any(x > a) else 0.0
acc += 1.0 if np.array_equal(x, y) else 0.0
acc += sum([v for v in x])
acc += len({n, 2, 3})
np.random.seed(n)
x[:] = y
y[1:] = y[:-1]
x[:] = x[::-1]
x[:] = x * y + a
m[0, :] = m[:, 0]
m[0] = x
m[0] = m[-1]
fm[:, 0] = fm[:, -1]
fm[:] = m
s[:] = x
x[:] = ro
np.dot(m, x, y)
np.dot(m, m, m)
items.append(acc)
items[0:1] = items[1:2]
items.insert(0, a)
table[0] = acc
table[n + 9] = acc
names["a"] = acc
names[text] = acc
box.data = np.ones(3)
box.swap(x)
box.swap(x[:1])
np.random.shuffle(x)
x[x > 100.0] = 0.0
acc += draw.standard_normal()
x.sort()
acc += text.startswith("a") + text.isupper()
""".strip().splitlines()

QUIET_BLOCKS = (
    ("for i in range(n):",),
    ("for i in range(x.size):",),
    ("for i in range(0, 2 * n, 2):",),
    ("for v in x:",),
    ("for v in s[::-1]:",),
    ("for v in ro:",),
    ("for v in items:",),
    ("for k in table:",),
    ("for k, v in table.items():",),
    ("for v in names.values():",),
    ("for v in doubled(x):",),
    ("for v in counted(s):",),
    ("for v in ramp(n):",),
    ("for p, q in zip(x, y):",),
    ("for i, v in enumerate(x):",),
    ("for v in (a, acc, 2.0):",),
    ("if n > 1:", "else:"),
    ("if a > acc:", "else:"),
    ("if n > 100:",),
    ("if x.size > 4 and n != 5:",),
    ("if text == 'b':", "elif n == 2:", "else:"),
)
LOUD_BLOCKS = (
    ("for v in buffered(n):",),
    ("for v in m.flat:",),
    ("for c in text:",),
    ("for row in m:",),
    ("for i in np.ndindex(x.shape):",),
)

QUIET_TRIED = ("fails_plainly(n)", "1 / n", "table[n + 2]", "items[n]", "ratio(a, n)")
LOUD_TRIED = ("fails(n)", "fails_dearly(n)", "passes_on(n)", "wraps(n)", "tidies(n, box)")

QUIET_INNER = ("v + a", "v * n", "scale(v)", "x[0] + v")
LOUD_INNER = ("scratch(int(v) % 5)", "np.full(2, a).sum() + v")
"""What a function within `f` returns; it has variables of `f` in it."""
QUIET_PASSED = ("v + 1.0", "scale(v)", "math.cos(v)")
LOUD_PASSED = ("scratch(int(v) % 5)", "np.full(2, v).sum()")
"""What a function within `f` returns that is passed on: Numba allows no variables there."""
QUIET_VIEWS = ("y", "x[1:]", "y[::1]", "x[:n]", "m[0]")
LOUD_VIEWS = ("np.ones(3)", "x.copy()", "x + y")

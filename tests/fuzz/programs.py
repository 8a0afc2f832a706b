"""Writes random typed programs: a module's text for each seed. Knows nothing of proofs.

A program is a function `f` of the arguments in `values.py`, some of which overlap in memory. It
does a few random things with them, and calls helpers that were compiled with flags of their own.
About two of three are made of quiet statements alone.
"""

from __future__ import annotations

import random
import re

from fuzz import statements as words
from fuzz.values import PARAMETERS

HEADER = """import math
from collections import namedtuple

import numpy as np
from numba import guvectorize, njit, vectorize
"""
OPTIONS = (
    *("", "", "(fastmath=True)", "(boundscheck=True)", "(error_model='numpy')"),
    *("(inline='always')", "(forceinline=True)", "(nogil=True)"),
)
QUIET_SHARE = 0.65
LOUD_SHARE = 0.3
"""Of the statements of a program that is not quiet."""


class _Writer:
    def __init__(self, rng: random.Random, quiet: bool) -> None:
        self.rng = rng
        self.quiet = quiet
        self.lines: list[str] = []
        self.names = 0

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def among(self, quiet: tuple, loud: tuple):
        if self.quiet or self.rng.random() > LOUD_SHARE:
            return self.rng.choice(quiet)
        return self.rng.choice(loud)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def block(self, depth: int, nested: int) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.statement(depth, nested)

    def statement(self, depth: int, nested: int) -> None:
        kind = self.rng.random()
        if nested == 0 or kind < 0.5:
            self.put(depth, self.among(words.QUIET, words.LOUD))
        elif kind < 0.7:
            for head in self.among(words.QUIET_BLOCKS, words.LOUD_BLOCKS):
                self.put(depth, head)
                self.block(depth + 1, nested - 1)
                if head.startswith("for") and self.rng.random() < 0.2:
                    self.put(depth + 1, f"if {self.rng.choice(('acc > 9.0', 'n == 2'))}:")
                    self.put(depth + 2, self.rng.choice(("break", "continue", "return acc")))
        elif kind < 0.76:
            self.counting_loop(depth, nested)
        elif kind < 0.91:
            self.attempt(depth, nested)
        elif kind < 0.96:
            self.inner_function(depth)
        else:
            view = self.name("z")
            chosen = self.among(words.QUIET_VIEWS, words.LOUD_VIEWS)
            self.put(depth, f"{view} = x if n < 3 else {chosen}")
            self.put(depth, f"acc += {view}.sum()")

    def counting_loop(self, depth: int, nested: int) -> None:
        turn = self.name("turn")
        self.put(depth, f"{turn} = 0")
        self.put(depth, "while True:")
        self.put(depth + 1, f"{turn} += 1")
        self.put(depth + 1, f"if {turn} > {self.rng.choice(('n', '3', 'x.size'))}:")
        self.put(depth + 2, "break")
        self.block(depth + 1, nested - 1)

    def inner_function(self, depth: int) -> None:
        inner = self.name("inner")
        if self.rng.random() < 0.5:
            returned = self.among(words.QUIET_INNER, words.LOUD_INNER)
            call = self.rng.choice(("{}(1.0)", "{}(n)"))
        else:
            returned = self.among(words.QUIET_PASSED, words.LOUD_PASSED)
            call = self.rng.choice(("apply({}, a)", "folded({}, x)", "twice({}, 0.5)"))
        self.put(depth, f"def {inner}(v):")
        self.put(depth + 1, f"return {returned}")
        self.put(depth, f"acc += {call.format(inner)}")

    def attempt(self, depth: int, nested: int) -> None:
        rng = self.rng
        self.put(depth, "try:")
        self.put(depth + 1, f"acc += {self.among(words.QUIET_TRIED, words.LOUD_TRIED)}")
        if not self.quiet and rng.random() < 0.3:
            self.put(depth + 1, "for v in stops(n):")
            self.put(depth + 2, "acc += v")
        if rng.random() < 0.2:
            self.block(depth + 1, nested - 1)
        ending = rng.random()
        if ending < 0.8:
            self.put(depth, "except Exception:")
            self.block(depth + 1, 0)
            if ending < 0.25:
                error = rng.choice(("ValueError()", "KeyError('again')", "ValueError(n)"))
                self.put(depth + 1, f"raise {error}")
        if 0.7 <= ending < 0.8:
            self.put(depth, "else:")
            self.block(depth + 1, 0)
        if ending >= 0.65:
            self.put(depth, "finally:")
            self.block(depth + 1, 0)


def program(seed: int) -> str:
    """Return the text of a module with a Python function `f`.

    Parameters
    ----------
    seed : int
        The same seed gives the same program.
    """
    rng = random.Random(seed)
    writer = _Writer(rng, quiet=rng.random() < QUIET_SHARE)
    for _ in range(rng.randint(1, 2)):
        writer.statement(1, 2)
    body = "\n".join(writer.lines)
    choices = {
        "failing": rng.choice(("fails", "fails_dearly", "fails_plainly", "fails_plainly")),
        "base": rng.choice(("1.0", "1.0", "np.ones(2).sum()")),
        "kernel": rng.choice(("p * q + 1.0", "scale(p) - q", "p / (q + 3.0)")),
        "second": rng.choice(("scale", "square", "scratch")),
    }
    sources = {
        name: text.format(**choices, options=rng.choice(OPTIONS))
        for name, text in words.HELPERS.items()
    }
    for recursive in ("factorial",):  # cannot be inlined
        sources[recursive] = sources[recursive].replace("(inline='always')", "")
    needed = _named(body, sources)
    for name in needed:
        needed += [one for one in _named(sources[name], sources) if one not in needed]
    header = "\n".join(text for name, text in sources.items() if name in needed)
    head = f"def f({', '.join(PARAMETERS)}):\n    acc = 0.0"
    return f'"""Program {seed}."""\n\n{HEADER}\n{header}\n\n{head}\n{body}\n    return acc\n'


def _named(text: str, sources: dict[str, str]) -> list[str]:
    words_of_text = set(re.findall(r"\w+", text))
    return [name for name in sources if name in words_of_text]

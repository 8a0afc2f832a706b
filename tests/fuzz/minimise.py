"""Makes a program smaller while it stays interesting: delta debugging over statements.

Knows Python's syntax tree and nothing of Numba or proofs; what is interesting is a parameter.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers")


def minimised(text: str, interesting: Callable[[str], bool], *, tries: int = 400) -> str:
    """Return a smaller text that is still interesting, from which no single step may be taken.

    Steps leave out runs of statements, longest first; put a block in the place of the statement
    around it; put a part of an expression in the place of the whole.

    Parameters
    ----------
    text : str
        A Python module. It is interesting.
    interesting : callable
        Whether a module's text is. It is asked about each text once.
    tries : int
        How often it is asked at most.

    Notes
    -----
    The idea is delta debugging: A. Zeller, R. Hildebrandt, *Simplifying and isolating
    failure-inducing input*, IEEE Transactions on Software Engineering 28 (2), 2002.
    """
    best = text
    asked = {text}
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(best):
            if candidate in asked:
                continue
            if len(asked) > tries:
                return best
            asked.add(candidate)
            if interesting(candidate):
                best, progress = candidate, True
                break
    return best


def _smaller(text: str) -> Iterator[str]:
    """Return texts that are one step smaller, the largest steps first."""
    yield from _without_runs(text)
    yield from _edited(text, _hoisted)
    yield from _edited(text, _simplified)


def _without_runs(text: str) -> Iterator[str]:
    lengths = [len(block) for block in _blocks(ast.parse(text))]
    size = max(lengths, default=0)
    while size:
        for which, length in enumerate(lengths):
            for start in range(0, length, size) if size <= length else ():
                tree = ast.parse(text)
                block = _blocks(tree)[which]
                del block[start : start + size]
                yield _written(tree)
        size //= 2


def _blocks(tree: ast.AST) -> list[list[ast.AST]]:
    """Return all lists of statements, and of handlers, in a tree."""
    found = []
    for node in ast.walk(tree):
        for field in _BLOCKS:
            block = getattr(node, field, None)
            # A list that holds nothing but `pass` cannot become smaller.
            if isinstance(block, list) and any(not isinstance(one, ast.Pass) for one in block):
                found.append(block)
    return found


def _edited(text: str, edits: Callable[[ast.AST], list[Callable[[], None]]]) -> Iterator[str]:
    """Return a text for each edit that is possible anywhere in a tree."""
    for number in range(len(edits(ast.parse(text)))):
        tree = ast.parse(text)
        edits(tree)[number]()
        yield _written(tree)


def _hoisted(tree: ast.AST) -> list[Callable[[], None]]:
    """Edits that put a block in the place of the statement that it is part of."""
    found: list[Callable[[], None]] = []
    for block in _blocks(tree):
        for place, statement in enumerate(block):
            if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
                continue
            inner = [getattr(statement, field, None) or [] for field in _BLOCKS[:3]]
            inner += [one.body for one in getattr(statement, "handlers", ())]
            for part in inner:
                if isinstance(part, list) and part:
                    found.append(_replacing(block, place, part))
    return found


def _replacing(block: list[ast.AST], place: int, part: list[ast.AST]) -> Callable[[], None]:
    def edit() -> None:
        block[place : place + 1] = part

    return edit


def _simplified(tree: ast.AST) -> list[Callable[[], None]]:
    """Edits that put an operand, an argument or an alternative in the place of an expression."""
    found: list[Callable[[], None]] = []
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                found += [
                    _replacing(value, place, [part])
                    for place, one in enumerate(value)
                    for part in _parts(one)
                ]
            else:
                found += [functools.partial(setattr, node, field, part) for part in _parts(value)]
    return found


def _parts(value: object) -> list[ast.expr]:
    """Return the expressions inside another that can stand for it."""
    match value:
        case ast.BinOp():
            return [value.left, value.right]
        case ast.BoolOp():
            return value.values
        case ast.IfExp():
            return [value.body, value.orelse]
        case ast.UnaryOp():
            return [value.operand]
        case ast.Call():
            return value.args
    return []


def _written(tree: ast.AST) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module):
            continue
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

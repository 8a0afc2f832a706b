"""The expression of a user's source line that most likely has an effect, by its syntax alone.

Knows Python's syntax; nothing of compilers, effects or reports.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_OPERATOR_UFUNCS: dict[type[ast.AST], str] = {
    ast.Add: "np.add",
    ast.Sub: "np.subtract",
    ast.Mult: "np.multiply",
    ast.Div: "np.divide",
    ast.FloorDiv: "np.floor_divide",
    ast.Mod: "np.remainder",
    ast.Pow: "np.power",
    ast.BitAnd: "np.bitwise_and",
    ast.BitOr: "np.bitwise_or",
    ast.BitXor: "np.bitwise_xor",
    ast.LShift: "np.left_shift",
    ast.RShift: "np.right_shift",
    ast.USub: "np.negative",
    ast.Invert: "np.invert",
    ast.Lt: "np.less",
    ast.LtE: "np.less_equal",
    ast.Gt: "np.greater",
    ast.GtE: "np.greater_equal",
    ast.Eq: "np.equal",
    ast.NotEq: "np.not_equal",
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A piece of source with its place.

    Parameters
    ----------
    text : str
        The source, on one line.
    kinds : frozenset of str
        What it is, in the words of :func:`expressions_on`.
    line, column : int
        Of its first character, counted from 1.
    end_line, end_column : int
        Just behind its last character.
    """

    text: str
    kinds: frozenset[str]
    line: int
    column: int
    end_line: int
    end_column: int


@lru_cache(maxsize=32)
def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Edited since it was compiled, not Python, or nested too deep: no excerpt, no harm.
        return None


def _kinds(node: ast.AST) -> frozenset[str]:
    """Name what a syntax node is, or nothing when it cannot be the cause of an effect."""
    match node:
        case ast.Call(func=func):
            name = ast.unparse(func)
            kinds = {"call", name, name.rpartition(".")[2]}
            if isinstance(func, ast.Attribute):
                kinds.add("." + func.attr)
            return frozenset(kinds)
        case ast.BinOp(op=ast.MatMult()):
            return frozenset({"@"})
        case ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.Invert()):
            return frozenset({"operator"})
        case ast.Compare(ops=[op]) if type(op) in _OPERATOR_UFUNCS:
            return frozenset({"operator", "comparison"})
        case ast.Subscript(ctx=ast.Load()):
            return frozenset({"subscript"})
        case ast.Assign(targets=[ast.Subscript(slice=index)]):
            sliced = any(isinstance(part, ast.Slice) for part in ast.walk(index))
            ellipsis = isinstance(index, ast.Constant) and index.value is Ellipsis
            slice_kind = {"slice assignment"} if sliced or ellipsis else set()
            return frozenset({"item assignment"} | slice_kind)
        case ast.AugAssign():
            return frozenset({"augmented assignment"})
        case ast.Raise():
            return frozenset({"raise"})
        case ast.JoinedStr():
            return frozenset({"f-string"})
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            return frozenset({"comprehension"})
        case ast.List(ctx=ast.Load()):
            return frozenset({"list display"})
        case ast.Dict():
            return frozenset({"dict display"})
        case ast.Set():
            return frozenset({"set display"})
        case ast.Lambda() | ast.GeneratorExp():
            return frozenset({"closure"})
        case _:
            return frozenset()


def _column(lines: list[str], line: int, byte_offset: int) -> int:
    """Turn `ast`'s byte offset into a column of characters, counted from 1."""
    text = lines[line - 1] if line <= len(lines) else ""
    return len(text.encode()[:byte_offset].decode(errors="ignore")) + 1


def _expression(node: ast.expr | ast.stmt, lines: list[str], kinds: frozenset[str]) -> Expression:
    end_line = node.end_lineno or node.lineno
    start = _column(lines, node.lineno, node.col_offset)
    end = _column(lines, end_line, node.end_col_offset or node.col_offset)
    if node.lineno == end_line:
        text = lines[node.lineno - 1][start - 1 : end - 1] if node.lineno <= len(lines) else ""
    else:
        text = ast.unparse(node)
    return Expression(text, kinds, node.lineno, start, end_line, end)


def _statements_on(tree: ast.Module, line: int) -> list[ast.stmt]:
    """List the statements that cover a line, outermost first.

    Only those are entered: a large file is asked about many of its lines.
    """
    found: list[ast.stmt] = []
    level: list[ast.AST] = [tree]
    while level:
        inner = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.match_case)
            or (
                isinstance(child, ast.stmt | ast.excepthandler)
                and child.lineno <= line <= (child.end_lineno or child.lineno)
            )
        ]
        found += [child for child in inner if isinstance(child, ast.stmt)]
        level = list(inner)
    return found


def _header(statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement that run with it, without the statements inside it."""
    return [
        child
        for child in ast.iter_child_nodes(statement)
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
    ]


def _candidates(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, frozenset[str]]]:
    """Yield what can be a cause in a statement, outermost first.

    With a stack of its own, because generated source nests deeper than Python recurses.
    """
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        kinds = _kinds(node)
        if kinds and isinstance(node, ast.expr | ast.stmt):
            yield node, kinds
        inner = _header(node) if isinstance(node, ast.stmt) else list(ast.iter_child_nodes(node))
        stack.extend(reversed(inner))


def _source(file: str) -> str:
    linecache.checkcache(file)  # a file that was edited and reloaded must not show its old lines
    return "".join(linecache.getlines(file))


def expressions_on(file: str, line: int) -> tuple[Expression, ...]:
    """List the expressions of a line that can be the cause of an effect, outermost first.

    The kinds of an expression are, for a call, ``call``, its callee as written (``np.sort``), the
    callee's last name (``sort``) and, for a method, ``.sort``; else one or more of ``operator``,
    ``comparison``, ``@``, ``subscript``, ``item assignment``, ``slice assignment``,
    ``augmented assignment``, ``raise``, ``f-string``, ``comprehension``, ``closure`` and
    ``list display``, ``dict display``, ``set display``.

    Parameters
    ----------
    file : str
        Path of the source file.
    line : int
        Line, counted from 1.

    Returns
    -------
    tuple of Expression
        Empty when the source cannot be read or has no such expression there.

    Examples
    --------
    >>> expressions_on("<no such file>", 1)
    ()
    """
    source = _source(file)
    tree = _parse(source)
    if tree is None or line < 1:
        return ()
    lines = source.splitlines()
    found = [
        _expression(node, lines, kinds)
        for statement in _statements_on(tree, line)
        for node, kinds in _candidates(statement)
        if node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return tuple(found)


def likely_expression(
    file: str, line: int, column: int | None = None, kinds: frozenset[str] = frozenset()
) -> Expression | None:
    """Return the expression that most likely has an effect on a line, else the whole statement.

    Of several candidates, the one that starts at `column` wins; else the only one that is of the
    given kinds; else the only outermost one. When that still leaves a choice, the statement is
    returned: a caret that points at too much is better than one that points at the wrong thing.

    Parameters
    ----------
    file : str
        Path of the source file.
    line : int
        Line, counted from 1.
    column : int or None
        Column of the expression's first character, counted from 1, when known.
    kinds : frozenset of str
        Kinds (see :func:`expressions_on`) that the cause is known to be of.

    Returns
    -------
    Expression or None
        None when the source cannot be read.

    Examples
    --------
    >>> likely_expression("<no such file>", 1) is None
    True
    """
    found = expressions_on(file, line)
    if column is not None:
        there = [one for one in found if (one.line, one.column) == (line, column)]
        if there:
            return there[0]
    if kinds:
        fitting = _outermost([one for one in found if one.kinds & kinds])
        if len(fitting) == 1:
            return fitting[0]
    outermost = _outermost(list(found))
    if len(outermost) == 1:
        return outermost[0]
    source = _source(file)
    tree = _parse(source)
    statements = _statements_on(tree, line) if tree is not None else []
    if not statements:
        return None
    statement = statements[-1]
    if any(isinstance(part, ast.stmt) for part in ast.iter_child_nodes(statement)):
        # A compound statement: its whole body is no useful place, its first line is.
        text = source.splitlines()[line - 1]
        start = len(text) - len(text.lstrip()) + 1
        return Expression(text.strip(), frozenset(), line, start, line, len(text.rstrip()) + 1)
    return _expression(statement, source.splitlines(), frozenset())


def _outermost(found: list[Expression]) -> list[Expression]:
    def inside(one: Expression, other: Expression) -> bool:
        return (
            one is not other
            and (other.line, other.column) <= (one.line, one.column)
            and (one.end_line, one.end_column) <= (other.end_line, other.end_column)
        )

    return [one for one in found if not any(inside(one, other) for other in found)]


def into_buffer(text: str) -> str | None:
    """Rewrite an element-wise expression so that it writes into ``buf``, step by step.

    Numba knows a ufunc's output as a positional argument only, so that is the form given.

    Parameters
    ----------
    text : str
        An expression of operators and calls of ufuncs, as ``np.abs``.

    Returns
    -------
    str or None
        None when more than one buffer or more than four steps would be needed, or the expression
        holds anything else, such as a reduction: only a ufunc takes its output.

    Examples
    --------
    >>> into_buffer("np.abs(x) * g")
    'np.abs(x, buf); np.multiply(buf, g, buf)'
    >>> into_buffer("a + b")
    'np.add(a, b, buf)'
    >>> into_buffer("(a + b) * (a - b)") is None
    True
    >>> into_buffer("np.sum(a * b)") is None
    True
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    steps: list[str] = []
    return "; ".join(steps) if _steps(tree, steps, _MOST_STEPS) and steps else None


_MOST_STEPS = 4
"""More calls than these in a row are harder to read than a loop."""


@lru_cache(maxsize=64)
def _ufunc_inputs(name: str) -> int | None:
    """Return how many operands ``np.name`` takes, None when it is no ufunc with one result."""
    import numpy as np  # on use: expressions are looked up only for what is not proved

    found = getattr(np, name, None)
    return found.nin if isinstance(found, np.ufunc) and found.nout == 1 else None


def _steps(node: ast.expr, steps: list[str], most: int) -> bool:
    """Append the calls that compute `node` into ``buf``; False when one buffer is not enough."""
    if most == 0:
        return False
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATOR_UFUNCS:
            name, operands = _OPERATOR_UFUNCS[type(op)], [left, right]
        case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _OPERATOR_UFUNCS:
            name, operands = _OPERATOR_UFUNCS[type(unary)], [operand]
        case ast.Compare(left=left, ops=[comparison], comparators=[right]) if (
            type(comparison) in _OPERATOR_UFUNCS
        ):
            name, operands = _OPERATOR_UFUNCS[type(comparison)], [left, right]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=attribute), keywords=[]
        ) if _ufunc_inputs(attribute) == len(node.args):
            name, operands = ast.unparse(node.func), node.args
        case _:
            return False
    nested = [one for one in operands if not isinstance(one, ast.Name | ast.Constant)]
    simple = [one for one in nested if isinstance(one, ast.Attribute | ast.Subscript)]
    if len(nested) - len(simple) > 1:
        return False
    written: list[str] = []
    for operand in operands:
        if operand in nested and operand not in simple:
            if isinstance(operand, ast.UnaryOp) and isinstance(operand.operand, ast.Constant):
                written.append(ast.unparse(operand))
                continue
            if not _steps(operand, steps, most - 1):
                return False
            written.append("buf")
        else:
            written.append(ast.unparse(operand))
    steps.append(f"{name}({', '.join([*written, 'buf'])})")
    return True

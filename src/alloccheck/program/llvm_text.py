"""Tokens of textual LLVM IR: names, argument lists, callees, integer constants.

Knows the syntax of single lines only; nothing of functions, control flow or effects.
"""

from __future__ import annotations

import re

NAME = r'(?:"[^"]*"|[-\w$.]+)'
"""A name without its sigil. Quotes inside quoted names are escaped as ``\\22``."""

PLAIN_ELEMENTS = "alloccheck.plain"
"""Metadata of a call that changes a container whose elements refer to nothing, by their type."""

INTEGER = re.compile(r"-?\d+")
GLOBAL_TOKEN = re.compile(rf"@{NAME}")
DIRECT_CALLEE = re.compile(
    rf'(?:call|invoke|callbr) ((?:[^@%"(]|\((?:[^()"@%]|\([^()"@%]*\))*\))*)@({NAME})\('
)
"""A call by symbol: what stands before the symbol (attributes, type), and the symbol."""

INLINE_ASSEMBLY = re.compile(
    r'(?:^|[ )])asm (?:sideeffect |alignstack |inteldialect |unwind )*"([^"]*)", "([^"]*)"\('
)
CONSTANT_ADDRESS = re.compile(r"inttoptr \(i64 (-?\d+) to ptr\)\(")
_LOCAL_CALLEE = re.compile(rf"(%{NAME})\(")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")
_NESTING = re.compile(r'["(\[{<]')
_FLAT = re.compile(r'\((?:[^()"]|"[^"]*")*\)')
_QUOTED = re.compile(r'"[^"]*"')
_PIECE = re.compile(r'(?:[^,"]|"[^"]*")+')
_LOCAL = re.compile(rf"%{NAME}")
_LAST_TOKEN = re.compile(r'[%@]"[^"]*"$')


def plain(name: str) -> str:
    r"""Return a name without quotes and escapes.

    Examples
    --------
    >>> plain(r'"a b\22c"'), plain("x.1")
    ('a b"c', 'x.1')
    """
    if name[:1] != '"':
        return name
    return unescape(name[1:-1])


def unescape(text: str) -> str:
    r"""Return the text of a quoted string; ``\XX`` are the bytes of its UTF-8 form.

    Examples
    --------
    >>> unescape(r"\C3\A9t\5C")
    'ét\\'
    """
    if "\\" not in text:
        return text
    text = text.replace("\\\\", "\\5C")
    raw = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), text)
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return raw


def closing(line: str, opening: int) -> int:
    """Return the index of the parenthesis that closes the one at `opening`, or -1.

    Examples
    --------
    >>> closing('f(a, "(" , g(b)) c', 1)
    15
    """
    if m := _FLAT.match(line, opening):
        return m.end() - 1
    depth, i = 0, opening
    while i < len(line):
        c = line[i]
        if c == '"':
            i = line.find('"', i + 1)
            if i < 0:
                return -1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return i if c == ")" else -1
        i += 1
    return -1


def split_commas(text: str) -> list[str]:
    """Split at the commas that stand outside quotes and brackets.

    Examples
    --------
    >>> split_commas('ptr %x, [2 x i8] c"a, b", i64 1')
    ['ptr %x', '[2 x i8] c"a, b"', 'i64 1']
    """
    if not text:
        return []
    if not _NESTING.search(text):
        return text.split(", ")
    if '"' in text and not _NESTING.search(_QUOTED.sub("", text)):
        return [piece.strip() for piece in _PIECE.findall(text)]
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        if c == '"':
            i = text.find('"', i + 1)
            if i < 0:
                break
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
        i += 1
    parts.append(text[start:].strip())
    return parts


def last_token(argument: str) -> str:
    """Return the value of a typed operand: its last token.

    Examples
    --------
    >>> last_token("ptr nonnull %x"), last_token('ptr @"a b"'), last_token("i64 32")
    ('%x', '@"a b"', '32')
    """
    if argument.endswith('"') and (m := _LAST_TOKEN.search(argument)):
        return m[0]
    return argument[argument.rfind(" ") + 1 :]


def pointer_callee(line: str, start: int) -> tuple[str, int] | None:
    """Return the callee of a call through a pointer and the index of its argument list.

    Parameters
    ----------
    line : str
        The instruction.
    start : int
        Index of the opcode.

    Returns
    -------
    (str, int) or None
        A local name such as ``%f``, or ``inttoptr`` for a constant address; None when the
        syntax is not known.
    """
    i = start
    while i < len(line):
        c = line[i]
        if c == "%":
            if m := _LOCAL_CALLEE.match(line, i):
                return m[1], m.end() - 1
            if m := _LOCAL.match(line, i):
                i = m.end()
                continue
        elif c == "@":
            return None
        elif c == "i" and (m := CONSTANT_ADDRESS.match(line, i)):
            return "inttoptr", m.end() - 1
        elif c == '"':
            i = line.find('"', i + 1)
            if i < 0:
                return None
        elif c == "(":
            i = closing(line, i)
            if i < 0:
                return None
        i += 1
    return None

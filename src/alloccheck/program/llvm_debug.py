"""From a debug metadata number to a backtrace. Reads metadata only when asked.

Knows LLVM's line-table metadata; nothing of instructions or effects.
"""

from __future__ import annotations

import re

from alloccheck.program.llvm_text import unescape
from alloccheck.source import Backtrace, Frame

_FIELD = re.compile(r'(\w+): (!?\d+|"[^"]*")')
_NODE = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$", re.MULTILINE)
_SCOPES = frozenset({"DISubprogram", "DILexicalBlock", "DILexicalBlockFile"})
_LONGEST_CHAIN = 1000


class DebugMetadata:
    """The debug metadata of one module, parsed at the first question.

    Parameters
    ----------
    text : str
        The metadata section of a module.

    Examples
    --------
    >>> section = '''!1 = !DIFile(filename: "f.py", directory: "/d")
    ... !2 = distinct !DISubprogram(name: "f", file: !1, line: 3)
    ... !3 = !DILocation(line: 4, column: 5, scope: !2)'''
    >>> DebugMetadata(section).locate(3)
    (Frame(file='/d/f.py', line=4, column=5, function='f', inlined=False),)
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes: dict[int, tuple[str, str]] | None = None
        self._parsed: dict[int, tuple[str, dict[str, str]]] = {}
        self._traces: dict[int, Backtrace] = {}

    def locate(self, key: int) -> Backtrace:
        """Return the frames of a location or subprogram, innermost first; empty when unknown."""
        if key not in self._traces:
            self._traces[key] = self._trace(key)
        return self._traces[key]

    def _node(self, reference: str | None) -> tuple[str, dict[str, str]]:
        """Return kind and fields of the node that ``!12`` names, or an empty kind."""
        if reference is None or not reference[1:].isdecimal() or reference[0] != "!":
            return "", {}
        key = int(reference[1:])
        if key not in self._parsed:
            if self._nodes is None:
                self._nodes = {int(m[1]): (m[2], m[3]) for m in _NODE.finditer(self._text)}
            kind, fields = self._nodes.get(key, ("", ""))
            self._parsed[key] = kind, dict(_FIELD.findall(fields))
        return self._parsed[key]

    def _trace(self, key: int) -> Backtrace:
        frames: list[Frame] = []
        reference: str | None = f"!{key}"
        while reference is not None and len(frames) < _LONGEST_CHAIN:
            kind, fields = self._node(reference)
            if kind == "DISubprogram":
                return (self._frame(reference, 0, 0, False),)
            if kind != "DILocation":
                break
            outer = fields.get("inlinedAt")
            line, column = _number(fields, "line"), _number(fields, "column")
            frames.append(self._frame(fields.get("scope"), line, column, outer is not None))
            reference = outer
        return tuple(frames)

    def _frame(self, scope: str | None, line: int, column: int, inlined: bool) -> Frame:
        """Return the frame of a line in a scope; line 0 falls back to the scope's own line."""
        file, function, seen = "", "", 0
        while scope is not None and seen < _LONGEST_CHAIN:
            seen += 1
            kind, fields = self._node(scope)
            if kind not in _SCOPES:
                break
            if not file and "file" in fields:
                file = self._path(fields["file"])
            if not line and "line" in fields:
                line, column = _number(fields, "line"), _number(fields, "column")
            if kind == "DISubprogram":
                function = unescape(fields.get("name", '""')[1:-1])
                break
            scope = fields.get("scope")
        return Frame(file, line, column or None, function, inlined)

    def _path(self, reference: str) -> str:
        fields = self._node(reference)[1]
        name = unescape(fields.get("filename", '""')[1:-1])
        directory = unescape(fields.get("directory", '""')[1:-1])
        # An absolute file name or one in angle brackets does not depend on the directory.
        if not directory or name.startswith(("/", "<")):
            return name
        return f"{directory}/{name}"


def _number(fields: dict[str, str], name: str) -> int:
    """Return a field that is a number; 0, which means unknown, when it is missing."""
    text = fields.get(name, "0")
    return int(text) if text.isdecimal() else 0

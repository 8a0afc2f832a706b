"""Which addresses of a module's own code and data get out of it: textual LLVM IR, by uses.

An address that is only called, loaded from, stored through or compared stays inside. Whatever is
not understood lets it out. Knows the syntax of LLVM IR; not what any function does: functions
that do not retain what they are given are a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from alloccheck.program.llvm_text import DIRECT_CALLEE, NAME, closing, plain, split_commas

_GLOBAL = re.compile(rf"@({NAME})")
_LOCAL = re.compile(rf"%{NAME}")
_VARIABLE = re.compile(rf"@({NAME}) = ")
_EXTERNAL = re.compile(r"external |extern_weak ")
_DEFINED = re.compile(rf"define [^@]*@({NAME})\(")
_INSTRUCTION = re.compile(rf"  (?:(%{NAME}) = )?(?:(?:tail|musttail|notail) )?([a-z]+)(?![-\w$.])")
_FIXED = re.compile(r"inttoptr \(i64 -?\d+ to ptr\)")
_STRINGS = re.compile(r'c"[^"]*"')
_POINTER_CALLEE = re.compile(rf"(%{NAME})\(")
_WORD = re.compile(r" (?:atomic|volatile|weak|syncscope\(\S+\))(?= )")

_DERIVES = frozenset(
    [
        "getelementptr",
        "phi",
        "select",
        "bitcast",
        "addrspacecast",
        "freeze",
        "insertvalue",
        "extractvalue",
        "insertelement",
        "extractelement",
        "shufflevector",
        "ptrtoint",
        "inttoptr",
        "trunc",
        "zext",
        "sext",
        "add",
        "sub",
        "and",
        "or",
        "xor",
        "mul",
        "shl",
        "lshr",
        "ashr",
    ]
)
"""Instructions whose result may hold an address that their operands hold."""
_CONSUMES = frozenset({"icmp", "br", "switch", "unreachable"})
_CALLS = frozenset({"call", "invoke"})


def escaping_address(
    listing: str,
    *,
    unretained: Collection[str] = (),
    passing: re.Pattern[str] | None = None,
    lent: re.Pattern[str] | None = None,
) -> str | None:
    r"""Return how an address of a module gets out of it, or None when none does.

    Parameters
    ----------
    listing : str
        The text of the module.
    unretained : collection of str
        External functions that keep no address which they are given.
    passing : pattern, optional
        Symbols of data that may be handed on anywhere.
    lent : pattern, optional
        Symbols of variables that hold addresses which are as good as the module's own.

    Returns
    -------
    str or None
        A clause about the first use that lets an address out.

    Notes
    -----
    The idea is that of LLVM's capture tracking (``llvm/Analysis/CaptureTracking.h``), over all
    functions at once and without following arguments into them: an argument is out.

    Examples
    --------
    >>> inside = '''@table = internal constant [2 x i64] [i64 1, i64 2]
    ... define i64 @f(i64 %i) {
    ...   %p = getelementptr i8, ptr @table, i64 %i
    ...   %v = load i64, ptr %p, align 8
    ...   ret i64 %v
    ... }'''
    >>> escaping_address(inside) is None
    True
    >>> escaping_address(inside.replace("ret i64 %v", "ret ptr %p"))
    'ret in f hands on the address of table'
    """
    lines = listing.splitlines()
    own = set(_own_symbols(lines))
    if passing is not None:
        own = {one for one in own if not passing.fullmatch(plain(one))}
    lent_symbols = {one for one in own if lent is not None and lent.match(plain(one))}
    body: list[str] = []
    function = ""
    for line in lines:
        if function:
            if line == "}":
                found = _in_function(body, own, lent_symbols, frozenset(unretained))
                if found is not None:
                    return f"{found[0]} in {plain(function)} hands on the address of {found[1]}"
                function, body = "", []
            else:
                body.append(line)
        elif line.startswith("define "):
            symbols = _GLOBAL.findall(line)
            function = symbols[0]
            if not own.isdisjoint(symbols[1:]):
                return f"{plain(function)} names another symbol of the module"
        elif line.startswith("@"):
            name, *others = _GLOBAL.findall(_STRINGS.sub("", line))
            target = next((one for one in others if one in own), None)
            if name in own and target is not None:
                return f"{plain(name)} holds the address of {plain(target)}"
    return f"{plain(function)} has no end" if function else None


def _own_symbols(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("define "):
            found = _DEFINED.match(line)
            yield found[1] if found else _GLOBAL.findall(line)[0]
        elif line.startswith("@"):
            variable = _VARIABLE.match(line)
            if variable and not _EXTERNAL.match(line, variable.end()):
                yield variable[1]


def _in_function(
    body: list[str], own: set[str], lent: set[str], unretained: frozenset[str]
) -> tuple[str, str] | None:
    """Follow the addresses of one function; return an instruction and a symbol that get out."""
    held: dict[str, str] = {}
    before = -1
    while len(held) > before:
        before = len(held)
        for line in body:
            if "@" not in line and not held and "inttoptr (" not in line:
                continue
            if line.lstrip().startswith("#dbg_"):
                continue
            subject = _subject(line, own, held)
            if subject is None:
                continue
            instruction = _INSTRUCTION.match(line)
            if instruction is None:
                # A line of a switch, or something that is not known.
                if line.startswith("    i") or line == "  ]":
                    continue
                return "an unknown line", subject
            result, opcode = instruction[1], instruction[2]
            rest = line[instruction.end() :]
            if opcode == "load":
                if result and any(one in lent for one in _GLOBAL.findall(rest)):
                    held.setdefault(result, subject)
            elif opcode in _DERIVES:
                if result is None:
                    return opcode, subject
                held.setdefault(result, subject)
            elif opcode in _CALLS:
                out = _given(line, own, held, unretained)
                if out is not None:
                    return opcode, out
            elif opcode in ("store", "atomicrmw", "cmpxchg"):
                parts = split_commas(_WORD.sub("", rest).strip())
                # All but the place itself, which comes second in a store and else first.
                place = 1 if opcode == "store" else 0
                values = [one for i, one in enumerate(parts) if i != place]
                out = next((s for one in values if (s := _subject(one, own, held))), None)
                if out is not None:
                    return opcode, out
            elif opcode not in _CONSUMES:
                return opcode, subject
    return None


def _subject(text: str, own: set[str], held: dict[str, str]) -> str | None:
    """Return the symbol whose address an operand in `text` may hold."""
    if "@" in text:
        for name in _GLOBAL.findall(_STRINGS.sub("", text)):
            if name in own:
                return plain(name)
    if "inttoptr (" in text and _FIXED.search(text):
        return "a constant"
    if held:
        defined = _INSTRUCTION.match(text)
        start = defined.end(1) if defined and defined[1] else 0
        for name in _LOCAL.findall(text, start):
            if name in held:
                return held[name]
    return None


def _given(
    line: str, own: set[str], held: dict[str, str], unretained: frozenset[str]
) -> str | None:
    """Return the symbol whose address a call hands to a function that may retain it."""
    direct = DIRECT_CALLEE.search(line)
    if direct is not None:
        symbol, opening = plain(direct[2]), direct.end() - 1
    else:
        pointer = _POINTER_CALLEE.search(line)
        if pointer is None:
            return _subject(line, own, held)
        symbol, opening = "", pointer.end() - 1
    end = closing(line, opening)
    if end < 0:
        return _subject(line, own, held)
    arguments = line[opening + 1 : end]
    if symbol and _does_not_retain(symbol, unretained):
        arguments = ""
    return _subject(arguments, own, held) or _subject(line[end + 1 :], own, held)


def _does_not_retain(symbol: str, unretained: frozenset[str]) -> bool:
    return symbol in unretained or symbol.startswith(_INTRINSICS)


_INTRINSICS = (
    "llvm.memcpy.",
    "llvm.memmove.",
    "llvm.memset.",
    "llvm.lifetime.",
    "llvm.prefetch.",
    "llvm.x86.atomic.",
)
"""LLVM's own functions that write no address; what is copied is content, which holds none."""

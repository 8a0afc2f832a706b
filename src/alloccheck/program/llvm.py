"""Reads textual, optimised LLVM IR into the program graph, line by line.

Closed to doubt: a line, terminator, opcode or call syntax that is not known ends the reading
with `ProgramError`. Knows nothing of what functions or integers mean to Numba.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import NoReturn

from alloccheck.errors import ProgramError
from alloccheck.program.llvm_debug import DebugMetadata
from alloccheck.program.llvm_intrinsics import is_harmless_intrinsic
from alloccheck.program.llvm_pointers import read_pointers
from alloccheck.program.llvm_text import (
    CONSTANT_ADDRESS,
    DIRECT_CALLEE,
    GLOBAL_TOKEN,
    INLINE_ASSEMBLY,
    INTEGER,
    NAME,
    PLAIN_ELEMENTS,
    closing,
    last_token,
    plain,
    pointer_callee,
    split_commas,
)
from alloccheck.program.llvm_values import PHI_INCOMING, ValueReader
from alloccheck.program.model import (
    Address,
    Block,
    Call,
    Direct,
    Edge,
    Function,
    Indirect,
    Output,
    Program,
    Target,
    Unread,
)
from alloccheck.program.ranges import Ranges

IndexOf = Callable[[str], int]
"""From the name of a block to its index."""

_PLAIN, _DEFINES, _LOAD, _CALL, _END, _STORE = range(6)
_OPCODE_KINDS = {
    _PLAIN: """fneg fadd sub fsub mul fmul udiv sdiv fdiv urem srem frem shl lshr ashr
        extractelement insertelement shufflevector insertvalue alloca fence cmpxchg
        atomicrmw trunc fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr bitcast
        addrspacecast fcmp va_arg landingpad""",
    _DEFINES: """add and or xor icmp zext sext select phi freeze extractvalue getelementptr
        inttoptr""",
    _LOAD: "load",
    _STORE: "store",
    _CALL: "call",
    _END: "ret br switch indirectbr invoke callbr resume unreachable",
}
_OPCODES = {opcode: kind for kind, text in _OPCODE_KINDS.items() for opcode in text.split()}

_INSTRUCTION = re.compile(rf"  (?:(%{NAME}) = )?(?:(?:tail|musttail|notail) )?([a-z_]+)(?![-\w$.])")
_CLAUSE = re.compile(r" {10}(?:cleanup|catch|filter)\b")
_LABEL = re.compile(rf"({NAME}):(?: +;.*)?$")
_GLOBAL = re.compile(rf"@({NAME}) = ((?:[^@\"]*? )?)(global|constant|alias|ifunc) (.*)$")
_DEFINE = re.compile(rf"(define [^@]*)@({NAME})\(")
_DECLARE = re.compile(rf"declare [^@]*@({NAME})\(")
_LOCATION = re.compile(r"!dbg !(\d+)")
_MARKED = f"!{PLAIN_ELEMENTS} "
_LOAD_GLOBAL = re.compile(rf"load (?:volatile )?ptr, ptr (@{NAME})(?:,|$)")
_LOAD_LOCAL = re.compile(rf"load (?:volatile )?ptr, ptr (%{NAME})(?:,|$)")
_STORE_POINTER = re.compile(rf"  store ptr (\S+|%{NAME}|@{NAME}), ptr (%{NAME})(?:,|$)")
_ELEMENT = re.compile(
    rf"getelementptr (?:inbounds |nuw |nusw )*(\[\d+ x ptr\]|ptr|i8), ptr ([@%]{NAME}), "
)
_ALIGNED = re.compile(r", align (\d+)(?:,|$)")
_POINTER_SELECT = re.compile(rf"select i1 [^,]+, ptr ([@%]{NAME}), ptr ([@%]{NAME})(?:, !|$)")
_POINTER_PHI = re.compile(r"phi ptr (.*)")
_INTEGER_TYPE = re.compile(r"i\d+ ")
_TABLE = re.compile(r"\[\d+ x ptr\] \[(.*?)\](?:,|$)")

_META = r"(?:, ![\w.]+ !\d+)*"
_JUMP = re.compile(rf"  br label %({NAME}){_META}$")
_BRANCH = re.compile(
    rf"  br i1 (%{NAME}|true|false|undef|poison), label %({NAME}), label %({NAME}){_META}$"
)
_SWITCH = re.compile(rf"  switch i(\d+) (%{NAME}|\S+), label %({NAME}) \[(.*)\]{_META}$")
_CASE = re.compile(rf" *i\d+ (-?\d+|true|false), label %({NAME}) *")
_INDIRECT_BRANCH = re.compile(rf"  indirectbr ptr [^,]+, \[(label %{NAME}(?:, label %{NAME})*)\]")
_INVOKE = re.compile(rf" to label %({NAME}) unwind label %({NAME}){_META}$")
_CALL_BRANCH = re.compile(rf" to label %({NAME}) \[((?:label %{NAME}(?:, )?)*)\]{_META}$")
_TARGET_LABEL = re.compile(rf"label %({NAME})")
_RETURN = re.compile(rf"  ret (?:void|i32 (%{NAME}|-?\d+)|.+?){_META}$")
_RESULT_I32 = re.compile(r"(?:^|[ )])i32 (?:\([^@]*\) )?$")
_SAFE_BUNDLES = frozenset({"deopt", "funclet"})
_REPLACEABLE = frozenset(
    {"external", "extern_weak", "weak", "linkonce", "common", "available_externally"}
)
"""Linkages whose definition here need not be the one that is used."""

_OURS = frozenset({"internal", "private", "linkonce", "linkonce_odr"})
"""Linkages of variables that nothing outside a closed program writes."""
_MODULE_LINES = (";", "source_filename", "target ", "attributes #", "$", "uselistorder")


@dataclass(slots=True)
class _Global:
    """A global variable: its linkage words, whether it is constant, and its initialiser."""

    linkage: frozenset[str]
    constant: bool
    initialiser: str


@dataclass(slots=True)
class _CallDraft:
    """A call as written, before pointers are resolved."""

    block: int
    line: int
    target: Target | str
    """A target, or the local name of the pointer that is called."""
    arguments: tuple[str, ...]
    size: int | None
    location: int | None
    plain: bool = False


@dataclass(slots=True)
class _BlockDraft:
    """A block as written: its name and its terminator."""

    name: str
    line: int
    end: str = ""
    calls: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _FunctionDraft:
    """A function as written."""

    name: str
    line: int
    returns: str
    takes: tuple[str, ...]
    parameters: tuple[str, ...]
    location: int | None
    external_body: bool
    end: int = 0
    """Number of the line that closes it."""
    blocks: list[_BlockDraft] = field(default_factory=list)
    calls: list[_CallDraft] = field(default_factory=list)
    stores: list[tuple[int, str]] = field(default_factory=list)
    """Blocks and lines that store a pointer."""
    definitions: dict[str, str] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)


def read_module(text: str, entry: str) -> Program:
    """Read a module of textual LLVM IR.

    The program is taken to be closed: nothing outside the module writes its globals, unless
    their address is handed out in it.

    Parameters
    ----------
    text : str
        The module, as LLVM prints it after optimisation.
    entry : str
        Symbol of the function that is asked about.

    Returns
    -------
    Program
        Every function that has a body, with its calls, edges, facts and returns.

    Raises
    ------
    ProgramError
        For anything that is not understood; the message names line and reason.

    Examples
    --------
    >>> program = read_module('''define i32 @f(ptr %x) {
    ...   %s = call i32 @g(ptr %x, i64 8)
    ...   ret i32 %s
    ... }
    ... declare i32 @g(ptr, i64)
    ... ''', "f")
    >>> program.functions["f"].calls[0].target
    Direct(symbol='g')
    >>> program.functions["f"].blocks[0].returns
    '%s'
    """
    return _ModuleReader(text, entry).read()


class _ModuleReader:
    def __init__(self, text: str, entry: str) -> None:
        split = text.find("\n!")
        self._head = text if split < 0 else text[: split + 1]
        tail = "" if split < 0 else text[split + 1 :]
        for line in tail.splitlines():
            if line and line[0] not in "!;":
                raise ProgramError(f"LLVM IR: expected only metadata at the end, found {line!r}")
        self._metadata = DebugMetadata(tail)
        self._entry = entry
        self._globals: dict[str, _Global] = {}
        self._aliases: dict[str, str] = {}
        self._declared: set[str] = set()
        self._drafts: dict[str, _FunctionDraft] = {}
        self._mentions: set[str] = set()
        self._line = 0
        self._lines = self._head.split("\n")

    def _fail(self, reason: str, line: int | None = None) -> NoReturn:
        number = self._line if line is None else line
        raise ProgramError(f"LLVM IR line {number}: {reason}")

    # --- the module ---------------------------------------------------------------------------

    def read(self) -> Program:
        lines = enumerate(self._lines, 1)
        for number, line in lines:
            if not line:
                continue
            self._line = number
            if line.startswith("define "):
                self._read_function(line, lines)
            elif line.startswith("declare "):
                m = _DECLARE.match(line)
                if m is None:
                    self._fail("expected `declare ... @name(...)`")
                self._declared.add(plain(m[1]))
            elif line[0] == "@":
                self._read_global(line)
            elif line[0] == "%" and " = type " in line:
                continue
            elif not line.startswith(_MODULE_LINES):
                what = "module-level assembly" if line.startswith("module asm") else "this line"
                self._fail(f"{what} is not understood: {line[:80]!r}")
        if not self._drafts:
            raise ProgramError("LLVM IR: the module defines no function, so it proves nothing")
        self._resolve_aliases()
        functions = {
            name: self._finish(draft)
            for name, draft in self._drafts.items()
            if not draft.external_body
        }
        if self._entry not in functions:
            raise ProgramError(
                f"LLVM IR: expected a body of the entry {self._entry!r}, found "
                f"{len(functions)} other functions"
            )
        names = (plain(token[1:]) for token in self._mentions)
        taken = {self._aliases.get(name, name) for name in names}
        mentioned = {
            symbol
            for function in functions.values()
            for call in function.calls
            for symbol in _symbols(call.target)
        }
        return Program(
            functions=functions,
            externals=frozenset(mentioned - functions.keys()),
            address_taken=frozenset(taken & functions.keys()),
            locate=self._metadata.locate,
            entry=self._entry,
        )

    def _read_global(self, line: str) -> None:
        m = _GLOBAL.match(line)
        if m is None:
            self._fail(f"expected a global variable, found {line[:80]!r}")
        name, words, kind, rest = plain(m[1]), m[2].split(), m[3], m[4]
        if kind == "ifunc":
            self._fail(f"the target of ifunc {name!r} is chosen at load time")
        if kind == "alias":
            target = re.fullmatch(rf".*ptr @({NAME})(?:, partition .*)?", rest)
            if target is None or not _REPLACEABLE.isdisjoint(words):
                self._fail(f"the target of alias {name!r} is not fixed")
            self._aliases[name] = plain(target[1])
            self._mentions.add(f"@{target[1]}")
            return
        if "@" in rest:
            self._mentions.update(GLOBAL_TOKEN.findall(rest))
        self._globals[name] = _Global(frozenset(words), kind == "constant", rest)

    def _resolve_aliases(self) -> None:
        for name in self._aliases:
            target, seen = name, set()
            while target in self._aliases:
                if target in seen:
                    raise ProgramError(f"LLVM IR: alias {name!r} refers to itself")
                seen.add(target)
                target = self._aliases[target]
            self._aliases[name] = target

    # --- one function -------------------------------------------------------------------------

    def _read_function(self, header: str, lines: Iterator[tuple[int, str]]) -> None:
        draft = self._read_header(header)
        if draft.name in self._drafts:
            self._fail(f"function {draft.name!r} is defined twice")
        self._drafts[draft.name] = draft
        blocks, definitions, homes = draft.blocks, draft.definitions, draft.homes
        mentions = self._mentions
        match, opcodes, local = _INSTRUCTION.match, _OPCODES, "  "
        block: _BlockDraft | None = None
        for number, line in lines:
            if line[:2] == local:
                m = match(line)
                if m is None:
                    if line.startswith("    #dbg_"):
                        continue
                    if _CLAUSE.match(line):
                        mentions.update(GLOBAL_TOKEN.findall(line))
                        continue
                    self._fail(f"expected an instruction, found {line[:80]!r}", number)
                if block is None:
                    implicit = sum(p[1:].isdigit() for p in draft.parameters)
                    block = _BlockDraft(str(implicit), number)
                    blocks.append(block)
                elif block.end:
                    self._fail(f"an instruction after the end of block {block.name!r}", number)
                name, opcode = m.groups()
                kind = opcodes.get(opcode)
                if kind == _PLAIN:
                    if "@" in line:
                        mentions.update(GLOBAL_TOKEN.findall(line))
                elif kind == _DEFINES:
                    if "@" in line:
                        mentions.update(GLOBAL_TOKEN.findall(line))
                    if name:
                        definitions[name] = line[m.start(2) :]
                        homes[name] = len(blocks) - 1
                elif kind == _LOAD:
                    if "@" in line and not _LOAD_GLOBAL.match(line, m.start(2)):
                        mentions.update(GLOBAL_TOKEN.findall(line))
                    if name:
                        definitions[name] = line[m.start(2) :]
                elif kind == _STORE:
                    if "@" in line:
                        mentions.update(GLOBAL_TOKEN.findall(line))
                    if line.startswith("store ptr ", m.start(2)):
                        draft.stores.append((len(blocks) - 1, line))
                elif kind == _CALL:
                    self._line = number
                    self._read_call(draft, block, name, line, m.start(2))
                elif kind == _END:
                    self._line = number
                    block.end, block.line = self._read_end(draft, block, m, line, lines), number
                else:
                    self._fail(f"the opcode {opcode!r} is not known", number)
            elif line == "}":
                draft.end = number
                break
            elif not line:
                continue
            elif m := _LABEL.match(line):
                if block is not None and not block.end:
                    self._fail(f"block {block.name!r} has no terminator", number)
                block = _BlockDraft(plain(m[1]), number)
                blocks.append(block)
            elif line[0] != ";":
                self._fail(f"expected an instruction or label, found {line[:80]!r}", number)
        else:
            self._fail(f"function {draft.name!r} is not closed", draft.line)
        if block is None:
            self._fail(f"function {draft.name!r} has no blocks", draft.line)
        if not block.end:
            self._fail(f"block {block.name!r} has no terminator", block.line)

    def _read_header(self, header: str) -> _FunctionDraft:
        m = _DEFINE.match(header)
        end = closing(header, m.end() - 1) if m else -1
        if m is None or end < 0 or not header.endswith("{"):
            self._fail("expected `define ... @name(...) ... {` on one line")
        texts = split_commas(header[m.end() : end])
        parameters = [last_token(p) for p in texts]
        after = header[end:]
        if "@" in after:
            self._mentions.update(GLOBAL_TOKEN.findall(after))
        location = _LOCATION.search(after)
        return _FunctionDraft(
            name=plain(m[2]),
            line=self._line,
            returns=m[1].split()[-1],
            takes=tuple(_type(text) for text in texts),
            parameters=tuple(parameters),
            location=int(location[1]) if location else None,
            external_body=" available_externally " in m[1],
        )

    def _read_end(
        self,
        draft: _FunctionDraft,
        block: _BlockDraft,
        m: re.Match[str],
        line: str,
        lines: Iterator[tuple[int, str]],
    ) -> str:
        """Return a terminator as one line; read the call inside an invoke."""
        opcode = m[2]
        if opcode == "switch" and "]" not in line:
            parts = [line]
            for _, more in lines:
                parts.append(more)
                if more.startswith("  ]"):
                    break
                if not _CASE.fullmatch(more):
                    self._fail(f"expected a case of switch, found {more[:80]!r}")
            line = " ".join(p.strip() for p in parts)
            return "  " + line
        if opcode in ("invoke", "callbr"):
            for _, more in lines:
                line = f"{line} {more.strip()}"
                if (_INVOKE if opcode == "invoke" else _CALL_BRANCH).search(line):
                    break
                if not more.startswith("          "):
                    self._fail(f"expected the labels of {opcode}, found {more[:80]!r}")
            self._read_call(draft, block, m[1], line, m.start(2))
            return line
        if "@" in line:
            self._mentions.update(GLOBAL_TOKEN.findall(line))
        return line

    def _read_call(
        self, draft: _FunctionDraft, block: _BlockDraft, name: str | None, line: str, start: int
    ) -> None:
        target: Target | str
        m = DIRECT_CALLEE.match(line, start)
        if m:
            symbol, opening = plain(m[2]), m.end() - 1
            before = m[1]
            if symbol.startswith("llvm."):
                if "@" in line[opening:]:
                    self._mentions.update(GLOBAL_TOKEN.findall(line, opening))
                if is_harmless_intrinsic(symbol):
                    return
                target = Unread(f"intrinsic {symbol}")
            else:
                target = Direct(symbol)
        elif m := INLINE_ASSEMBLY.search(line, start):
            clobbers = m[2].split(",") if m[2] else []
            if not m[1].strip() and all(c.startswith("~{") for c in clobbers):
                return
            target, opening, before = Unread(f"inline assembly {m[1]!r}"), m.end() - 1, ""
        else:
            found = pointer_callee(line, start)
            if found is None:
                self._fail(f"this call is not understood: {line.strip()[:120]!r}")
            pointer, opening = found
            before = line[start : opening - len(pointer)]
            target = pointer
            if pointer == "inttoptr" and (a := CONSTANT_ADDRESS.search(line, start)):
                target = Address(int(a[1]) % 2**64, a[0][:-1])
                before = line[start : a.start()]
        end = closing(line, opening)
        if end < 0:
            self._fail(f"the argument list is not closed: {line.strip()[:120]!r}")
        inside, after = line[opening + 1 : end], line[end + 1 :]
        if "@" in inside or "@" in after:
            self._mentions.update(GLOBAL_TOKEN.findall(line, opening))
        texts = split_commas(inside)
        location = _LOCATION.search(after)
        place = int(location[1]) if location else None
        index = len(draft.calls)
        block.calls.append(index)
        number = len(draft.blocks) - 1
        draft.calls.append(
            _CallDraft(
                number,
                self._line,
                target,
                tuple(map(last_token, texts)),
                _size(texts),
                place,
                _MARKED in after,
            )
        )
        if name and _RESULT_I32.search(before):
            draft.results[name] = index
        if "[ " in after:
            for bundle in re.findall(r'"([^"]*)"\(', after):
                if bundle not in _SAFE_BUNDLES:
                    block.calls.append(len(draft.calls))
                    unread = Unread(f"operand bundle {bundle!r}")
                    draft.calls.append(_CallDraft(number, self._line, unread, (), None, place))

    # --- from drafts to the graph -------------------------------------------------------------

    def _finish(self, draft: _FunctionDraft) -> Function:
        index: dict[str, int] = {}
        for i, block in enumerate(draft.blocks):
            if block.name in index:
                self._fail(f"block {block.name!r} is defined twice", block.line)
            index[block.name] = i

        def block_index(name: str) -> int:
            found = index.get(name)
            if found is None:
                self._fail(f"{draft.name!r} has no block {name!r}", draft.line)
            return found

        reader = ValueReader(draft.definitions, draft.homes, draft.results, block_index)
        blocks = []
        for i, block in enumerate(draft.blocks):
            edges: tuple[Edge, ...] = ()
            returns: str | None = None
            opcode = "invoke" if block.end[2] == "%" else block.end.split(None, 1)[0].rstrip(",")
            if opcode == "ret":
                m = _RETURN.match(block.end)
                if m is None:
                    self._fail(f"this return is not understood: {block.end!r}", block.line)
                if draft.returns == "i32" and m[1]:
                    returns = m[1]
                    reader.need(returns)
            elif opcode not in ("resume", "unreachable"):
                edges = self._edges(block, reader, block_index)
            blocks.append(
                Block(
                    index=i,
                    name=block.name,
                    edges=edges,
                    calls=tuple(block.calls),
                    exits=opcode in ("ret", "resume"),
                    returns=returns,
                    dies=opcode == "unreachable",
                )
            )
        calls = tuple(
            Call(
                index=i,
                block=call.block,
                target=self._target(call, draft),
                location=call.location,
                size=call.size,
                operand=next((a for a in call.arguments if a[:1] in ("%", "@")), None),
                arguments=call.arguments,
                plain=call.plain,
            )
            for i, call in enumerate(draft.calls)
        )
        for name in draft.results:
            reader.need(name)
        return Function(
            name=draft.name,
            blocks=tuple(blocks),
            calls=calls,
            values=reader.values,
            has_status=draft.returns == "i32",
            parameters=draft.parameters,
            location=draft.location,
            returns=draft.returns,
            takes=draft.takes,
            outputs=tuple(_outputs(draft)),
            read_pointers=cache(
                partial(
                    read_pointers,
                    self._lines[draft.line : draft.end - 1],
                    draft.line + 1,
                    draft.parameters,
                    calls,
                    [call.line for call in draft.calls],
                    block_index,
                )
            ),
        )

    def _edges(
        self, block: _BlockDraft, reader: ValueReader, block_index: IndexOf
    ) -> tuple[Edge, ...]:
        end = block.end
        if m := _JUMP.match(end):
            return (Edge(block_index(plain(m[1]))),)
        if m := _BRANCH.match(end):
            yes, no = block_index(plain(m[2])), block_index(plain(m[3]))
            if yes == no:
                return (Edge(yes),)
            if m[1] in ("true", "false"):
                return (Edge(yes if m[1] == "true" else no),)
            when_true, when_false = reader.condition(m[1])
            return (Edge(yes, reader.facts(when_true)), Edge(no, reader.facts(when_false)))
        if m := _SWITCH.match(end):
            return self._switch(m, block, reader, block_index)
        if m := _INDIRECT_BRANCH.match(end):
            names = _TARGET_LABEL.findall(m[1])
        elif m := _INVOKE.search(end):
            names = [m[1], m[2]]
        elif m := _CALL_BRANCH.search(end):
            names = [m[1], *_TARGET_LABEL.findall(m[2])]
        else:
            self._fail(f"this terminator is not understood: {end.strip()[:120]!r}", block.line)
        return tuple(Edge(t) for t in dict.fromkeys(block_index(plain(n)) for n in names))

    def _switch(
        self, m: re.Match[str], block: _BlockDraft, reader: ValueReader, block_index: IndexOf
    ) -> tuple[Edge, ...]:
        cases = [(c[1], block_index(plain(c[2]))) for c in _CASE.finditer(m[4])]
        if _CASE.sub("", m[4]).strip():
            self._fail(f"a case of this switch is not understood: {m[4][:120]!r}", block.line)
        default = block_index(plain(m[3]))
        targets = dict.fromkeys([*(t for _, t in cases), default])
        if m[1] != "32" or m[2][:1] != "%":
            return tuple(Edge(t) for t in targets)
        named = Ranges.of(*(int(c) for c, _ in cases))
        edges = []
        for target in targets:
            ranges = Ranges.of(*(int(c) for c, t in cases if t == target))
            if target == default:
                ranges = ranges | ~named
            edges.append(Edge(target, reader.facts(reader.implied(m[2], ranges))))
        return tuple(edges)

    # --- what a call reaches ------------------------------------------------------------------

    def _target(self, call: _CallDraft, draft: _FunctionDraft) -> Target:
        target = call.target
        if isinstance(target, Direct):
            symbol = self._aliases.get(target.symbol, target.symbol)
            if symbol not in self._drafts and symbol not in self._declared:
                self._fail(f"the callee {symbol!r} is neither declared nor defined", call.line)
            return Direct(symbol)
        if not isinstance(target, str):
            return target
        found = self._pointees(target, draft, set())
        description = f"pointer {target}" + self._origin(target, draft)
        if not found or None in found:
            return Indirect(None, description)
        addresses = sorted(x for x in found if isinstance(x, tuple))
        symbols = tuple(sorted(x for x in found if isinstance(x, str)))
        if len(found) == 1:
            return Address(*addresses[0]) if addresses else Direct(symbols[0])
        return Indirect(None if addresses else symbols, description)

    def _origin(self, pointer: str, draft: _FunctionDraft) -> str:
        m = _LOAD_GLOBAL.match(draft.definitions.get(pointer, ""))
        return f" loaded from {plain(m[1][1:])}" if m else ""

    def _pointees(
        self, token: str, draft: _FunctionDraft, seen: set[str]
    ) -> set[str | tuple[int, str] | None]:
        """Return what a pointer may be: symbols, (address, name) pairs; None when unknown."""
        if token[0] == "@":
            name = plain(token[1:])
            name = self._aliases.get(name, name)
            return {name if name in self._drafts or name in self._declared else None}
        if token in seen:
            return set()  # a loop of phis adds nothing of its own
        seen.add(token)
        text = draft.definitions.get(token, "")
        if m := _LOAD_GLOBAL.match(text):
            return self._content(plain(m[1][1:]), m[1])
        if m := _LOAD_LOCAL.match(text):
            table = self._indexed(m[1], text, draft)
            return {None} if table is None else self._table(table)
        if m := _POINTER_SELECT.match(text):
            return self._pointees(m[1], draft, seen) | self._pointees(m[2], draft, seen)
        if m := _POINTER_PHI.match(text):
            values = [v for v, _ in PHI_INCOMING.findall(m[1])]
            if not values or any(v[0] not in "@%" for v in values):
                return {None}
            return set(chain.from_iterable(self._pointees(v, draft, seen) for v in values))
        return {None}

    def _content(self, name: str, token: str) -> set[str | tuple[int, str] | None]:
        """Return what a load of a global pointer gives."""
        variable = self._globals.get(name)
        if variable is None or variable.linkage & {"externally_initialized", "external"}:
            return {None}
        if variable.constant and not variable.linkage & _REPLACEABLE:
            if m := re.match(rf"ptr (@{NAME})(?:,|$)", variable.initialiser):
                symbol = plain(m[1][1:])
                symbol = self._aliases.get(symbol, symbol)
                return {symbol if symbol in self._drafts or symbol in self._declared else None}
        elif not variable.constant and token in self._mentions:
            return {None}  # it may be written through its address
        if not variable.linkage & _OURS:
            return {None}
        if m := re.match(r"ptr inttoptr \(i64 (-?\d+) to ptr\)(?:,|$)", variable.initialiser):
            return {(int(m[1]) % 2**64, name)}
        return {None}

    def _indexed(self, pointer: str, load: str, draft: _FunctionDraft) -> str | None:
        """Return the global whose memory a load reads through the address of an element.

        Code generation splits addresses into steps of bytes. Then both the load and the global must
        be aligned: it cannot take half of one pointer and half of the next.
        """
        in_bytes = False
        seen = set()
        while pointer not in seen and (m := _ELEMENT.match(draft.definitions.get(pointer, ""))):
            seen.add(pointer)
            in_bytes |= m[1] == "i8"
            pointer = m[2]
            if pointer[0] == "@":
                name = plain(pointer[1:])
                return name if not in_bytes or self._whole_pointers(name, load) else None
        return None

    def _whole_pointers(self, name: str, load: str) -> bool:
        here = _ALIGNED.search(load)
        variable = self._globals.get(name)
        there = None if variable is None else _ALIGNED.search(variable.initialiser)
        return (
            here is not None and int(here[1]) % 8 == 0 and (there is None or int(there[1]) % 8 == 0)
        )

    def _table(self, name: str) -> set[str | tuple[int, str] | None]:
        """Return what a load of any element of a constant table of functions gives."""
        variable = self._globals.get(name)
        if (
            variable is None
            or not variable.constant
            or variable.linkage & (_REPLACEABLE | {"externally_initialized"})
        ):
            return {None}
        m = _TABLE.match(variable.initialiser)
        if m is None:
            return {None}
        found: set[str | tuple[int, str] | None] = set()
        for element in split_commas(m[1]):
            token = last_token(element)
            name = plain(token[1:])
            name = self._aliases.get(name, name)
            known = token[0] == "@" and (name in self._drafts or name in self._declared)
            found.add(name if known else None)
        return found


def _outputs(draft: _FunctionDraft) -> Iterator[Output]:
    for block, line in draft.stores:
        m = _STORE_POINTER.match(line)
        if m is None or m[2] not in draft.parameters:
            continue
        location = _LOCATION.search(line)
        loaded = _is_passed_on(m[1], draft, set())
        yield Output(block, m[2], int(location[1]) if location else None, loaded)


def _is_passed_on(value: str, draft: _FunctionDraft, seen: set[str]) -> bool:
    """Return whether a pointer was loaded from memory, whichever way it came."""
    text = draft.definitions.get(value, "")
    if text.startswith("load "):
        return True
    if value in seen or not text.startswith("phi "):
        return value in seen
    seen.add(value)
    return all(_is_passed_on(v, draft, seen) for v, _ in PHI_INCOMING.findall(text))


def _type(parameter: str) -> str:
    """Return the type of a parameter; that of a structure is not spelled out."""
    return parameter.split(None, 1)[0]


def _size(arguments: list[str]) -> int | None:
    """Return the first integer argument when it is a constant."""
    for argument in arguments:
        if _INTEGER_TYPE.match(argument):
            token = last_token(argument)
            return int(token) if INTEGER.fullmatch(token) else None
    return None


def _symbols(target: Target) -> tuple[str, ...]:
    if isinstance(target, Direct):
        return (target.symbol,)
    if isinstance(target, Indirect):
        return target.candidates or ()
    return ()

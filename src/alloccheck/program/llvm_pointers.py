"""Where the pointers of one function of LLVM IR come from, and what its stack slots hold.

A slot is memory that only this function and those that it passes it to can reach: an `alloca`
or a pointer parameter, used for nothing but loads, stores, constant offsets and arguments. A
use that is not understood makes it no slot. Knows nothing of what pointers point to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from alloccheck.program.llvm_text import NAME, plain
from alloccheck.program.llvm_values import PHI_INCOMING
from alloccheck.program.model import Call, Merge, PointerEvent, Pointers, Read, Select, Write

_INSTRUCTION = re.compile(rf"  (?:(%{NAME}) = )?(?:(?:tail|musttail|notail) )?([a-z_]+)(?![-\w$.])")
_LABEL = re.compile(rf"{NAME}:(?: +;.*)?$")
_LOCAL = re.compile(rf"%{NAME}")
_OFFSET = re.compile(
    rf"getelementptr (?:inbounds |nuw |nusw )*i8, ptr (%{NAME}), i64 (-?\d+)(?:, !|$)"
)
_LOAD = re.compile(rf"load (?:volatile )?(.+?), ptr (%{NAME})(?:,|$)")
_STORE = re.compile(rf"store (?:volatile )?(.+) (\S+|%{NAME}), ptr (%{NAME})(?:,|$)")
_SELECT = re.compile(
    rf"select i1 [^,]+, ptr (%{NAME}|@{NAME}|\w+), ptr (%{NAME}|@{NAME}|\w+)(?:, !|$)"
)
_PART = re.compile(rf"extractvalue .* (%{NAME}), \d+(?:, \d+)*(?:, !.*)?$")
_FIELD = re.compile(rf"extractvalue .* (%{NAME}), (\d+)(?:, !.*)?$")
_INSERT = re.compile(
    rf"insertvalue .*[}}\]] (%{NAME}|\w+), (.*?) (\S+), (\d+)((?:, \d+)*)(?:, !.*)?$"
)
_STRUCTURE_PHI = re.compile(r"phi \{.*?\} \[")
_LOCATION = re.compile(r"!dbg !(\d+)")
_MEMORY_INTRINSIC = re.compile(
    r"@llvm\.(?:lifetime\.(?:start|end)|memset|memcpy|memmove)\.[\w.]*\("
)
_ALLOCA = re.compile(rf"  (%{NAME}) = alloca (?:inalloca )?(.*?)(?:, align \d+)?(?:, !.*)?$")
_POINTER = re.compile(r"ptr|%")
_SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}


@dataclass(slots=True)
class _Found:
    """What was read so far."""

    merges: dict[str, Merge] = field(default_factory=dict)
    events: dict[int, list[PointerEvent]] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    fields: dict[str, tuple[str, int]] = field(default_factory=dict)
    inserts: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    structures: dict[str, Merge] = field(default_factory=dict)
    locations: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, tuple[str, int]] = field(default_factory=dict)
    escaped: set[str] = field(default_factory=set)

    def escape(self, names: list[str]) -> None:
        self.escaped.update(self.addresses[n][0] for n in names if n in self.addresses)


def read_pointers(
    lines: Sequence[str],
    first: int,
    parameters: Sequence[str],
    calls: Sequence[Call],
    call_lines: Sequence[int],
    block_index: Callable[[str], int],
) -> Pointers:
    """Read the pointers of a function.

    Parameters
    ----------
    lines : sequence of str
        The lines between the function's braces; they have been read once without complaint.
    first : int
        Number of the first of them.
    parameters : sequence of str
        Names of the parameters.
    calls : sequence of Call
        The calls that were found.
    call_lines : sequence of int
        The number of the line on which each begins.
    block_index : callable
        From a block's name to its index.
    """
    at_line: dict[int, list[int]] = {}
    for index, line_number in enumerate(call_lines):
        at_line.setdefault(line_number, []).append(index)
    found = _Found()
    found.addresses = _addresses(lines, parameters)
    block = -1
    for number, line in enumerate(lines, first):
        if line[:2] != "  ":
            block += bool(_LABEL.match(line))
            continue
        m = _INSTRUCTION.match(line)
        if m is None or line.startswith("    "):
            # Part of an instruction above: of a switch, or of an invoke, whose arguments are
            # on its first line.
            if not line.startswith("    #dbg_"):
                found.escape(_LOCAL.findall(line))
            continue
        block = max(block, 0)
        _read(m, line, block, at_line.get(number, ()), calls, found, block_index)
    aliases = _name_fields(found)
    slots = {slot for slot, _ in found.addresses.values()} - found.escaped
    return Pointers(
        merges=found.merges,
        events={
            block: tuple(_renamed(event, aliases) for event in events)
            for block, events in found.events.items()
        },
        homes=found.homes,
        results=found.results,
        parts=found.parts,
        aliases=aliases,
        locations=found.locations,
        addresses=found.addresses,
        slots=frozenset(slots),
        pointer_free=frozenset(
            m[1] for line in lines if (m := _ALLOCA.match(line)) and not _POINTER.search(m[2])
        ),
    )


def _name_fields(found: _Found) -> dict[str, str]:
    """Return, for fields taken out of structures, the pointers that were put into them.

    A field of a merge of structures becomes a merge of its own, ``%structure#field``.
    """
    named: dict[tuple[str, int], str] = {}

    def source(structure: str, index: int) -> str:
        seen: set[str] = set()
        while structure in found.inserts:
            if structure in seen:
                return f"{structure}#?"
            seen.add(structure)
            before, value, place = found.inserts[structure]
            if place == index:
                return value
            structure = before
        if structure in ("undef", "poison", "zeroinitializer"):
            return "null"
        key = structure, index
        if key not in named:
            named[key] = f"{structure}#{index}"
            merge = found.structures.get(structure)
            if merge is not None:
                found.homes[named[key]] = merge.block
                pairs = tuple((source(s, index), block) for s, block in merge.incoming)
                found.merges[named[key]] = Merge(merge.block, pairs)
        return named[key]

    aliases = {}
    for name, (structure, index) in found.fields.items():
        if structure in found.inserts or structure in found.structures:
            aliases[name] = source(structure, index)
    for name in aliases:
        seen = {name}
        while aliases[name] in aliases and aliases[name] not in seen:
            seen.add(aliases[name])
            aliases[name] = aliases[aliases[name]]
    for name, merge in list(found.merges.items()):
        pairs = tuple((aliases.get(v, v), block) for v, block in merge.incoming)
        found.merges[name] = Merge(merge.block, pairs)
    return aliases


def _renamed(event: PointerEvent, aliases: dict[str, str]) -> PointerEvent:
    if isinstance(event, Write) and event.value in aliases:
        return replace(event, value=aliases[event.value])
    if isinstance(event, Select):
        return replace(event, values=tuple(aliases.get(v, v) for v in event.values))
    return event


def _addresses(lines: Sequence[str], parameters: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the names of addresses at a constant distance from the start of a slot."""
    found = {name: (name, 0) for name in parameters}
    steps: dict[str, tuple[str, int]] = {}
    for line in lines:
        if " = alloca " in line:
            if (m := _INSTRUCTION.match(line)) and m[1] and m[2] == "alloca":
                found[m[1]] = m[1], 0
        elif " = getelementptr " in line and (m := _INSTRUCTION.match(line)):
            step = _OFFSET.match(line, m.start(2))
            if step and m[1]:
                steps[m[1]] = step[1], int(step[2])
    grown = True
    while grown:
        grown = False
        for name, (base, distance) in steps.items():
            if name not in found and base in found:
                slot, offset = found[base]
                found[name] = slot, offset + distance
                grown = True
    return found


def _read(
    m: re.Match[str],
    line: str,
    block: int,
    indices: Sequence[int],
    calls: Sequence[Call],
    found: _Found,
    block_index: Callable[[str], int],
) -> None:
    name, opcode = m[1], m[2]
    start = m.start(2)
    if indices:
        _read_call(name, line, block, indices, calls, found)
        return
    if "ptr" not in line and opcode not in ("extractvalue", "insertvalue"):
        return
    if name:
        found.homes[name] = block
        if location := _LOCATION.search(line):
            found.locations[name] = int(location[1])
    addresses = found.addresses
    events = found.events.setdefault(block, [])
    used = [n for n in _LOCAL.findall(line, start) if n in addresses]
    if opcode == "load":
        load = _LOAD.match(line, start)
        if used and (load is None or used != [load[2]]):
            found.escape(used)
        elif load and used and name and load[1] == "ptr":
            events.append(Read(name, *addresses[load[2]]))
    elif opcode == "store":
        store = _STORE.match(line, start)
        if store and store[3] in addresses:
            slot, offset = addresses[store[3]]
            value = store[2] if store[1] == "ptr" else None
            events.append(Write(slot, offset, _SIZES.get(store[1]), value))
            used.remove(store[3])
        found.escape(used)  # what is stored can be reached from elsewhere
    elif opcode == "getelementptr":
        if used and not (name in addresses and _OFFSET.match(line, start)):
            found.escape(used)
    elif opcode == "phi":
        found.escape(used)
        text = line[start:]
        if name and text.startswith("phi ptr "):
            pairs = tuple((v, block_index(plain(b))) for v, b in PHI_INCOMING.findall(text))
            found.merges[name] = Merge(block, pairs)
        elif name and _STRUCTURE_PHI.match(text):
            pairs = tuple((v, block_index(plain(b))) for v, b in PHI_INCOMING.findall(text))
            found.structures[name] = Merge(block, pairs)
    elif opcode == "select":
        found.escape(used)
        if name and (select := _SELECT.match(line, start)):
            events.append(Select(name, (select[1], select[2])))
    elif opcode == "extractvalue":
        if name and (part := _PART.match(line, start)):
            found.parts[name] = part[1]
            if one := _FIELD.match(line, start):
                found.fields[name] = one[1], int(one[2])
    elif opcode == "insertvalue":
        found.escape(used)
        if name and (insert := _INSERT.match(line, start)):
            value = insert[3] if insert[2] == "ptr" and not insert[5] else f"{name}#!"
            found.inserts[name] = insert[1], value, int(insert[4])
    elif opcode in ("call", "invoke"):
        # A call that has no effect of its own: an intrinsic.
        if _MEMORY_INTRINSIC.search(line):
            events.extend(Write(addresses[n][0], None, None, None) for n in used)
        else:
            found.escape(used)
    elif opcode not in ("alloca", "icmp"):
        found.escape(used)


def _read_call(
    name: str | None,
    line: str,
    block: int,
    indices: Sequence[int],
    calls: Sequence[Call],
    found: _Found,
) -> None:
    if name:
        found.results[name] = indices[0]
        found.homes[name] = block
    found.events.setdefault(block, []).extend(indices)
    used = [n for n in _LOCAL.findall(line) if n in found.addresses]
    passed = [a for a in calls[indices[0]].arguments if a in found.addresses]
    slots = [found.addresses[a][0] for a in passed]
    if sorted(used) != sorted(passed):
        found.escape(used)
    # Passed twice, the two arguments name the same memory.
    found.escaped.update(s for s in slots if slots.count(s) > 1)

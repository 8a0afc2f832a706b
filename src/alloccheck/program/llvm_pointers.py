"""Where the pointers of one function of LLVM IR come from, and what its stack slots hold.

A slot is memory that only this function and those that it passes it to can reach: an `alloca`
or a pointer parameter, used for nothing but loads, stores, constant offsets, merges and arguments;
what was merged is used for nothing but loads and stores. A use that is not understood makes it no
slot. Knows nothing of what pointers point to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from alloccheck.program.llvm_layout import leaves
from alloccheck.program.llvm_text import NAME, plain
from alloccheck.program.llvm_values import PHI_INCOMING
from alloccheck.program.model import Call, Merge, PointerEvent, Pointers, Read, Select, Write

_INSTRUCTION = re.compile(rf"  (?:(%{NAME}) = )?(?:(?:tail|musttail|notail) )?([a-z_]+)(?![-\w$.])")
_LABEL = re.compile(rf"{NAME}:(?: +;.*)?$")
_LOCAL = re.compile(rf'%{NAME}|"[^"]*"')
"""A local name; the quoted part of other names is taken as a whole, since it may have a ``%``."""
_OFFSET = re.compile(
    rf"getelementptr (?:inbounds |nuw |nusw )*i8, ptr (%{NAME}), i64 (-?\d+)(?:, !|$)"
)
_LOAD = re.compile(rf"load (?:volatile )?(.+?), ptr (%{NAME})(?:,|$)")
_STORE = re.compile(rf"store (?:volatile )?(.+) (\S+|%{NAME}), ptr (%{NAME})(?:,|$)")
_SELECT = re.compile(
    rf"select i1 [^,]+, ptr (%{NAME}|@{NAME}|\w+), ptr (%{NAME}|@{NAME}|\w+)(?:, !|$)"
)
_PART = re.compile(rf"extractvalue .* (%{NAME}), (\d+(?:, \d+)*)(?:, !.*)?$")
_INSERT = re.compile(
    rf"insertvalue .*[}}\]] (%{NAME}|\w+), (.*?) (\S+), (\d+(?:, \d+)*)(?:, !.*)?$"
)
_STRUCTURE_PHI = re.compile(r"phi [\[{].*?[\]}] \[ ")
_LOCATION = re.compile(r"!dbg !(\d+)")
_MEMORY_INTRINSIC = re.compile(
    r"@llvm\.(?:lifetime\.(?:start|end)|memset|memcpy|memmove)\.[\w.]*\("
)
_EMPTIES = re.compile(
    r"@llvm\.(?:lifetime\.(?:start|end)\.|memset\.[\w.]*\(ptr[^,]*, i8 0, i(?:32|64) (\d+),)"
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
    fields: dict[str, tuple[str, Indices]] = field(default_factory=dict)
    inserts: dict[str, tuple[str, str, Indices]] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    """Structures whose pointers were read from slots one by one."""
    stored: list[tuple[str, Indices]] = field(default_factory=list)
    """Fields of structures that are written to slots."""
    structures: dict[str, Merge] = field(default_factory=dict)
    locations: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, tuple[str, int]] = field(default_factory=dict)
    choices: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """Names that may be one of several addresses."""
    partial: set[str] = field(default_factory=set)
    """Those of them that may point elsewhere as well."""
    escaped: set[str] = field(default_factory=set)

    def escape(self, names: Iterable[str]) -> None:
        for name in names:
            self.escaped.update(slot for slot, _ in self.places(name))

    def places(self, name: str) -> list[tuple[str, int]]:
        if name in self.addresses:
            return [self.addresses[name]]
        return sorted(self.choices.get(name, ()))


Indices = tuple[int, ...]


def _field_name(structure: str, path: Indices) -> str:
    return f"{structure}#{'.'.join(map(str, path))}"


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
    found.choices, found.partial = _choices(lines, found.addresses)
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
        choices={name: tuple(sorted(one)) for name, one in found.choices.items()},
        partial=frozenset(found.partial),
        slots=frozenset(slots),
        pointer_free=frozenset(
            m[1] for line in lines if (m := _ALLOCA.match(line)) and not _POINTER.search(m[2])
        ),
    )


def _name_fields(found: _Found) -> dict[str, str]:
    """Return, for fields taken out of structures, the pointers that were put into them.

    A field of a merge of structures becomes a merge of its own, ``%structure#field``; one of a
    structure that was read from memory is the pointer that was read.
    """
    named: dict[tuple[str, Indices], str] = {}

    def source(structure: str, path: Indices) -> str:
        seen: set[tuple[str, Indices]] = set()
        while structure in found.inserts or structure in found.fields:
            if (structure, path) in seen:
                return f"{structure}#?"
            seen.add((structure, path))
            if structure in found.fields:
                structure, outer = found.fields[structure]
                path = outer + path
                continue
            before, value, place = found.inserts[structure]
            if place == path:
                return value
            if path[: len(place)] == place:
                structure, path = value, path[len(place) :]
            elif place[: len(path)] == path:
                return f"{structure}#?"  # the value holds what was put into a part of it
            else:
                structure = before
        if structure in ("undef", "poison", "zeroinitializer"):
            return "null"
        key = structure, path
        if key not in named:
            named[key] = _field_name(structure, path)
            merge = found.structures.get(structure)
            if merge is not None:
                found.homes[named[key]] = merge.block
                pairs = tuple((source(s, path), block) for s, block in merge.incoming)
                found.merges[named[key]] = Merge(merge.block, pairs)
        return named[key]

    def is_known(structure: str) -> bool:
        seen: set[str] = set()
        while structure in found.fields and structure not in seen:
            seen.add(structure)
            structure = found.fields[structure][0]
        return (
            structure in found.inserts or structure in found.structures or structure in found.loaded
        )

    aliases = {}
    for name, (structure, path) in found.fields.items():
        if is_known(structure):
            aliases[name] = source(structure, path)
    for structure, path in found.stored:
        name = _field_name(structure, path)
        value = source(structure, path)
        if value != name:
            aliases[name] = value
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


_MOST_CHOICES = 16
"""Addresses that a name may be; a pointer that moves on in a loop has no bound."""


def _choices(
    lines: Sequence[str], addresses: dict[str, tuple[str, int]]
) -> tuple[dict[str, frozenset[tuple[str, int]]], set[str]]:
    """Return the names that may be one of several addresses, merged or at distances from such.

    The second result are those that may point elsewhere as well.
    """
    sources: dict[str, tuple[tuple[str, int], ...]] = {}
    for line in lines:
        # Most lines are none of these, and telling that by a pattern takes its time.
        is_phi, is_select = " = phi ptr " in line, " = select " in line
        if not (is_phi or is_select or " = getelementptr " in line):
            continue
        if (m := _INSTRUCTION.match(line)) is None or not m[1] or m[1] in addresses:
            continue
        start = m.start(2)
        if is_phi:
            sources[m[1]] = tuple((value, 0) for value, _ in PHI_INCOMING.findall(line, start))
        elif is_select:
            if select := _SELECT.match(line, start):
                sources[m[1]] = ((select[1], 0), (select[2], 0))
        elif step := _OFFSET.match(line, start):
            sources[m[1]] = ((step[1], int(step[2])),)
    # Only what leads back to an address matters.
    if not any(value in addresses for values in sources.values() for value, _ in values):
        return {}, set()
    found: dict[str, frozenset[tuple[str, int]]] = {}
    grown = True
    while grown:
        grown = False
        for name, values in sources.items():
            new = frozenset(
                (slot, offset + distance)
                for value, distance in values
                for slot, offset in (
                    (addresses[value],) if value in addresses else found.get(value, ())
                )
            )
            grown |= _grow(found, name, new)
    found = {name: one for name, one in found.items() if len(one) <= _MOST_CHOICES}
    partial: set[str] = set()
    while more := {
        name
        for name in found
        if name not in partial
        and any(
            v not in addresses and v not in _NOWHERE and (v not in found or v in partial)
            for v, _ in sources[name]
        )
    }:
        partial |= more
    return found, partial


_NOWHERE = frozenset({"null", "undef", "poison"})


def _grow(
    found: dict[str, frozenset[tuple[str, int]]], name: str, new: frozenset[tuple[str, int]]
) -> bool:
    """Add to what a name may be, up to one more than is of use; tell whether that is new."""
    before = found.get(name, frozenset())
    if new <= before or len(before) > _MOST_CHOICES:
        return False
    found[name] = before | new
    return True


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
    choices = found.choices
    used = [n for n in _LOCAL.findall(line, start) if n in addresses or n in choices]
    if opcode == "load":
        load = _LOAD.match(line, start)
        if used and (load is None or used != [load[2]]):
            found.escape(used)
        elif load and used and name and load[2] not in found.partial:
            _read_fields(name, load[1], load[2], block, events, found)
    elif opcode == "store":
        store = _STORE.match(line, start)
        if store and store[3] in used:
            _write_fields(store[1], store[2], store[3], events, found)
            used.remove(store[3])
        found.escape(used)  # what is stored can be reached from elsewhere
    elif opcode == "getelementptr":
        if not ((name in addresses or name in choices) and _OFFSET.match(line, start)):
            found.escape(used)
    elif opcode == "phi":
        if name not in choices:
            found.escape(used)
        text = line[start:]
        if name and text.startswith("phi ptr "):
            pairs = tuple((v, block_index(plain(b))) for v, b in PHI_INCOMING.findall(text))
            found.merges[name] = Merge(block, pairs)
        elif name and _STRUCTURE_PHI.match(text):
            pairs = tuple((v, block_index(plain(b))) for v, b in PHI_INCOMING.findall(text))
            found.structures[name] = Merge(block, pairs)
    elif opcode == "select":
        if name not in choices:
            found.escape(used)
        if name and (select := _SELECT.match(line, start)):
            events.append(Select(name, (select[1], select[2])))
    elif opcode == "extractvalue":
        if name and (part := _PART.match(line, start)):
            found.parts[name] = part[1]
            found.fields[name] = part[1], _indices(part[2])
    elif opcode == "insertvalue":
        found.escape(used)
        insert = _INSERT.match(line, start)
        # Where the type is none that is known, a constant structure may have been split.
        if name and insert and (insert[2] in _SIZES or leaves(insert[2]) is not None):
            whole = insert[2] not in _SIZES or insert[2] == "ptr"
            value = insert[3] if whole else f"{name}#!"
            found.inserts[name] = insert[1], value, _indices(insert[4])
    elif opcode in ("call", "invoke"):
        # A call that has no effect of its own: an intrinsic.
        if _MEMORY_INTRINSIC.search(line):
            empties = _EMPTIES.search(line)
            size = int(empties[1]) if empties and empties[1] else None
            for address in used:
                for slot, offset in found.places(address):
                    if size is None:
                        value = "zeroinitializer" if empties else None
                        events.append(Write(slot, None, None, value))
                    else:
                        maybe = address not in found.addresses
                        events.append(Write(slot, offset, size, "zeroinitializer", maybe))
        else:
            found.escape(used)
    elif opcode not in ("alloca", "icmp"):
        found.escape(used)


def _indices(text: str) -> Indices:
    return tuple(map(int, text.split(", ")))


def _read_fields(
    name: str, type_: str, address: str, block: int, events: list[PointerEvent], found: _Found
) -> None:
    """Note the pointers that a load takes from slots."""
    places = found.places(address)
    if type_ == "ptr":
        pointers = [(name, 0)]
    else:
        fields = [one for one in leaves(type_) or () if one.pointer]
        pointers = [(_field_name(name, one.path), one.offset) for one in fields]
        found.loaded.add(name)
    for field_name, distance in pointers:
        found.homes[field_name] = block
        if len(places) == 1:
            ((slot, offset),) = places
            events.append(Read(field_name, slot, offset + distance))
            continue
        several = [f"{field_name}@{k}" for k in range(len(places))]
        for one, (slot, offset) in zip(several, places, strict=True):
            found.homes[one] = block
            events.append(Read(one, slot, offset + distance))
        events.append(Select(field_name, tuple(several)))


def _write_fields(
    type_: str, value: str, address: str, events: list[PointerEvent], found: _Found
) -> None:
    """Note what a store puts into slots."""
    maybe = address not in found.addresses
    fields: list[tuple[int, int | None, str | None]] = [(0, _SIZES.get(type_), None)]
    known = leaves(type_)
    if type_ == "ptr":
        fields = [(0, _SIZES["ptr"], value)]
    elif known is not None:
        fields = []
        for one in known:
            fields.append(
                (one.offset, one.size, _field_name(value, one.path) if one.pointer else None)
            )
            if one.pointer:
                found.stored.append((value, one.path))
    for slot, offset in found.places(address):
        events.extend(
            Write(slot, offset + distance, size, content, maybe)
            for distance, size, content in fields
        )


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
    used = [n for n in _LOCAL.findall(line) if n in found.addresses or n in found.choices]
    passed = [a for a in calls[indices[0]].arguments if a in found.addresses or a in found.choices]
    slots = [slot for a in passed for slot, _ in found.places(a)]
    if sorted(used) != sorted(passed):
        found.escape(used)
    # Passed twice, the two arguments name the same memory.
    found.escaped.update(s for s in slots if slots.count(s) > 1)

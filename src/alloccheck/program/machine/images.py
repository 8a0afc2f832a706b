"""Loaded modules, read from live memory: segments, dynamic section, relocations, build-id.

Knows the ELF format and the dynamic linker; nothing of instructions. The live image is read and
not the file, because what is in memory is what runs: IFUNC results, symbol versions and
interposed functions are then exact.
"""

from __future__ import annotations

import bisect
import ctypes
import hashlib
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import Part
from alloccheck.program.machine.frames import FrameTable, empty, read_frames
from alloccheck.program.machine.memory import Memory
from alloccheck.program.machine.symbols import (
    STT_FUNC,
    STT_GNU_IFUNC,
    STT_NOTYPE,
    STT_OBJECT,
    SYMBOL_RECORD,
    SymbolIndex,
    file_symbols,
)

PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
PT_GNU_EH_FRAME, PT_GNU_RELRO = 0x6474E550, 0x6474E552
PF_X, PF_W = 1, 2
EM_X86_64, EM_AARCH64 = 62, 183

DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 2, 4, 5, 6, 7, 8
DT_STRSZ, DT_SONAME, DT_JMPREL, DT_RELRSZ, DT_RELR = 10, 14, 23, 35, 36
DT_GNU_HASH, DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_POINTERS = {DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_JMPREL, DT_RELR}
_POINTERS |= {DT_GNU_HASH, DT_VERSYM, DT_VERNEED}

_RELA_RECORD = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])

# Relocation types that make a slot part of the GOT (the dynamic linker's own slots).
GOT_TYPES = {
    EM_X86_64: frozenset({6, 7, 36, 37}),  # GLOB_DAT, JUMP_SLOT, TLSDESC, IRELATIVE
    EM_AARCH64: frozenset({1025, 1026, 1031, 1032}),
}
JUMP_SLOT = {EM_X86_64: 7, EM_AARCH64: 1026}
RELATIVE = {EM_X86_64: 8, EM_AARCH64: 1027}


_Result = TypeVar("_Result")


def _parses(method: Callable[[Any], _Result]) -> Callable[[Any], _Result]:
    """Turn what broken tables make Python raise into `ProgramError`."""

    @wraps(method)
    def guarded(self: Any) -> _Result:
        try:
            return method(self)
        except (struct.error, ValueError, IndexError, OverflowError, TypeError) as error:
            what = f"{self.short}: {method.__name__.strip('_')}"
            raise ProgramError(f"{what} cannot be read: {error}") from error

    return guarded


@dataclass(frozen=True, slots=True)
class ProgramHeader:
    """One program header; `start` is live."""

    kind: int
    flags: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A dynamic relocation of one slot."""

    kind: int
    symbol: str | None
    version: str | None
    addend: int


class Image:
    """One loaded module.

    Parameters
    ----------
    memory : Memory
        Where it is loaded.
    name : str
        Path as the dynamic linker knows it; empty for the main program.
    base : int
        Load bias: live address minus address in the file.
    headers : iterable of ProgramHeader
        Its program headers.
    """

    def __init__(
        self, memory: Memory, name: str, base: int, headers: Iterable[ProgramHeader]
    ) -> None:
        self.memory = memory
        self.name = name
        self.base = base
        self.headers = tuple(headers)
        self.loads = tuple(h for h in self.headers if h.kind == PT_LOAD and h.size)

    def __repr__(self) -> str:
        return f"Image({self.short!r}, base={self.base:#x})"

    def holds(self, address: int) -> bool:
        """Return whether `address` lies in a loaded segment."""
        return any(h.start <= address < h.start + h.size for h in self.loads)

    def segment(self, address: int) -> ProgramHeader | None:
        """Return the loaded segment that holds `address`."""
        for header in self.loads:
            if header.start <= address < header.start + header.size:
                return header
        return None

    def in_relro(self, address: int) -> bool:
        """Return whether `address` is among what is relocated and then made read-only."""
        return any(
            h.start <= address < h.start + h.size for h in self.headers if h.kind == PT_GNU_RELRO
        )

    @cached_property
    def path(self) -> str:
        """The file on disk, as far as it can be known."""
        if not self.name:
            return os.path.realpath("/proc/self/exe")
        return os.path.realpath(self.name) if Path(self.name).exists() else self.name

    @cached_property
    def short(self) -> str:
        """Last part of the path: ``libm.so.6``."""
        return Path(self.name or self.path).name

    @cached_property
    def machine(self) -> int:
        """The ELF machine number, or 0 when there is no ELF header in memory."""
        if not self.loads:
            return 0
        head = self.memory.read(min(h.start for h in self.loads), 20)
        if head[:6] != b"\x7fELF\x02\x01":
            return 0
        return int.from_bytes(head[18:20], "little")

    @cached_property
    @_parses
    def build_id(self) -> str | None:
        """The GNU build-id, or None."""
        for header in self.headers:
            if header.kind != PT_NOTE:
                continue
            data = self.memory.read(header.start, header.size)
            at = 0
            while at + 12 <= len(data):
                name_size, size, kind = struct.unpack_from("<III", data, at)
                name = at + 12
                content = name + ((name_size + 3) & ~3)
                if kind == 3 and data[name : name + 4] == b"GNU\0":
                    return data[content : content + size].hex()
                at = content + ((size + 3) & ~3)
        return None

    @cached_property
    def code_digest(self) -> str:
        """SHA-256 of the executable segments, and of read-only ones if there is no build-id."""
        digest = hashlib.sha256()
        for header in self.loads:
            constant = not header.flags & PF_W and self.build_id is None
            if header.flags & PF_X or constant:
                digest.update(self.memory.read(header.start, header.size))
        return digest.hexdigest()

    @cached_property
    def code_size(self) -> int:
        """Total bytes of the executable segments."""
        return sum(h.size for h in self.loads if h.flags & PF_X)

    @cached_property
    @_parses
    def frames(self) -> FrameTable:
        """Function ranges from the unwind tables; empty when there are none."""
        for header in self.headers:
            if header.kind == PT_GNU_EH_FRAME:
                return read_frames(self.memory, header.start, header.size)
        return empty()

    def partner(self, address: int) -> Part | None:
        """Return the code range around a jump target that is not the beginning of a function.

        Compilers move unlikely code of a function elsewhere; a jump to such a place stays in it.
        """
        found = self.frames.find(address)
        segment = self.segment(address)
        if found is None or segment is None or not segment.flags & PF_X:
            return None
        low, high = found
        if address == low and not self.frames.starts_midway(self.memory, low):
            return None
        code = self.memory.read(low, high - low)
        if _is_linkage_stub(code[address - low : address - low + 12]):
            # One unwind entry covers all linkage stubs of a library: these are no part of anybody.
            return None
        return Part(low, high, code)

    @cached_property
    @_parses
    def dynamic(self) -> dict[int, int]:
        """Entries of the dynamic section, first of each tag, pointers made live."""
        entries: dict[int, int] = {}
        for header in self.headers:
            if header.kind != PT_DYNAMIC:
                continue
            data = self.memory.read(header.start, header.size & ~15)
            for tag, value in struct.iter_unpack("<QQ", data):
                if tag == 0:
                    break
                # glibc rewrites these in place, except in the vdso and on some machines.
                if tag in _POINTERS and value < self.base:
                    value += self.base
                entries.setdefault(tag, value)
        return entries

    def _string(self, offset: int) -> str:
        strings = self._strings
        end = strings.find(b"\0", offset)
        if not 0 <= offset <= end:
            raise ProgramError(f"{self.short}: string offset {offset} outside the table")
        return strings[offset:end].decode(errors="replace")

    @cached_property
    @_parses
    def _strings(self) -> bytes:
        dynamic = self.dynamic
        if DT_STRTAB not in dynamic:
            return b""
        return self.memory.read(dynamic[DT_STRTAB], dynamic.get(DT_STRSZ, 0))

    def mentions(self, name: str) -> bool:
        """Return whether the string table holds a name (quick, and never wrong by a "no")."""
        return name.encode() + b"\0" in self._strings

    def defines(self, name: str) -> bool:
        """Return whether the image exports a symbol."""
        return self.mentions(name) and name in self.exports.by_name

    @cached_property
    @_parses
    def _records(self) -> Any:
        """The whole `.dynsym`, as NumPy records."""
        dynamic = self.dynamic
        count = 0
        if DT_SYMTAB in dynamic and DT_GNU_HASH in dynamic:
            count = self._gnu_hash_count(dynamic[DT_GNU_HASH])
        elif DT_SYMTAB in dynamic and DT_HASH in dynamic:
            count = struct.unpack("<II", self.memory.read(dynamic[DT_HASH], 8))[1]
        # Undefined symbols are not hashed: relocations may name records after the hashed ones.
        if self._relocation_records.size:
            count = max(count, int((self._relocation_records["info"] >> np.uint64(32)).max()) + 1)
        if not count or DT_SYMTAB not in dynamic:
            return np.zeros(0, SYMBOL_RECORD)
        return np.frombuffer(self.memory.read(dynamic[DT_SYMTAB], 24 * count), SYMBOL_RECORD)

    def _gnu_hash_count(self, table: int) -> int:
        buckets, offset, bloom, _ = struct.unpack("<IIII", self.memory.read(table, 16))
        at = table + 16 + 8 * bloom
        heads = np.frombuffer(self.memory.read(at, 4 * buckets), "<u4")
        last = int(heads.max()) if buckets else 0
        if last < offset:
            return int(offset)
        chain = at + 4 * buckets
        while True:
            word = self.memory.read(chain + 4 * (last - offset), 4)
            last += 1
            if word[0] & 1:
                return last

    @cached_property
    @_parses
    def exports(self) -> SymbolIndex:
        """Defined dynamic symbols (functions, objects, IFUNCs)."""
        records = self._records
        wanted = np.isin(records["info"] & 15, (STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC))
        # 0xfff1 is SHN_ABS: version names, not code.
        chosen = wanted & (records["section"] != 0) & (records["section"] != 0xFFF1)
        return SymbolIndex(records[chosen], self._strings, self.base)

    @cached_property
    def file_names(self) -> SymbolIndex:
        """Code symbols of the file on disk, for messages only."""
        return file_symbols(self.path, self.base)

    def describe(self, address: int) -> str:
        """Return the best name for an address in this image."""
        try:
            exported = self.exports.describe(address)
        except ProgramError:
            exported = None
        return exported or self.file_names.describe(address) or f"sub_{address - self.base:x}"

    @cached_property
    @_parses
    def _relocation_records(self) -> Any:
        dynamic = self.dynamic
        parts = []
        for table, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            if table in dynamic and dynamic.get(size):
                data = self.memory.read(dynamic[table], dynamic[size] // 24 * 24)
                parts.append(np.frombuffer(data, _RELA_RECORD))
        return np.concatenate(parts) if parts else np.zeros(0, _RELA_RECORD)

    @cached_property
    @_parses
    def _versions(self) -> dict[int, str]:
        """Version index to name, from `.gnu.version_r`."""
        dynamic = self.dynamic
        names: dict[int, str] = {}
        at = dynamic.get(DT_VERNEED, 0)
        for _ in range(dynamic.get(DT_VERNEEDNUM, 0) if at else 0):
            _, count, _, first, following = struct.unpack("<HHIII", self.memory.read(at, 16))
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack("<IHHII", self.memory.read(entry, 16))
                names[index] = self._string(name)
                entry += step
            if not following:
                break
            at += following
        return names

    @cached_property
    @_parses
    def relocations(self) -> dict[int, Relocation]:
        """Relocations by slot address, those without a symbol's name (RELATIVE) left out."""
        relative = RELATIVE.get(self.machine, -1)
        records = self._relocation_records
        # Most of a large library's are relative.
        records = records[(records["info"] & np.uint64(0xFFFFFFFF)) != relative]
        names: dict[int, tuple[str | None, str | None]] = {0: (None, None)}
        places, versions = self._records["name"].tolist(), self._symbol_versions()
        table: dict[int, Relocation] = {}
        for offset, info, addend in records.tolist():
            kind, index = info & 0xFFFFFFFF, info >> 32
            named = names.get(index)
            if named is None:
                version = self._versions.get(versions[index]) if versions else None
                named = names[index] = (self._string(places[index]), version)
            table[self.base + offset] = Relocation(kind, *named, addend)
        return table

    def _symbol_versions(self) -> list[int]:
        """Return the number of each symbol's version; nothing if there are no versions."""
        versym = self.dynamic.get(DT_VERSYM)
        if not versym:
            return []
        data = self.memory.read(versym, 2 * len(self._records))
        found: list[int] = (np.frombuffer(data, "<u2") & 0x7FFF).tolist()
        return found

    @cached_property
    @_parses
    def relative_targets(self) -> frozenset[int]:
        """Addresses that some RELATIVE relocation, packed or not, writes into a slot."""
        records = self._relocation_records
        kinds = records["info"] & np.uint64(0xFFFFFFFF)
        chosen = records["addend"][kinds == RELATIVE.get(self.machine, -1)] + self.base
        return frozenset(chosen.tolist()) | self._packed_targets()

    def _packed_targets(self) -> set[int]:
        """Return what the slots of the packed relocations (DT_RELR) hold now."""
        if DT_RELR not in self.dynamic:
            return set()
        data = self.memory.read(self.dynamic[DT_RELR], self.dynamic.get(DT_RELRSZ, 0) & ~7)
        slots: list[int] = []
        at = 0
        for (word,) in struct.iter_unpack("<Q", data):
            if word & 1:
                slots.extend(at + 8 * k for k in range(63) if word >> (k + 1) & 1)
                at += 8 * 63
            else:
                at = self.base + word
                slots.append(at)
                at += 8
        return {int.from_bytes(self.memory.read(slot, 8), "little") for slot in slots}


def _is_linkage_stub(code: bytes) -> bool:
    """Return whether x86-64 code is ``[endbr64] [bnd] jmp *slot(%rip)``."""
    code = code.removeprefix(b"\xf3\x0f\x1e\xfa").removeprefix(b"\xf2")
    return code.startswith(b"\xff\x25")


class _PhdrInfo(ctypes.Structure):
    _fields_ = (
        ("addr", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("phdr", ctypes.c_uint64),
        ("phnum", ctypes.c_uint16),
    )


def parse_headers(data: bytes, base: int) -> tuple[ProgramHeader, ...]:
    """Parse a table of 64-bit program headers.

    Examples
    --------
    >>> parse_headers(struct.pack("<IIQQQQQQ", 1, 5, 0, 16, 16, 8, 32, 1), 0x1000)
    (ProgramHeader(kind=1, flags=5, start=4112, size=32),)
    """
    return tuple(
        ProgramHeader(kind, flags, base + virtual, size)
        for kind, flags, _, virtual, _, _, size, _ in struct.iter_unpack("<IIQQQQQQ", data)
    )


def loaded_images(memory: Memory) -> tuple[Image, ...]:
    """Return every module that the dynamic linker has loaded, the main program first.

    Source: ``dl_iterate_phdr(3)``.

    Examples
    --------
    >>> from alloccheck.program.machine.memory import LiveMemory
    >>> any(image.short.startswith("libc.so") for image in loaded_images(LiveMemory.open()))
    True
    """
    images: list[Image] = []
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p
    )

    def visit(info: Any, _size: int, _data: Any) -> int:
        entry = info.contents
        headers = parse_headers(memory.read(entry.phdr, 56 * entry.phnum), entry.addr)
        images.append(Image(memory, (entry.name or b"").decode(), entry.addr, headers))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(prototype(visit), None)
    return tuple(images)


@lru_cache(maxsize=1)
def _linker() -> tuple[Callable[..., int | None], Callable[..., int | None]]:
    library = ctypes.CDLL(None)
    library.dlvsym.restype = library.dlsym.restype = ctypes.c_void_p
    library.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    library.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library.dlsym, library.dlvsym


def bind(image: Image, relocation: Relocation) -> int | None:
    """Return what the dynamic linker would bind a lazy slot of `image` to, or None.

    The global scope is asked first, then the image's own, as ``ld.so`` does (without
    ``-Bsymbolic``-like flags, which act at link time).
    """
    if relocation.symbol is None:
        return None
    plain, versioned = _linker()

    def look(handle: int | None) -> int | None:
        name = relocation.symbol.encode() if relocation.symbol else b""
        if relocation.version:
            return versioned(handle, name, relocation.version.encode())
        return plain(handle, name)

    found = look(None)
    if found or not image.name:
        return found
    try:
        # RTLD_NOLOAD: only the handle of what is loaded already.
        library = ctypes.CDLL(image.name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    return look(library._handle)


class ImageMap:
    """Which image holds an address."""

    def __init__(self, images: Iterable[Image]) -> None:
        self.images = tuple(images)
        spans = sorted(
            (h.start, h.start + h.size, index)
            for index, image in enumerate(self.images)
            for h in image.loads
        )
        self._starts = [start for start, _, _ in spans]
        self._spans = spans

    def find(self, address: int) -> Image | None:
        """Return the image with a loaded segment at `address`."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._spans[index][1]:
            return self.images[self._spans[index][2]]
        return None

"""An ELF file as if it were loaded: segments at an invented address, relocations done."""

import io
import struct

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from alloccheck.program.machine.images import Image, parse_headers
from alloccheck.program.machine.memory import Unreadable

RELATIVE = (8, 1027)
SYMBOLIC = (1, 6, 7, 257, 1025, 1026)
"""Relocations of both machines whose value is an address, or that of a symbol."""


class FileMemory:
    """A file mapped by its program headers, at an invented address."""

    BASE = 0x5000_0000
    LARGEST = 1 << 24

    def __init__(self, data, base=BASE):
        self.base = base
        self.spans = []
        count = struct.unpack_from("<H", data, 56)[0] if len(data) >= 64 else 0
        offset = struct.unpack_from("<Q", data, 32)[0] if count else 0
        self.table = data[offset : offset + 56 * count] if offset < len(data) else b""
        self.table = self.table[: len(self.table) // 56 * 56]
        for kind, flags, at, virtual, _, size, full, _ in struct.iter_unpack(
            "<IIQQQQQQ", self.table
        ):
            if kind == 1 and full < self.LARGEST and virtual < 1 << 40:
                content = data[at : at + min(size, full)].ljust(full, b"\0")
                self.spans.append((base + virtual, content, flags))

    def read(self, address, size):
        for start, content, _ in self.spans:
            if start <= address and address + size <= start + len(content):
                return bytes(content[address - start : address - start + size])
        raise Unreadable(hex(address))

    def permissions(self, address):
        for start, content, flags in self.spans:
            if start <= address < start + len(content):
                return f"r{'w' if flags & 2 else '-'}{'x' if flags & 1 else '-'}p"
        return ""

    def image(self, name="mutant.so"):
        return Image(self, name, self.base, parse_headers(self.table, self.base))


class LinkedMemory(FileMemory):
    """The same after the dynamic linker has done its work: what it protects is read-only."""

    LARGEST = 1 << 28

    def __init__(self, data, base=FileMemory.BASE):
        super().__init__(data, base)
        self.spans = [(start, bytearray(content), flags) for start, content, flags in self.spans]
        file = ELFFile(io.BytesIO(data))
        for section in file.iter_sections():
            if isinstance(section, RelocationSection):
                symbols = file.get_section(section["sh_link"])
                for one in section.iter_relocations():
                    value = base + one["r_addend"]
                    if one["r_info_type"] in SYMBOLIC:
                        value += symbols.get_symbol(one["r_info_sym"])["st_value"]
                    elif one["r_info_type"] not in RELATIVE:
                        continue
                    self._put(base + one["r_offset"], struct.pack("<Q", value))
        self.protected = [
            (base + s["p_vaddr"], base + s["p_vaddr"] + s["p_memsz"])
            for s in file.iter_segments("PT_GNU_RELRO")
        ]

    def _put(self, address, data):
        for start, content, _ in self.spans:
            if start <= address < start + len(content):
                content[address - start : address - start + len(data)] = data

    def permissions(self, address):
        found = super().permissions(address)
        if any(low <= address < high for low, high in self.protected):
            return found.replace("w", "-")
        return found

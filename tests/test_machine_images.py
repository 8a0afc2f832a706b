"""ELF images in memory against an independent reader of the files, and broken ones."""

import ctypes
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from alloccheck.analysis.native import Decider
from alloccheck.errors import ProgramError
from alloccheck.program.machine import symbols
from alloccheck.program.machine.images import (
    GOT_TYPES,
    ImageMap,
    bind,
    loaded_images,
)
from alloccheck.program.machine.memory import LiveMemory, Unreadable, is_immutable
from alloccheck.program.machine.walk import Walker
from elf_files import FileMemory

SOURCES = Path(__file__).parent / "native_sources"


@pytest.fixture(scope="module")
def libm():
    library = ctypes.CDLL("libm.so.6")
    address = ctypes.cast(library.fabs, ctypes.c_void_p).value
    return ImageMap(loaded_images(LiveMemory.open())).find(address)


@pytest.fixture(scope="module")
def libm_file(libm):
    with open(libm.path, "rb") as stream:
        yield ELFFile(stream)


def test_exports_are_those_of_the_file(libm, libm_file):
    wanted = {"STT_FUNC", "STT_OBJECT", "STT_LOOS", "STT_NOTYPE", "STT_GNU_IFUNC"}
    expected = {
        (s.name, s["st_value"], s["st_size"])
        for s in libm_file.get_section_by_name(".dynsym").iter_symbols()
        if s["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS") and s["st_info"]["type"] in wanted
    }
    found = {(s.name, s.address - libm.base, s.size) for s in libm.exports.ordered}
    assert found == expected
    assert len(found) > 900


def test_function_ranges_are_those_of_the_file(libm, libm_file):
    entries = libm_file.get_dwarf_info().EH_CFI_entries()
    expected = sorted(
        (e["initial_location"], e["initial_location"] + e["address_range"])
        for e in entries
        if isinstance(e, FDE)
    )
    ranges = zip(libm.frames.starts, libm.frames.ends, strict=True)
    assert [(start - libm.base, end - libm.base) for start, end in ranges] == expected


def test_relocations_and_versions_are_those_of_the_file(libm, libm_file):
    expected = {}
    for section in libm_file.iter_sections():
        if isinstance(section, RelocationSection) and section.name.startswith(".rela"):
            table = libm_file.get_section(section["sh_link"])
            for r in section.iter_relocations():
                if r["r_info_type"] != 8:
                    index = r["r_info_sym"]
                    name = table.get_symbol(index).name if index else None
                    expected[r["r_offset"]] = (r["r_info_type"], name)
    found = {slot - libm.base: (r.kind, r.symbol) for slot, r in libm.relocations.items()}
    assert found == expected
    versions = {r.version for r in libm.relocations.values() if r.symbol == "qsort"}
    assert versions == {"GLIBC_2.2.5"}


def test_build_id_and_digest(libm, libm_file):
    notes = libm_file.get_section_by_name(".note.gnu.build-id")
    assert libm.build_id == next(iter(notes.iter_notes()))["n_desc"]
    assert len(libm.code_digest) == 64


def test_lazy_slot_is_bound_as_the_linker_would(libm):
    libc = ctypes.CDLL(None)
    relocation = next(r for r in libm.relocations.values() if r.symbol == "qsort")
    assert relocation.kind in GOT_TYPES[62]
    assert bind(libm, relocation) == ctypes.cast(libc.qsort, ctypes.c_void_p).value


def test_relocated_data_is_immutable_and_plain_data_is_not(libm):
    memory = LiveMemory.open()
    assert is_immutable(memory, int(libm.frames.starts[0]) & ~0xFFF) is not None
    variable = libm.exports.by_name["signgam"].address
    assert not is_immutable(memory, variable)
    assert is_immutable(memory, libm.base)


def test_unmapped_memory_is_unreadable():
    memory = LiveMemory.open()
    for address, size in ((8, 8), (-5, 4), (1 << 70, 4), (0x1000, 1 << 50)):
        with pytest.raises(Unreadable):
            memory.read(address, size)
    assert memory.permissions(8) == ""


def test_local_names_come_from_the_file_and_cost_nothing_when_stripped(tmp_path):
    full, bare = tmp_path / "full.so", tmp_path / "bare.so"
    command = ["gcc", "-O1", "-w", "-fPIC", "-shared", str(SOURCES / "truth.c"), "-lm"]
    subprocess.run([*command, "-o", str(full)], check=True)
    subprocess.run(["strip", "-o", str(bare), str(full)], check=True)
    names = set(symbols.file_symbols(str(full), 0).by_name)
    assert {"grow", "middle", "direct"} <= names
    assert not symbols.file_symbols(str(bare), 0).by_name
    assert not symbols.file_symbols(str(tmp_path / "none"), 0).by_name


def test_symbol_that_covers_an_address_may_hide_behind_an_alias():
    records = np.array([(0, 2, 0, 1, 16, 1), (6, 2, 0, 1, 16, 64)], symbols.SYMBOL_RECORD)
    index = symbols.SymbolIndex(records, b"short\0long_name\0")
    assert index.describe(20) == "long_name+0x4"
    assert index.describe(16) == "short"
    assert index.describe(15) is None and index.describe(90) is None


@pytest.fixture(scope="module")
def small_library(tmp_path_factory):
    output = tmp_path_factory.mktemp("mutants") / "small.so"
    source = output.with_suffix(".c")
    source.write_text(
        "#include <stdlib.h>\n"
        "void *volatile sink; static void *deep(int n) { return sink = malloc(n); }\n"
        "void *make(int n) { switch (n) { case 0: return 0; case 1: return deep(3); case 2: return"
        " sink; case 3: return deep(n); case 4: return &sink; case 5: return deep(9); } return 0; }"
    )
    subprocess.run(
        ["gcc", "-O1", "-fno-inline", "-fPIC", "-shared", str(source), "-o", str(output)],
        check=True,
    )
    return output.read_bytes()


def decide_all(data, names=("make",)):
    memory = FileMemory(data)
    image = memory.image()
    decider = Decider(walker=Walker(memory=memory, images=[image]))
    offsets = [int(s) for s in image.frames.starts[:8]] if image.loads else []
    return [decider.decide(address) for address in offsets]


def test_image_in_invented_memory_is_read_like_a_loaded_one(small_library):
    memory = FileMemory(small_library)
    image = memory.image()
    entry = image.exports.by_name["make"].address
    answer = Decider(walker=Walker(memory=memory, images=[image])).decide(entry)
    # The slot of malloc is not relocated here: nothing can be known of it.
    assert answer.effects
    assert any("deep" in step or "sub_" in step for w in answer.witnesses for step in w.trail)


def test_broken_images_never_crash(small_library):
    random.seed(11)
    answers = 0
    for round_ in range(150):
        data = bytearray(small_library)
        if round_ % 5 == 0:
            del data[random.randrange(len(data)) :]
        for _ in range(random.choice([1, 4, 40])):
            if data:
                data[random.randrange(len(data))] = random.randrange(256)
        if round_ % 3 == 0 and len(data) > 64:
            data[random.randrange(64)] = random.randrange(256)
        try:
            answers += len(decide_all(bytes(data)))
        except ProgramError:
            continue
    assert answers > 100


def test_broken_code_of_an_allocating_function_is_never_clean(small_library):
    """Whatever one byte of the tables becomes, a function that allocates is not called clean."""
    memory = FileMemory(small_library)
    image = memory.image()
    entry = image.exports.by_name["make"].address
    code_end = max(h.start + h.size for h in image.loads if h.flags & 1) - memory.BASE
    random.seed(13)
    for _ in range(120):
        data = bytearray(small_library)
        at = random.randrange(64, len(data))
        if 0x1000 <= at < code_end:
            continue
        data[at] ^= 1 << random.randrange(8)
        broken = FileMemory(bytes(data))
        try:
            walker = Walker(memory=broken, images=[broken.image()])
            answer = Decider(walker=walker).decide(entry)
        except ProgramError:
            continue
        assert answer.effects, hex(at)

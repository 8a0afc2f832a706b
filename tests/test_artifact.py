"""The closed artifact: one object, all of it bound, and what is bound is what was checked."""

import ctypes
import io
import random
import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from numba import njit, types

from alloccheck import Refused, UsageError, analyze, check_allocs, hermetic, nonblocking
from alloccheck.compile.artifact import build
from alloccheck.compile.objectfile import read_object
from alloccheck.compile.target import make_job
from alloccheck.errors import ProgramError


@njit
def callee(x):
    return np.sqrt(x) * 2.0


def root(x, n):
    s = 0.0
    for i in range(n):
        s += callee(x[i]) ** 1.5
    return s


@pytest.fixture(scope="module")
def built():
    return build(make_job(root, "float64(float64[::1], int64)"))


def test_every_undefined_symbol_is_bound(built):
    assert set(built.artifact.externals) == set(built.object_file.undefined)
    assert all(built.artifact.externals.values())


def test_only_the_entries_are_visible(built):
    visible = [
        line.split("@")[1].split("(")[0].strip('"')
        for line in built.listing.splitlines()
        if line.startswith("define") and " internal " not in line
    ]
    artifact = built.artifact
    wrapper = artifact.fndesc.llvm_cpython_wrapper_name
    assert set(visible) == {artifact.symbol, wrapper, *artifact.c_entries.symbols}
    assert not any("linkonce" in line or " weak" in line for line in built.listing.splitlines())


def test_the_loaded_bytes_are_the_objects(built):
    artifact = built.artifact
    symbol = next(one for one in built.object_file.symbols if one.name == artifact.symbol)
    section = next(one for one in built.object_file.sections if one.name == symbol.section)
    live = bytearray(ctypes.string_at(artifact.address, symbol.size))
    expected = bytearray(section.data[symbol.offset : symbol.offset + symbol.size])
    for one in built.object_file.relocations:
        where = one.offset - symbol.offset
        if one.section == symbol.section and 0 <= where < symbol.size:
            live[where : where + 8] = expected[where : where + 8] = bytes(8)
    assert live == expected


def test_the_object_is_kept_and_read_again(built):
    again = built.artifact.object_file()
    assert again == built.object_file
    assert again.digest == built.artifact.digest


def test_the_same_question_has_the_same_digest(built):
    assert build(make_job(root, "float64(float64[::1], int64)")).artifact.digest == (
        built.artifact.digest
    )


@pytest.mark.parametrize(
    "question",
    [
        (root, "float64(float32[::1], int64)", {}),
        (root, "float64(float64[:], int64)", {}),
        (root, "float64(float64[::1], int64)", {"fastmath": True}),
        (root, "float64(float64[::1], int64)", {"boundscheck": True}),
        (lambda x, n: root(x, n) if False else x[n], "float64(float64[::1], int64)", {}),
    ],
)
def test_another_question_has_another_digest(built, question):
    target, signature, options = question
    if target is not root:
        target = lambda x, n: x[n]
    assert build(make_job(target, signature, options)).artifact.digest != built.artifact.digest


def test_captured_values_are_part_of_the_digest():
    def make(k):
        return lambda x: x * k

    digests = {build(make_job(make(k), "(float64,)")).artifact.digest for k in (2.0, 3.0, 2.0)}
    assert len(digests) == 2


def test_captured_arrays_stay_alive():
    table = np.arange(100_000.0)

    @hermetic
    def look(i):
        return table[i]

    assert look(5) == 5.0
    # Rebinds `table` here as well: nobody but the artifact holds the array.
    look.py_func.__closure__[0].cell_contents = None
    junk = [np.full(100_000, 7.0) for _ in range(5)]
    assert look(99_999) == 99_999.0
    assert len(junk) == 5


# --- the C entry --------------------------------------------------------------------------------


def test_the_c_entry_computes_the_same():
    checked = nonblocking("float64(float64, int32)")(lambda x, n: x * n)
    assert checked.ctypes(2.5, 3) == checked(2.5, 3) == 7.5
    prototype = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int32)
    assert prototype(checked.address)(2.5, 3) == 7.5


def test_pointers_through_the_c_entry():
    @nonblocking("int32(CPointer(float32), CPointer(float32), uint64)")
    def copy(source, target, n):
        for i in range(n):
            target[i] = source[i] * 2
        return 0

    source, target = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    pointer = ctypes.POINTER(ctypes.c_float)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, ctypes.c_uint64)(copy.address)
    assert call(source.ctypes.data_as(pointer), target.ctypes.data_as(pointer), 4) == 0
    np.testing.assert_array_equal(target, source * 2)


def test_a_raising_c_entry_returns_zero_or_nan():
    def positive(x):
        if x < 0:
            raise ValueError("negative", x)
        return x

    assert np.isnan(hermetic("float64(float64)")(positive).ctypes(-1.0))
    assert hermetic("int64(int64)")(positive).ctypes(-1) == 0


def test_scipy_takes_a_checked_function():
    import scipy
    from scipy.integrate import quad

    integrand = nonblocking("float64(float64)")(lambda x: x * x)
    value, _ = quad(scipy.LowLevelCallable(integrand.ctypes), 0.0, 3.0)
    assert value == pytest.approx(9.0)


def test_an_address_belongs_to_one_signature():
    checked = hermetic(lambda x: x)
    with pytest.raises(TypeError, match="0 compiled signatures"):
        checked.address
    checked(1), checked(1.0)
    with pytest.raises(TypeError, match="2 compiled signatures"):
        checked.address


@pytest.mark.parametrize(
    ("target", "signature"),
    [
        (lambda x: x if x > 0 else None, "(int64,)"),
        (lambda x, y=2: x + y, "(int64,)"),
    ],
)
def test_types_without_a_c_form_have_no_c_entry(target, signature):
    assert build(make_job(target, signature)).artifact.c_address is None
    with pytest.raises(UsageError, match="has no C entry"):
        analyze(target, signature, entry="c")


# --- what cannot be bound -------------------------------------------------------------------------


def test_symbols_that_nobody_has_are_named():
    first = types.ExternalFunction("alloccheck_nobody_a", types.int64(types.int64))
    second = types.ExternalFunction("alloccheck_nobody_b", types.int64(types.int64))
    with pytest.raises(Refused) as caught:
        build(make_job(lambda x: first(x) + second(x), "(int64,)"))
    assert "alloccheck_nobody_a, alloccheck_nobody_b" in str(caught.value)


def test_objects_are_read_strictly(built):
    from alloccheck.errors import ProgramError

    for data in (b"", b"\x7fELF", b"\x7fELF" + bytes(100), b"x" * 1000):
        with pytest.raises(ProgramError):
            read_object(data)
    assert ELFFile


def test_code_outlives_the_end_of_the_interpreter():
    script = """
        from numba import typed
        from alloccheck import hermetic
        @hermetic
        def make(n):
            made = typed.List()
            for i in range(n):
                made.append(i)
            return made
        kept = make(3)
        del make
        kept.append(4)
        print(list(kept))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 1, 2, 4]"), done.stderr


def test_a_guarantee_of_the_entry_covers_what_the_dispatcher_runs():
    checked = check_allocs("float64(float64[::1], int64)")(root)
    (artifact,) = checked.artifacts.values()
    assert checked.overloads[artifact.signature.args].entry_point is artifact.result.entry_point
    assert checked.reports[artifact.signature.args].certificate.digest == artifact.digest
    x = np.arange(3.0)
    assert checked(x, 3) == pytest.approx(root(x, 3))


def test_objects_are_read_as_pyelftools_reads_them(built):
    data = zlib.decompress(built.artifact.object_code)
    found, elf = read_object(data), ELFFile(io.BytesIO(data))
    names = [one.name for one in elf.iter_sections()]
    loaded = {
        one.name: b"" if one["sh_type"] == "SHT_NOBITS" else one.data()
        for one in elf.iter_sections()
        if one["sh_flags"] & 2
    }
    assert {one.name: one.data for one in found.sections} == {
        name: content for name, content in loaded.items() if not name.startswith(".eh_frame")
    }
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    defined = [
        (one, one["st_info"]["type"])
        for one in symbols
        if one["st_shndx"] == "SHN_COMMON" or isinstance(one["st_shndx"], int)
    ]
    assert {(one.name, one.size, one.function) for one in found.symbols} == {
        (one.name, one["st_size"], kind == "STT_FUNC")
        for one, kind in defined
        if one.name and kind != "STT_SECTION"
    }
    relocations = [
        (names[table["sh_info"]], one["r_offset"], one["r_info_type"], one["r_addend"],
         symbols[one["r_info_sym"]].name)
        for table in elf.iter_sections()
        if isinstance(table, RelocationSection)
        and not names[table["sh_info"]].startswith((".eh_frame", ".debug"))
        for one in table.iter_relocations()
    ]  # fmt: skip
    mine = [
        (one.section, one.offset, one.kind, one.addend, one.symbol) for one in found.relocations
    ]
    # pyelftools gives a symbol that stands for a section that section's name.
    assert [one[:4] for one in mine] == [one[:4] for one in relocations]
    assert all(a[4] in (b[4], "") for a, b in zip(mine, relocations, strict=True))
    assert set(found.undefined) == {
        one.name for one in symbols if one["st_shndx"] == "SHN_UNDEF" and one.name
    }


def test_damaged_objects_are_errors_of_one_kind(built):
    data = zlib.decompress(built.artifact.object_code)
    dice = random.Random(1)
    refused = 0
    for _ in range(500):
        other = bytearray(data)
        for _ in range(dice.randrange(1, 20)):
            where = dice.choice((64, len(data)))
            other[dice.randrange(where)] = dice.randrange(256)
        if dice.random() < 0.2:
            del other[dice.randrange(len(other)) :]
        try:
            read_object(bytes(other))
        except ProgramError:
            refused += 1
    assert refused > 100

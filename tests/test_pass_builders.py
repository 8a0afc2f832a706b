"""Builders of LLVM's pass pipelines leave nothing behind, and nothing unknown is deleted."""

import ctypes
import sys

import llvmlite.binding as llvm
import pytest

from alloccheck.compile import pass_builders
from alloccheck.compile.pass_builders import freed_builder
from alloccheck.compile.pass_managers import freed

TEXT = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
BUILDERS = 200

linux = pytest.mark.skipif(sys.platform != "linux", reason="counts by mallinfo2 of glibc")


class Account(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]


def in_use():
    account = ctypes.CDLL(None).mallinfo2
    account.restype = Account
    return account().field_7


@pytest.fixture(scope="module")
def machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


def builder_of(machine):
    return llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))


def lost(machine, kind, make):
    """Return the bytes that one builder leaves behind after a run."""
    module = llvm.parse_assembly(TEXT)
    subject = module if kind == "getModulePassManager" else module.get_function("f")

    def run():
        builder = make(builder_of(machine))
        freed(getattr(builder, kind)()).run(subject, builder)

    for _ in range(50):
        run()
    before = in_use()
    for _ in range(BUILDERS):
        run()
    return (in_use() - before) / BUILDERS


@linux
@pytest.mark.parametrize("kind", ["getModulePassManager", "getFunctionPassManager"])
def test_nothing_of_a_builder_stays(machine, kind):
    # What llvmlite's own leaves says whether this is still needed.
    assert lost(machine, kind, lambda builder: builder) > 1400
    assert lost(machine, kind, freed_builder) < 100


def words_of(machine):
    builder = builder_of(machine)
    address = pass_builders._callbacks(builder)
    layout = pass_builders._LAYOUT
    return builder, address, list(layout.unpack(ctypes.string_at(address, layout.size)))


@linux
def test_the_callbacks_of_this_llvmlite_are_known(machine):
    builder, address, words = words_of(machine)
    assert pass_builders._owns_nothing(address, tuple(words))
    # The constructor of the builder adds two callbacks to the last vector.
    assert words[9 * pass_builders._VECTOR + 1] & 0xFFFFFFFF == 2
    builder.close()


@linux
@pytest.mark.parametrize(
    ("word", "value"),
    [
        (0, 0x1000),  # a vector that has moved out
        (pass_builders._VECTOR, 0),  # no vector
        (1, 8 << 32),  # of another size
        (1, 4 << 32 | 5),  # more than it has room for
        (9 * pass_builders._VECTOR + 5, 0x7F0000000000),  # a callback that keeps things elsewhere
        (9 * pass_builders._VECTOR + 9, 0x7F0000000006),  # one that needs a destructor
        (10 * pass_builders._VECTOR, 0x7F0000000000),  # a table with names
        (10 * pass_builders._VECTOR + 3, 1),
    ],
)
def test_what_is_not_known_is_left_alone(machine, word, value):
    builder, address, words = words_of(machine)
    assert words[word] != value
    words[word] = value
    assert not pass_builders._owns_nothing(address, tuple(words))
    builder.close()


@linux
def test_what_is_no_memory_is_not_read(machine, monkeypatch):
    builder = builder_of(machine)
    monkeypatch.setattr(pass_builders, "_CALLBACKS_IN_BUILDER", 1 << 45)
    assert pass_builders._callbacks(builder) is None
    builder.close()


@linux
def test_callbacks_of_an_unknown_form_cost_their_memory_and_nothing_else(machine, monkeypatch):
    monkeypatch.setattr(pass_builders, "_ROOM", 8)
    assert lost(machine, "getModulePassManager", freed_builder) > 1400


@linux
def test_another_llvmlite_is_left_alone(machine, monkeypatch):
    monkeypatch.setattr(pass_builders, "VERIFIED_LLVMLITE", "0.1.")
    monkeypatch.setattr(pass_builders, "_delete", pass_builders._delete.__wrapped__)
    assert pass_builders._delete() is None
    assert lost(machine, "getFunctionPassManager", freed_builder) > 1400

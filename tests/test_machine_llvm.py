"""Code that LLVM makes: jitted x86-64 in this process, and aarch64 objects read as data."""

import io
import platform

import llvmlite.binding as llvm
import pytest
from elftools.elf.elffile import ELFFile

from alloccheck.analysis.native import Decider, decide
from alloccheck.effects import Effect
from alloccheck.program.machine.images import EM_AARCH64
from alloccheck.program.machine.memory import Unreadable
from alloccheck.program.machine.walk import Region, Walker, to_program

BODY = """
define internal double @leaf(double %x) noinline { %y = fadd double %x, 1.0
 ret double %y }
define internal double @greedy(double %x) noinline { MAP
 ret double %x }
define double @direct(double %x) { %a = call double @leaf(double %x)
 %b = fmul double %a, %a
 ret double %b }
define double @pointer(double %x, ptr %p) { %b = call double %p(double %x)
 %c = fadd double %b, 1.0
 ret double %c }
define double @asks(double %x) { NONE
 ret double %x }
define double @maps(double %x) { %a = call double @greedy(double %x)
 %b = fadd double %a, 1.0
 ret double %b }
define double @dies(double %x) { %c = fcmp olt double %x, 0.0
 br i1 %c, label %bad, label %good
bad:
 call void @llvm.trap()
 unreachable
good:
 ret double %x }
declare void @llvm.trap()
define double @switches(i32 %k, double %x) {
 switch i32 %k, label %d [i32 0, label %a
 i32 1, label %b
 i32 2, label %c
 i32 3, label %e
 i32 4, label %g
 i32 5, label %h]
a: %r0 = call double @leaf(double %x)
 ret double %r0
b: %r1 = fadd double %x, 2.0
 ret double %r1
c: %r2 = fmul double %x, %x
 ret double %r2
e: %r3 = call double @greedy(double %x)
 ret double %r3
g: %r4 = fdiv double %x, 3.0
 ret double %r4
h: %r5 = fsub double %x, 7.0
 ret double %r5
d: ret double 0.0
}
"""
X86 = (
    'call i64 asm sideeffect "syscall", "={rax},{rax},~{rcx},~{r11}"(i64 9)',
    'call i64 asm sideeffect "syscall", "={rax},{rax},~{rcx},~{r11}"(i64 39)',
)
EXPECTED = {
    "direct": set(),
    "pointer": {Effect.DISPATCH},
    "asks": set(),
    "maps": {Effect.ALLOCATE},
    "dies": set(),
    "switches": {Effect.ALLOCATE},
}


def module(triple, asm):
    text = BODY.replace("MAP", asm[0]).replace("NONE", asm[1])
    return llvm.parse_assembly(f'target triple = "{triple}"\n{text}')


def symbols(data):
    """Names, offsets and sizes of the functions in an object, and its text."""
    elf = ELFFile(io.BytesIO(data))
    text = elf.get_section_by_name(".text")
    table = elf.get_section_by_name(".symtab")
    found = {
        s.name: (s["st_value"], s["st_size"])
        for s in table.iter_symbols()
        if s["st_info"]["type"] == "STT_FUNC"
    }
    return found, text.data()


@pytest.fixture(scope="module")
def jitted():
    assert platform.machine() == "x86_64"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_default_triple().create_target_machine(opt=2)
    objects = []
    engine = llvm.create_mcjit_compiler(module(llvm.get_default_triple(), X86), target)
    engine.set_object_cache(lambda _, data: objects.append(bytes(data)))
    engine.finalize_object()
    found, _ = symbols(objects[0])
    start = engine.get_function_address("direct") - found["direct"][0]
    regions = [Region(start + at, size, name) for name, (at, size) in found.items()]
    yield engine, regions


@pytest.mark.parametrize("name", EXPECTED)
def test_jitted_functions_are_decided_by_their_object_symbols(jitted, name):
    engine, regions = jitted
    answer = decide(engine.get_function_address(name), regions=regions)
    assert answer.effects == EXPECTED[name]
    assert answer.symbol == name


def test_jitted_code_without_ranges_is_unknown(jitted):
    engine, _ = jitted
    assert decide(engine.get_function_address("direct")).effects == {Effect.UNKNOWN}


class ObjectMemory:
    """The text of an object at an invented address."""

    BASE = 0x40_0000

    def __init__(self, text):
        self.text = text

    def read(self, address, size):
        at = address - self.BASE
        if at < 0 or at + size > len(self.text):
            raise Unreadable(hex(address))
        return self.text[at : at + size]

    def permissions(self, address):
        return "r-xp" if 0 <= address - self.BASE < len(self.text) else ""


@pytest.fixture(scope="module")
def a64():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Inline assembly is parsed only for the machine that runs: calls are put in afterwards.
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic")
    # Two words of the code are replaced by the system call.
    mark = "call void @llvm.debugtrap()\n call void @llvm.debugtrap()"
    text = BODY.replace("MAP", mark).replace("NONE", mark)
    head = f'target triple = "{triple}"\ndeclare void @llvm.debugtrap()\n'
    data = machine.emit_object(llvm.parse_assembly(head + text))
    found, text = symbols(data)
    code = bytearray(text)
    for name, number in (("greedy", 222), ("asks", 172)):
        at, size = found[name]
        place = code.index(BRK, at, at + size)
        code[place : place + 8] = (0xD2800008 | number << 5).to_bytes(4, "little") + SVC
    memory = ObjectMemory(bytes(code))
    regions = [Region(memory.BASE + at, size, name) for name, (at, size) in found.items()]
    walker = Walker(memory=memory, images=(), regions=regions, machine=EM_AARCH64)
    return walker, {r.name: r.start for r in regions}


BRK = (0xD43E0000).to_bytes(4, "little")
SVC = (0xD4000001).to_bytes(4, "little")


@pytest.mark.parametrize("name", EXPECTED)
def test_aarch64_objects_are_decided(a64, name):
    walker, entries = a64
    answer = Decider(walker=walker).decide(entries[name])
    assert answer.effects == EXPECTED[name]


def test_aarch64_program_graph_has_the_calls(a64):
    walker, entries = a64
    program = to_program(walker.explore(entries["maps"]), walker)
    assert set(program.functions) == {"maps", "greedy"}
    (call,) = program.functions["maps"].calls
    assert call.target.symbol == "greedy"


def test_a_function_that_numba_compiled_is_followed_into_libm():
    import math

    from numba import float64, njit

    @njit(float64(float64))
    def wave(x):
        return math.sin(x) * math.exp(x)

    compiled = wave.overloads[(float64,)]
    name = compiled.fndesc.llvm_func_name
    entry = compiled.library.get_pointer_to_function(name)
    found, _ = symbols(compiled.library._get_compiled_object())
    start = entry - found[name][0]
    regions = [Region(start + at, size, label) for label, (at, size) in found.items()]
    answer = decide(entry, regions=regions)
    assert not answer.effects_after(first_call=True)
    assert "libm.so.6!" in "".join(answer.evidence.functions)

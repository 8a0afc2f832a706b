"""Small pieces of machine code: what the reader makes of each, and that nonsense is never clean."""

import ctypes
import mmap
import random

import iced_x86 as iced
import pytest

from alloccheck.analysis.native import Decider, decide
from alloccheck.effects import Effect
from alloccheck.program.machine.chunk import Ending, EventKind
from alloccheck.program.machine.images import EM_AARCH64, EM_X86_64
from alloccheck.program.machine.walk import Region, Walker


class CodeMemory:
    """An address space that holds one page of code at 0x10000 and nothing else."""

    def __init__(self, code, base=0x10000, writable=False):
        self.code, self.base, self.writable = code, base, writable

    def read(self, address, size):
        from alloccheck.program.machine.memory import Unreadable

        at = address - self.base
        if at < 0 or at + size > len(self.code):
            raise Unreadable(hex(address))
        return self.code[at : at + size]

    def permissions(self, address):
        if 0 <= address - self.base < len(self.code):
            return "rwxp" if self.writable else "r-xp"
        return ""


def answer_for(code, machine=EM_X86_64):
    memory = CodeMemory(code)
    walker = Walker(
        memory=memory, images=(), regions=[Region(0x10000, len(code), "jit")], machine=machine
    )
    return Decider(walker=walker).decide(0x10000)


def test_plain_return_is_clean():
    answer = answer_for(bytes.fromhex("c3"))
    assert answer.effects == frozenset()
    assert answer.evidence.functions == ("jit",)


@pytest.mark.parametrize(
    ("code", "effect"),
    [
        ("ffe0", Effect.DISPATCH),  # jmp rax
        ("ffd0c3", Effect.DISPATCH),  # call rax; ret
        ("ff25000000000000", Effect.DISPATCH),  # jmp [rip] into writable or unreadable memory
        ("0f05c3", Effect.UNKNOWN),  # syscall with unknown number
        ("b8090000000f05c3", Effect.ALLOCATE),  # mov eax, 9 (mmap); syscall
        ("b8230000000f05c3", Effect.BLOCK),  # nanosleep
        ("b80f2700000f05c3", Effect.UNKNOWN),  # a number that does not exist
        ("06", Effect.UNKNOWN),  # not an instruction
        ("90", Effect.UNKNOWN),  # runs past the end into nothing
        ("e8fb0f0000c3", Effect.UNKNOWN),  # call of unmapped memory
        ("cd80c3", Effect.UNKNOWN),  # the 32-bit system call gate
        ("cf", Effect.UNKNOWN),  # iret
        ("9a", Effect.UNKNOWN),  # truncated
    ],
)
def test_each_open_end_is_an_effect(code, effect):
    assert effect in answer_for(bytes.fromhex(code)).effects


@pytest.mark.parametrize(
    "code",
    [
        "50c3",  # push rax; ret
        "48890424c3",  # mov [rsp], rax; ret
        "4889ccc3",  # mov rsp, rcx; ret
        "488b27c3",  # mov rsp, [rdi]; ret
        "4883ec08c3",  # sub rsp, 8; ret, followed by value analysis only when asked
    ],
)
def test_a_return_to_somewhere_else_is_an_open_end(code):
    memory = CodeMemory(bytes.fromhex(code))
    walker = Walker(
        memory=memory,
        images=(),
        regions=[Region(0x10000, len(memory.code), "jit")],
        machine=EM_X86_64,
    )
    node = walker.node(0x10000, trace=True)
    assert node.chunk.blocks[-1].ending is Ending.ESCAPE
    if code != "4883ec08c3":
        assert Effect.DISPATCH in Decider(walker=walker).decide(0x10000).effects


def test_values_below_the_stack_pointer_do_not_survive_a_call():
    # lea rax,[rip+0x13]; push rax; pop rcx; call a return; jmp [rsp-8]
    code = bytes.fromhex("488d05130000005059e80b000000ff6424f8" + "cc" * 7 + "c3" * 8)
    assert Effect.DISPATCH in answer_for(code).effects


def test_a_trap_is_clean_but_not_a_call_that_must_not_return():
    assert answer_for(bytes.fromhex("0f0b")).effects == frozenset()
    # call next; then nothing: the callee returns into the void.
    code = bytes.fromhex("e8fbffffff")
    answer = answer_for(code)
    assert answer.effects <= {Effect.UNKNOWN}


def test_what_stands_after_a_call_that_never_returns_does_not_follow_it():
    target, death = (0x10000 + 0x21).to_bytes(8, "little"), (0x50000).to_bytes(8, "little")
    # cmp edi,1; je third; mov r13,target; jmp last; third: mov rax,death; call rax; last: call r13
    code = bytes.fromhex("83ff01740c49bd") + target + bytes.fromhex("eb0c48b8") + death
    code += bytes.fromhex("ffd041ffd5c3c3")

    def links(ends):
        region = Region(0x10000, len(code), "jit", {}, frozenset(ends))
        walker = Walker(memory=CodeMemory(code), images=(), regions=[region], machine=EM_X86_64)
        return {link.target for found in walker.node(0x10000).links.values() for link in found}

    assert links({0x50000}) == {0x50000, 0x10021}
    assert links(()) == {0x50000, None}
    assert links({0x10021}) == {0x50000, None}


def test_getpid_by_number_is_clean_on_both_machines():
    assert answer_for(bytes.fromhex("b8270000000f05c3")).effects == frozenset()
    # mov x8, #172; svc #0; ret
    a64 = bytes.fromhex("881580d2010000d4c0035fd6")
    assert decide_a64(a64).effects == frozenset()


def decide_a64(code):
    return answer_for(code, EM_AARCH64)


def test_code_outside_every_library_is_unknown():
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xc3")
    place = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert decide(place).effects == {Effect.UNKNOWN}
    assert decide(place, regions=[Region(place, 1, "mine")]).effects == frozenset()


def test_unmapped_address_and_data_are_unknown():
    data = ctypes.create_string_buffer(b"\xc3" * 16)
    assert decide(8).effects == {Effect.UNKNOWN}
    assert decide(ctypes.addressof(data)).effects == {Effect.UNKNOWN}


def test_ctypes_callback_is_not_clean():
    callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert decide(address).effects


def test_other_machines_are_unknown_with_that_reason():
    memory = CodeMemory(b"\xc3")
    walker = Walker(memory=memory, images=(), regions=[Region(0x10000, 1, "jit")], machine=243)
    answer = Decider(walker=walker).decide(0x10000)
    assert answer.effects == {Effect.UNKNOWN}
    assert "243" in answer.witnesses[0].reason


def test_random_bytes_are_bounded_and_never_clean_unless_they_really_end():
    """Every clean answer is confirmed by an independent look: only returns and traps end it."""
    random.seed(20)
    for _ in range(300):
        code = random.randbytes(random.randint(1, 120))
        answer = answer_for(code)
        if not answer.effects:
            assert _ends_by_itself(code), code.hex()


def _ends_by_itself(code):
    """Follow every direct path through the bytes; True if nothing but returns and traps ends one.

    Calls inside the bytes are followed as jumps and as returning.
    """
    work, seen = [0], set()
    while work:
        at = work.pop()
        if at in seen:
            continue
        seen.add(at)
        if not 0 <= at < len(code):
            return False
        instruction = iced.Decoder(64, code[at:], ip=0x10000 + at).decode()
        if not instruction:
            return False
        flow = instruction.flow_control
        if flow == iced.FlowControl.EXCEPTION or instruction.mnemonic in (
            iced.Mnemonic.HLT,
            iced.Mnemonic.INT3,
        ):
            continue
        if flow == iced.FlowControl.RETURN:
            if instruction.mnemonic != iced.Mnemonic.RET:
                return False
            continue
        if flow in (
            iced.FlowControl.INDIRECT_CALL,
            iced.FlowControl.INDIRECT_BRANCH,
            iced.FlowControl.INTERRUPT,
        ):
            return False
        if flow != iced.FlowControl.NEXT:
            if instruction.op0_kind != iced.OpKind.NEAR_BRANCH64:
                return False
            work.append(instruction.near_branch_target - 0x10000)
        if flow != iced.FlowControl.UNCONDITIONAL_BRANCH:
            work.append(at + instruction.len)
    return True


def test_random_words_of_aarch64_are_never_clean_with_an_open_end():
    random.seed(3)
    for _ in range(200):
        code = random.randbytes(4 * random.randint(1, 30))
        answer = decide_a64(code)
        words = [int.from_bytes(code[k : k + 4], "little") for k in range(0, len(code), 4)]
        if not any(word & 0xFFFFFC1F == 0xD65F0000 for word in words):
            # Without a return only a trap or an endless loop can keep control inside.
            from alloccheck.program.machine.aarch64 import branch

            kinds = {found[0] for k, w in enumerate(words) if (found := branch(w, 4 * k))}
            if not kinds & {"die", "jump", "branch"}:
                assert answer.effects


def test_a64_stub_is_followed_and_register_jump_is_not():
    from alloccheck.program.machine import aarch64

    # adrp x16, #0x2000; ldr x17, [x16, #0x18]; add x16, x16, #0x18; br x17
    words = [0x90000010 | 2 << 5 >> 0, 0xF9400E11, 0x91006210, 0xD61F0220]
    page = ((words[0] >> 5 & 0x7FFFF) << 2 | words[0] >> 29 & 3) << 12
    assert aarch64.stub_slot(words, 0x1000) == (0x1000 + page + 0x18, 4)
    code = b"".join(w.to_bytes(4, "little") for w in [0xD61F0100])
    chunk = aarch64.read_chunk(code, 0, 4, 0)
    assert chunk.blocks[0].events[0].kind is EventKind.JUMP
    assert chunk.blocks[0].events[0].targets is None
    assert chunk.blocks[0].ending is Ending.LEAVE


def test_a64_call_at_the_end_is_an_overrun():
    from alloccheck.program.machine import aarch64

    chunk = aarch64.read_chunk((0x94000010).to_bytes(4, "little"), 0, 4, 0)
    assert chunk.blocks[0].ending is Ending.OVERRUN
    assert chunk.blocks[0].events[0].targets == ((0x40,),)


def test_a64_agrees_with_capstone_on_what_is_a_branch():
    import capstone

    from alloccheck.program.machine.aarch64 import branch

    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    decoder.detail = True
    random.seed(5)
    prefixes = [0x14, 0x17, 0x94, 0x97, 0x54, 0x34, 0x35, 0xB4, 0xB5, 0x36, 0x37, 0xB6, 0xB7]
    words = [p << 24 | random.getrandbits(24) & ~0x10 for p in prefixes for _ in range(20)]
    words += [0xD61F0000 | r << 5 for r in range(31)] + [0xD63F0000 | r << 5 for r in range(31)]
    words += [0xD65F03C0, 0xD4000001, 0xD5033FDF, 0xD503201F, 0x8B020020]
    compared = 0
    for word in words:
        decoded = next(decoder.disasm(word.to_bytes(4, "little"), 0x400000), None)
        if decoded is None:
            continue
        found = branch(word, 0x400000)
        expected = {
            "b": "jump",
            "bl": "call",
            "br": "jump register",
            "blr": "call register",
            "ret": "return",
            "svc": "system",
            "cbz": "branch",
            "cbnz": "branch",
            "tbz": "branch",
            "tbnz": "branch",
        }.get(decoded.mnemonic, "branch" if decoded.mnemonic.startswith("b.") else None)
        assert (found[0] if found else None) == expected, decoded
        if found and found[1] is not None:
            target = int(decoded.op_str.rpartition("#")[2], 16)
            assert found[1] & (1 << 64) - 1 == target
        compared += 1
    assert compared > 200


def test_library_function_address_can_be_given_directly():
    libm = ctypes.CDLL("libm.so.6")
    answer = decide(ctypes.cast(libm.fabs, ctypes.c_void_p).value)
    assert answer.symbol == "libm.so.6!fabs"
    assert answer.effects == frozenset()

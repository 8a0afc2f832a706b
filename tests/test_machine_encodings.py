"""What is remembered of an encoding holds for every instruction of that encoding."""

import platform

import iced_x86 as iced
import pytest

from alloccheck.program.machine import decode, flow
from alloccheck.program.machine.chunk import Part
from alloccheck.program.machine.decode import Flow, Kind, Listing, kind_of
from alloccheck.program.machine.images import PF_X
from alloccheck.program.machine.lookup import symbol_address
from alloccheck.program.machine.view import current_view

WRITES = (
    iced.OpAccess.WRITE,
    iced.OpAccess.COND_WRITE,
    iced.OpAccess.READ_WRITE,
    iced.OpAccess.READ_COND_WRITE,
)


@pytest.fixture(scope="module", params=["libm.so.6:sin", "libc.so.6:malloc"])
def instructions(request):
    assert platform.machine() == "x86_64"
    address = symbol_address(*request.param.split(":"))
    image = current_view().images.find(address)
    (header,) = [one for one in image.loads if one.flags & PF_X]
    code = image.memory.read(header.start, header.size)
    found = [one for one in iced.Decoder(64, code, ip=header.start) if one]
    assert len(found) > 50_000
    return found


def general(register):
    return iced.RegisterExt.is_gpr(register)


def test_what_the_value_analysis_passes_over_changes_nothing_that_it_follows(instructions):
    factory = iced.InstructionInfoFactory()
    passed = 0
    for instruction in instructions:
        if flow._find_step(instruction) is not flow._INERT:
            continue
        if instruction.mnemonic in (iced.Mnemonic.NOP, iced.Mnemonic.ENDBR64):
            continue
        passed += 1
        information = factory.info(instruction)
        written = [one.register for one in information.used_registers() if one.access in WRITES]
        assert not any(map(general, written)), instruction
        assert not any(one.access in WRITES for one in information.used_memory()), instruction
        assert not instruction.rflags_modified, instruction
        operands = [
            instruction.op_register(k)
            for k in range(instruction.op_count)
            if instruction.op_kind(k) == iced.OpKind.REGISTER
        ]
        # A general register may serve as an address and as nothing else.
        assert not any(map(general, operands)), instruction
    assert passed > 1000


@pytest.mark.parametrize(
    "code",
    [
        "0f2900",  # movaps [rax], xmm0
        "0f29c0",  # movaps xmm0, xmm0 in the encoding that stores
        "f20f1100",  # movsd [rax], xmm0
        "660f7ec0",  # movd eax, xmm0
        "660f7e00",  # movd [rax], xmm0
        "f20f2cc0",  # cvttsd2si eax, xmm0
        "0f50c0",  # movmskps eax, xmm0
        "660f3a16c001",  # pextrd eax, xmm0, 1
        "660f2ec1",  # ucomisd xmm0, xmm1
        "660f3817c1",  # ptest xmm0, xmm1
        "dd18",  # fstp qword [rax]
        "dfe0",  # fnstsw ax
        "d938",  # fnstcw [rax]
        "0fa2",  # cpuid
        "0f31",  # rdtsc
        "0f01d0",  # xgetbv
        "660ff7c1",  # maskmovdqu: stores to [rdi]
        "a4",  # movsb
        "f3ab",  # rep stosd
        "660f3a63c101",  # pcmpistri: writes ecx
        "0f2000",  # mov rax, cr0
    ],
)
def test_what_writes_registers_memory_or_flags_is_not_passed_over(code):
    (instruction, *_) = iced.Decoder(64, bytes.fromhex(code))
    assert flow._find_step(instruction) is not flow._INERT


def test_kinds_are_those_of_each_instruction(instructions):
    seen = set()
    for instruction in instructions:
        kind = Kind(kind_of(instruction))
        seen.add(kind)
        control, direct = instruction.flow_control, decode.branch_target(instruction) is not None
        if instruction.mnemonic in decode._TRAPS:
            assert kind is Kind.END
        elif control == Flow.NEXT:
            assert kind is Kind.PLAIN
        elif control in (Flow.CALL, Flow.INDIRECT_CALL, Flow.INTERRUPT):
            assert kind is Kind.CALL
        elif control == Flow.UNCONDITIONAL_BRANCH:
            assert (kind is Kind.JUMP) == direct
        elif control in (Flow.CONDITIONAL_BRANCH, Flow.XBEGIN_XABORT_XEND):
            assert kind is (Kind.BRANCH if direct else Kind.OTHER)
        else:
            assert kind is Kind.END
    assert {Kind.PLAIN, Kind.CALL, Kind.BRANCH, Kind.JUMP, Kind.END} <= seen


@pytest.mark.parametrize(
    ("code", "quiet"),
    [
        ("85ff7402ffc0c3", True),  # test; je; inc; ret
        ("ebfe", True),  # a loop, which never returns
        ("85ff7402ffc0", False),  # runs past the end
        ("85ff7410ffc0c3", False),  # a branch out of the function
        ("85ff74020f05c3", False),  # syscall
        ("85ff7402cd80c3", False),  # int 0x80
        ("85ff740206c3", False),  # no instruction
        ("85ff74020f0bc3", False),  # ud2
        ("85ff7402ffe0c3", False),  # jmp rax
        ("85ff7402cbc3", False),  # a far return
        ("85ff7402f4c3", False),  # hlt
        ("85ff7405e800000000c3", False),  # call
    ],
)
def test_only_a_function_that_just_computes_is_quiet(code, quiet):
    data = bytes.fromhex(code)
    listing = Listing(Part(0, len(data), data))
    listing.descend((0,))
    assert listing.quiet is quiet

"""Code for aarch64, read as data: effects known by construction, and the analysis by itself."""

import lzma
import random
import struct
import subprocess
import sys

import capstone
import pytest
from elftools.common.exceptions import ELFError

import aarch64_objects
from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect
from alloccheck.errors import ProgramError
from alloccheck.program.machine import aarch64, aarch64_flow
from alloccheck.program.machine import values as v
from alloccheck.program.machine.walk import Walker
from elf_files import LinkedMemory
from truth_builds import differences, expectations, seen

KEPT = sorted(aarch64_objects.KEPT.glob("*.xz"))
LEVELS = aarch64_objects.LEVELS


def decider_of(data):
    memory = LinkedMemory(data)
    image = memory.image("a64.so")
    return image, Decider(walker=Walker(memory=memory, images=[image]))


def wrong_effects(data):
    image, decider = decider_of(data)
    wrong = {}
    for name, expected in expectations("freestanding.c").items():
        found = seen(decider.decide(image.exports.by_name[name].address))
        if any(differences(expected, found)):
            wrong[name] = (expected, found)
    return wrong


def test_there_are_objects_of_both_compilers_made_from_this_source():
    names = {file.name for file in KEPT}
    assert names == {f"{c}-{level}.so.xz" for c in ("gcc", "clang") for level in LEVELS}
    stored = (aarch64_objects.KEPT / "source.sha256").read_text().strip()
    assert stored == aarch64_objects.digest(), "run tests/aarch64_objects.py"


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.name)
def test_effects_in_kept_objects_are_exact(file):
    assert not wrong_effects(lzma.decompress(file.read_bytes()))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_effects_in_objects_of_this_machines_compilers_are_exact(family, level, tmp_path):
    if family not in aarch64_objects.commands():
        pytest.skip(f"{family} for aarch64 is not installed: only the kept objects are read")
    command = aarch64_objects.commands()[family]
    built = aarch64_objects.build(command, level, tmp_path / "one.so")
    assert not wrong_effects(built.read_bytes())


def test_the_same_source_is_decided_on_x86_64_from_the_file(tmp_path):
    output = tmp_path / "one.so"
    options = [*aarch64_objects.OPTIONS, "-O2", str(aarch64_objects.SOURCE), "-o", str(output)]
    subprocess.run(["gcc", "-fno-ipa-ra", *options], check=True)
    # The number of that system call is computed there.
    assert set(wrong_effects(output.read_bytes())) <= {"one_of_two"}


# --- tables ----------------------------------------------------------------------------------


def kept(name):
    return lzma.decompress((aarch64_objects.KEPT / name).read_bytes())


def words_of(data, name):
    """The words of a function, with their place in the file."""
    memory = LinkedMemory(data)
    image = memory.image()
    low, high = image.frames.find(image.exports.by_name[name].address)
    segment = next(h for h in image.loads if h.start <= low < h.start + h.size)
    table = struct.unpack_from("<Q", data, 32)[0]
    for k in range(struct.unpack_from("<H", data, 56)[0]):
        kind, _, offset, virtual = struct.unpack_from("<IIQQ", data, table + 56 * k)
        if kind == 1 and memory.base + virtual == segment.start:
            place = low - segment.start + offset
    return place, struct.unpack_from(f"<{(high - low) // 4}I", data, place)


@pytest.mark.parametrize("name", ["gcc-O2", "gcc-Os", "clang-O2", "clang-O0"])
def test_a_table_whose_index_is_not_checked_is_not_decided(name):
    data = kept(f"{name}.so.xz")
    place, words = words_of(data, "dense")
    jump = next(k for k, word in enumerate(words) if word & 0xFFFFFC1F == 0xD61F0000)
    checks = [k for k in range(jump) if words[k] >> 24 == 0x54 and words[k] & 15 in (8, 9)]
    assert checks
    changed = bytearray(data)
    for k in checks:
        # What was done for a proper index only is done always: no jump, or a jump in any case.
        distance = v.signed(words[k] >> 5 & 0x7FFFF, 19) & 0x3FFFFFF
        always = 0xD503201F if words[k] & 15 == 8 else 0x14000000 | distance
        struct.pack_into("<I", changed, place + 4 * k, always)
    image, decider = decider_of(bytes(changed))
    assert Effect.DISPATCH in decider.decide(image.exports.by_name["dense"].address).effects


def code_in_file(data):
    """Which bytes of a file are mapped as code."""
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, table + 56 * k) for k in range(count)]
    (found,) = (range(h[2], h[2] + h[5]) for h in headers if h[0] == 1 and h[1] & 1)
    return found


@pytest.mark.parametrize("name", ["gcc-O2.so.xz", "clang-Os.so.xz"])
def test_broken_code_is_bounded_and_an_allocation_is_never_lost_in_the_data(name):
    data = kept(name)
    image, _ = decider_of(data)
    entry = image.exports.by_name["dense_allocating"].address
    code = code_in_file(data)
    place, words = words_of(data, "dense_allocating")
    generator = random.Random(9)
    for number in range(120):
        changed = bytearray(data)
        if number % 2:
            at = generator.choice([k for k in range(64, len(data)) if k not in code])
            changed[at] ^= 1 << generator.randrange(8)
        else:
            k = generator.randrange(len(words))
            struct.pack_into("<I", changed, place + 4 * k, generator.getrandbits(32))
        try:
            _, decider = decider_of(bytes(changed))
            answer = decider.decide(entry)
        except (ProgramError, ELFError, struct.error):
            continue
        assert answer.effects or not number % 2, number


# --- the analysis ----------------------------------------------------------------------------


class NoData:
    def read(self, relative, size):
        return None

    def word(self, relative):
        return None


def step(word, state):
    trace = aarch64_flow.Trace([word], 0x1000, 0x1000, set(), NoData(), aarch64.branch)
    trace._step(word, 0x1000, state)


COMPUTED = """mov movk movz movn add adds sub subs and ands orr eor lsl lsr asr ubfx ubfiz sbfx
sbfiz uxtb uxth sxtb sxth sxtw csel adr adrp cmp cmn tst""".split()
"""What is computed may be what was there, as is a base moved by 0; comparisons write nothing."""


UNTOLD = {"adds", "subs", "negs", "ands", "bics"}
"""Instructions of which capstone does not tell all that they write."""


def test_registers_that_an_instruction_writes_are_not_taken_to_keep_their_value():
    """Which registers it writes is asked of capstone."""
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    decoder.detail = True
    generator = random.Random(17)
    words = list(words_of(kept("gcc-O2.so.xz"), "wide")[1])
    words += words_of(kept("clang-O0.so.xz"), "wide")[1]
    words += [generator.getrandbits(32) for _ in range(20_000)]
    words += [w ^ 1 << generator.randrange(32) for w in words[:4000]]
    compared = 0
    for word in words:
        decoded = next(decoder.disasm(struct.pack("<I", word), 0x1000), None)
        if decoded is None or aarch64.branch(word, 0x1000) is not None:
            continue
        state = aarch64_flow.State({k: v.number(0x1234_5678_9AB0 + k) for k in range(31)})
        before = dict(state.registers)
        state.registers[aarch64_flow.SP] = v.Frame(0, 0)
        try:
            step(word, state)
        except aarch64_flow._Escaped:
            continue
        _, written = decoded.regs_access()
        named = {decoder.reg_name(register) for register in written}
        for number in range(29):
            if not named & {f"x{number}", f"w{number}"} and decoded.mnemonic not in UNTOLD:
                assert state.registers.get(number) in (before[number], None), decoded
        for one in named:
            if one[0] in "xw" and one[1:].isdigit():
                number = int(one[1:])
                same = state.registers.get(number) == before.get(number)
                assert not same or decoded.mnemonic in COMPUTED or decoded.writeback, decoded
                compared += 1
    assert compared > 3000


def test_conditions_narrow_to_what_they_say():
    codes = {0: "e", 1: "ne", 2: "hs", 3: "lo", 8: "hi", 9: "ls"}
    codes |= {10: "ge", 11: "lt", 12: "gt", 13: "le"}
    holds = {
        "e": lambda a, b, x, y: a == b, "ne": lambda a, b, x, y: a != b,
        "hs": lambda a, b, x, y: a >= b, "lo": lambda a, b, x, y: a < b,
        "hi": lambda a, b, x, y: a > b, "ls": lambda a, b, x, y: a <= b,
        "ge": lambda a, b, x, y: x >= y, "lt": lambda a, b, x, y: x < y,
        "gt": lambda a, b, x, y: x > y, "le": lambda a, b, x, y: x <= y,
    }  # fmt: skip
    top = (1 << 32) - 1
    edges = [0, 1, 2, 7, 8, 9, (1 << 31) - 1, 1 << 31, top - 1, top]
    narrowed = 0
    for code, name in codes.items():
        for constant in edges:
            for known in (None, v.full(32), v.Range(64, 0, 40), v.Range(32, 5, 9)):
                comparison = aarch64_flow.Comparison(3, None, constant, 32)
                for taken in (True, False):
                    state = aarch64_flow.State({} if known is None else {3: known})
                    before = state.read(3)
                    try:
                        after = aarch64_flow._narrowed(state, comparison, code, taken).read(3)
                    except v.Infeasible:
                        after = v.Numbers(frozenset())
                    narrowed += after != before
                    for value in edges:
                        if not contains(before, value):
                            continue
                        signs = v.signed(value, 32), v.signed(constant, 32)
                        if holds[name](value, constant, *signs) is taken:
                            assert contains(after, value), (name, constant, known, taken, value)
    assert narrowed > 100


def contains(value, word):
    if isinstance(value, v.Range):
        return value.low <= word & ((1 << value.bits) - 1) <= value.high
    return value is None or word in value.values


def test_constants_of_logical_instructions_are_those_that_capstone_shows():
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    decoder.detail = True
    generator = random.Random(4)
    compared = 0
    for _ in range(3000):
        word = generator.choice((0x12000000, 0x92000000, 0x32000000)) | generator.getrandbits(23)
        decoded = next(decoder.disasm(struct.pack("<I", word), 0), None)
        found = aarch64_flow._bit_mask(word, 64 if word >> 31 else 32)
        if decoded is None or word & 0x80400000 == 0x00400000:
            continue
        constants = [o.imm for o in decoded.operands if o.type == capstone.arm64.ARM64_OP_IMM]
        if constants and decoded.mnemonic in ("and", "orr"):
            mask = (1 << (64 if word >> 31 else 32)) - 1
            assert found == constants[-1] & mask, decoded
            compared += 1
    assert compared > 500


# --- without the decoder of the other machine ------------------------------------------------


def test_no_package_for_x86_64_is_needed_to_read_it():
    program = f"""
import sys, lzma, platform
sys.modules["iced_x86"] = None
platform.machine = lambda: "aarch64"
sys.path[:0] = {sys.path!r}
from test_machine_aarch64 import kept, wrong_effects
assert not wrong_effects(kept("gcc-O2.so.xz"))
import math
from alloccheck import analyze
assert analyze(lambda x: math.sin(x), "float64(float64)").ok
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr

"""Every contract compared with the machine code of its symbol in this process."""

import re
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import njit

from alloccheck.analysis.contracts import ContractEffect, contracts_from_mapping, load_contracts
from alloccheck.analysis.native import Decider
from alloccheck.effects import Effect, Occasion, Path
from alloccheck.native_evidence import (
    NativeEvidence,
    _with_what_is_shown,
    is_decided,
)
from alloccheck.program.machine.memory import LiveMemory, is_executable

POINTERS = {
    # What the walk cannot follow, and what is known of it. Who adds a line reads the source first.
    r"_nrt_python\S* .*writable": "the allocator's functions, malloc and its kin unless replaced",
    r"_helperlib\S* .*writable": "functions of SciPy's BLAS and LAPACK and of NumPy",
    r"libpython\S* .*writable": "hooks of the interpreter around fork",
    r".*jmp qword ptr \[rax\+30h\]": "the deallocator of a Python object's type",
    r".*call qword ptr \[rax\+10h\]": "the destructor of a block of memory",
    r".*call qword ptr \[r\d+\]": "the allocator that the caller names",
    r".*(call|jmp) (qword ptr \[)?r\w+": "method tables of containers; handlers of fork",
    r"0x\w+ unreadable": "handlers of the cancellation of a thread",
}
NEEDS_THE_INTERPRETER = re.compile(r"_?Py|numba_py_type|NRT_meminfo_from_pyobject")
"""Their code may do nothing that counts, but the caller must hold the interpreter's lock."""


LAZY_BINDING = "lazy binding of "
"""How a walk names what the dynamic linker does at a call that is not bound yet."""


def lasting_effects(answer):
    """The effects of an answer as the tables state them: without the dynamic linker's."""
    return {
        ContractEffect(one.effect, one.occasion)
        for one in answer.witnesses
        if one.path is not Path.DIVERGE and not one.symbol.startswith(LAZY_BINDING)
    }


@pytest.fixture(scope="module")
def answers():
    """Every symbol of the tables that this process has, with the answer of the walk."""
    njit(lambda x: np.dot(x, x))(np.ones(3))  # Numba's symbols are known to LLVM afterwards
    decider, memory = Decider(), LiveMemory.open()
    found = []
    for contract in load_contracts().entries:
        address = None if contract.is_pattern else llvm.address_of_symbol(contract.symbol)
        if address is not None and is_executable(memory, int(address)):
            found.append((contract, decider.decide(int(address))))
    assert len(found) > 550
    return found


def contradictions(contract, answer):
    """What the code shows, and the contract neither says nor includes by convention."""
    said = {one.effect for one in contract.effects}
    found = set()
    for witness in answer.witnesses:
        effect = witness.effect
        if witness.path is Path.DIVERGE or contract.path is Path.DIVERGE or effect in said:
            continue
        if witness.symbol.startswith(LAZY_BINDING) or effect in (Effect.DISPATCH, Effect.UNKNOWN):
            continue
        # Conventions of docs/contracts.md: waiting inside the allocator, and the cache that the
        # first release of a thread makes, belong to `allocate` and `free`; `python` is all.
        if Effect.PYTHON in said:
            continue
        if effect is Effect.BLOCK and said & {Effect.ALLOCATE, Effect.FREE}:
            continue
        per_thread = witness.occasion is Occasion.FIRST_CALL_PER_THREAD
        if effect is Effect.ALLOCATE and per_thread and Effect.FREE in said:
            continue
        found.add((effect, witness.symbol))
    return found


def test_no_contract_is_contradicted_by_the_code(answers):
    wrong = {c.symbol: found for c, a in answers if (found := contradictions(c, a))}
    assert not wrong, (
        "THE CONTRACT TABLES ARE WRONG. The machine code of these symbols shows more than their "
        f"contracts say: {wrong}"
    )


@pytest.mark.parametrize("symbol", "malloc free usleep printf sbrk".split())
def test_a_contract_that_says_too_little_is_noticed(symbol):
    entry = {"effects": [], "reason": "a test", "source": "here:1"}
    [wrong] = contracts_from_mapping({symbol: entry}, "test")
    answer = Decider().decide(int(llvm.address_of_symbol(symbol)))
    assert contradictions(wrong, answer)


def test_death_is_as_contracts_say(answers):
    decider = Decider()
    for contract, answer in answers:
        if contract.path is Path.DIVERGE:
            assert not decider.returns(answer.address), contract.symbol


def test_what_the_code_leaves_open_is_known_otherwise(answers):
    for contract, answer in answers:
        for witness in answer.witnesses:
            if witness.effect not in (Effect.DISPATCH, Effect.UNKNOWN):
                continue
            if witness.path is Path.DIVERGE or contract.path is Path.DIVERGE:
                continue
            shown = f"{witness.symbol} {witness.reason}"
            assert any(re.match(pattern, shown) for pattern in POINTERS), (contract.symbol, shown)


def test_code_decides_wherever_a_contract_is_but_a_fallback(answers):
    fallbacks = [(c, a) for c, a in answers if c.fallback]
    assert len(fallbacks) > 200
    for contract, answer in fallbacks:
        assert is_decided(answer), contract.symbol
        said = {one.effect for one in contract.effects}
        assert {one.effect for one in lasting_effects(answer)} <= said, contract.symbol


def test_contracts_of_libraries_that_code_decides_are_fallbacks(answers):
    # Numba's own helpers are those of the one version that is supported, and are compared above;
    # the C library is another one on each machine.
    for contract, answer in answers:
        said = {one.effect for one in contract.effects}
        if contract.origin not in ("libm.toml", "libc.toml", "compiler_runtime.toml"):
            continue
        if contract.path is Path.RETURN and not said and is_decided(answer):
            assert contract.fallback, contract.symbol


def test_contracts_that_say_more_than_the_code_need_the_interpreter(answers):
    stricter = [
        c.symbol
        for c, a in answers
        if is_decided(a) and not lasting_effects(a) and c.effects and c.path is Path.RETURN
        and not c.fallback
    ]  # fmt: skip
    assert stricter
    assert all(NEEDS_THE_INTERPRETER.match(symbol) for symbol in stricter), stricter


# --- which of the two is believed -----------------------------------------------------------------


def evidence(symbol, user=None):
    table = load_contracts(contracts_from_mapping(user, "test") if user else ())
    return NativeEvidence(table.lookup, {symbol: int(llvm.address_of_symbol(symbol))})


def test_code_comes_before_a_fallback_and_is_named_as_evidence():
    found = evidence("clog")
    # A slot that is not bound yet is told.
    assert all(one.occasion is Occasion.FIRST_CALL for one in found.lookup("clog").effects)
    assert "machine code read" in found.read()["clog"].reason
    assert load_contracts().lookup("clog").effects
    assert found.assumptions() and found.unusual_assumptions() == ()


def test_code_that_does_more_than_a_fallback_says_is_believed():
    # As if this machine's sin were its malloc.
    found = NativeEvidence(load_contracts().lookup, {"sin": int(llvm.address_of_symbol("malloc"))})
    assert ContractEffect(Effect.ALLOCATE) in found.lookup("sin").effects


def test_a_fallback_clears_nothing_that_code_shows_that_cannot_be_read_to_the_end():
    # As if this machine's sin were its qsort, which calls what it is given.
    address = int(llvm.address_of_symbol("qsort"))
    walk = Decider().decide(address)
    assert Effect.DISPATCH in walk.effects and not is_decided(walk)
    found = NativeEvidence(load_contracts().lookup, {"sin": address}).lookup("sin")
    assert {one.effect for one in found.effects} == walk.effects - {Effect.DISPATCH}
    assert "not read to the end" in found.reason


def test_code_that_is_not_read_to_the_end_does_not_show_that_it_ends_by_unwinding():
    walk = Decider().decide(int(llvm.address_of_symbol("qsort")))
    unwinding = tuple(replace(one, path=Path.RAISE) for one in walk.witnesses)
    known = load_contracts().lookup("sin")
    found = _with_what_is_shown(known, replace(walk, witnesses=unwinding))
    assert ContractEffect(Effect.ALLOCATE) in found.effects
    assert {one.path for one in found.effects} == {Path.RETURN}


def test_a_fallback_speaks_for_what_the_code_leaves_open():
    # bsearch calls what it is given, and does nothing else.
    address = int(llvm.address_of_symbol("bsearch"))
    assert Decider().decide(address).effects == {Effect.DISPATCH}
    found = NativeEvidence(load_contracts().lookup, {"sin": address})
    assert found.lookup("sin") == load_contracts().lookup("sin")


def test_a_fallback_holds_where_there_is_no_code_to_read():
    nowhere = NativeEvidence(load_contracts().lookup, {})
    assert nowhere.lookup("sin") == load_contracts().lookup("sin")
    no_code = NativeEvidence(load_contracts().lookup, {"sin": 16})
    assert no_code.lookup("sin") == load_contracts().lookup("sin")


def test_other_contracts_come_before_code():
    for symbol in ("NRT_Allocate", "malloc", "numba_dict_insert"):
        assert evidence(symbol).lookup(symbol) == load_contracts().lookup(symbol)


def test_a_users_override_comes_first():
    entry = {"effects": ["block"], "reason": "a", "source": "b:1", "override": True}
    found = evidence("sin", {"sin": entry})
    assert [one.effect for one in found.lookup("sin").effects] == [Effect.BLOCK]


def test_lazy_binding_at_the_first_call_is_kept(answers):
    lazy = {
        contract.symbol: {w.effect for w in answer.witnesses if w.symbol.startswith(LAZY_BINDING)}
        for contract, answer in answers
        if contract.fallback
        and is_decided(answer)
        and any(
            w.path is not Path.DIVERGE and w.symbol.startswith(LAZY_BINDING)
            for w in answer.witnesses
        )
    }
    for symbol, effects in lazy.items():
        found = evidence(symbol).lookup(symbol).effects
        first = {one.effect for one in found if one.occasion is Occasion.FIRST_CALL}
        assert effects <= first, symbol

"""What the walk says of the libraries of this machine, where the truth is known otherwise."""

import ctypes

import pytest
from numba import _helperlib
from numba.core.runtime import _nrt_python

from alloccheck.analysis.native import DEFAULT_TRUST, Decider, Trust, decide
from alloccheck.effects import Effect, Guarantee, Occasion
from alloccheck.effects import Path as Way
from alloccheck.program.machine.lookup import symbol_address


@pytest.fixture(scope="module")
def decider():
    ctypes.CDLL("libm.so.6")
    return Decider()


def functions(image):
    for symbol in image.exports.ordered:
        if symbol.kind == 2:
            yield symbol.name, symbol.address


def test_no_function_of_libm_allocates_at_every_call(decider):
    image = decider.walker.images.find(symbol_address("libm.so.6", "fabs"))
    wrong, clean = {}, 0
    for name, address in functions(image):
        answer = decider.decide(address)
        if answer.effects_after(first_call=True):
            wrong[name] = answer.effects
        clean += not answer.effects
    assert not wrong
    assert clean > 900


def test_without_the_dead_branch_old_error_handling_shows():
    lgamma = symbol_address("libm.so.6", "lgamma")
    trust = DEFAULT_TRUST - {Trust.CONSTANT}
    assert Effect.UNKNOWN in decide(lgamma, assumptions=trust).effects
    used = {a.name for a in decide(lgamma).evidence.assumptions}
    assert "constant-variable" in used


MATH = """sdiv srem udiv urem frexp ldexp fptoui fptouif signbitl get_list_private_data""".split()
TOUCHES_PYTHON = """do_raise unpickle gil_ensure gil_release extract_record_data recreate_record
get_buffer release_buffer runtime_build_excinfo_struct""".split()
ALLOCATES = "dict_new_sized dict_insert list_new set_add".split()


@pytest.mark.parametrize("name", [n for n in MATH if n in _helperlib.c_helpers])
def test_numba_math_helpers_are_clean(decider, name):
    assert decider.decide(_helperlib.c_helpers[name]).effects == frozenset()


@pytest.mark.parametrize("name", [n for n in TOUCHES_PYTHON if n in _helperlib.c_helpers])
def test_numba_python_helpers_touch_python(decider, name):
    assert Effect.PYTHON in decider.decide(_helperlib.c_helpers[name]).effects


@pytest.mark.parametrize("name", [n for n in ALLOCATES if n in _helperlib.c_helpers])
def test_numba_container_helpers_are_not_clean(decider, name):
    assert not decider.decide(_helperlib.c_helpers[name]).satisfies(Guarantee.NONALLOCATING)


RUNTIME = {n: a for n, a in _nrt_python.c_helpers.items() if isinstance(a, int)}


@pytest.mark.parametrize(
    "name", [n for n in RUNTIME if "Allocate" in n or ("_alloc" in n and "get" not in n)]
)
def test_numba_runtime_allocators_are_not_clean(decider, name):
    assert not decider.decide(RUNTIME[name]).satisfies(Guarantee.NONALLOCATING)


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("malloc", {Effect.ALLOCATE, Effect.BLOCK}),
        ("calloc", {Effect.ALLOCATE, Effect.BLOCK}),
        ("qsort", {Effect.ALLOCATE, Effect.DISPATCH}),
        ("fopen", {Effect.ALLOCATE, Effect.BLOCK}),
        ("pthread_mutex_lock", {Effect.BLOCK}),
        ("usleep", {Effect.BLOCK}),
        ("read", {Effect.BLOCK}),
        ("longjmp", {Effect.RAISE}),
        ("bsearch", {Effect.DISPATCH}),
    ],
)
def test_functions_of_libc_have_their_effects(decider, symbol, expected):
    assert expected <= decider.decide(symbol_address("libc.so.6", symbol)).effects


@pytest.mark.parametrize("symbol", "strlen memcpy memset abs strcmp getpid labs ffs".split())
def test_plain_functions_of_libc_are_clean(decider, symbol):
    assert decider.decide(symbol_address("libc.so.6", symbol)).effects == frozenset()


@pytest.mark.parametrize("symbol", "abort __stack_chk_fail _exit __assert_fail exit".split())
def test_death_is_proved_from_the_code(decider, symbol):
    address = symbol_address("libc.so.6", symbol)
    assert not decider.returns(address)
    assert decider.dooms(address)


@pytest.mark.parametrize("symbol", "longjmp pthread_exit malloc strlen raise printf".split())
def test_what_leaves_or_returns_is_not_death(decider, symbol):
    assert not decider.dooms(symbol_address("libc.so.6", symbol))


def test_evidence_names_library_slots_and_assumptions(decider):
    answer = decider.decide(symbol_address("libm.so.6", "exp"))
    (library,) = [item for item in answer.evidence.libraries if item.name == "libm.so.6"]
    image = decider.walker.images.find(answer.address)
    assert library.build_id == image.build_id
    assert library.code_digest == image.code_digest
    functions = answer.evidence.functions
    assert functions and all("libm.so.6" in name for name in functions)
    slots = dict(answer.evidence.slots)
    assert slots and all(target.startswith("libm.so.6!") for target in slots.values())
    trusted = {a.subject for a in answer.evidence.assumptions if a.name == "got"}
    assert trusted and trusted <= set(slots)


def test_distrusted_slots_are_dispatch():
    exp = symbol_address("libm.so.6", "exp")
    answer = decide(exp, assumptions=frozenset())
    assert Effect.DISPATCH in answer.effects
    assert all(a.name != "got" for a in answer.evidence.assumptions)


def test_lazy_binding_is_an_effect_of_the_first_call_only(decider):
    image = decider.walker.images.find(symbol_address("libm.so.6", "fabs"))
    occasions = set()
    for name, address in functions(image):
        if name in ("clog", "catan", "cacos", "casinh", "clog10"):
            answer = decider.decide(address)
            occasions |= {w.occasion for w in answer.witnesses if w.path is not Way.DIVERGE}
            assert answer.satisfies(Guarantee.NONALLOCATING, first_call=True)
    assert occasions <= {Occasion.FIRST_CALL}


def test_contract_form_of_an_answer(decider):
    contract = decider.decide(symbol_address("libc.so.6", "malloc")).contract
    assert {e.effect for e in contract.effects} == {Effect.ALLOCATE, Effect.BLOCK}
    assert decider.decide(symbol_address("libm.so.6", "fabs")).contract.effects == ()


def test_the_work_limit_is_unknown():
    answer = decide(("libc.so.6", "getaddrinfo"), budget=3)
    assert Effect.UNKNOWN in answer.effects

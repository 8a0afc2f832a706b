"""The abstract values stand for every word that the concrete operation can produce."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alloccheck.program.machine import values as v

WORDS = st.one_of(
    st.integers(0, 40), st.integers(0, v.MASK), st.sampled_from([v.MASK, 1 << 31, (1 << 32) - 1])
)


@st.composite
def known_with_member(draw):
    """An abstract value and one of the words that it stands for."""
    kind = draw(st.sampled_from(["numbers", "range", "top"]))
    word = draw(WORDS)
    if kind == "numbers":
        return v.Numbers(frozenset(draw(st.sets(WORDS, max_size=5))) | {word}), word
    if kind == "top":
        return None, word
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    low = word & ((1 << bits) - 1)
    below = draw(st.integers(0, low))
    above = draw(st.integers(low, (1 << bits) - 1))
    return v.Range(bits, below, above), word


def holds(value, word):
    if value is None:
        return True
    if isinstance(value, v.Numbers):
        return word in value.values
    return value.low <= word & ((1 << value.bits) - 1) <= value.high


@given(known_with_member(), known_with_member())
def test_sum_difference_and_join_contain_the_concrete_results(left, right):
    (a, x), (b, y) = left, right
    assert holds(v.add(a, b), (x + y) & v.MASK)
    assert holds(v.subtract(a, b), (x - y) & v.MASK)
    assert holds(v.join(a, b), x) and holds(v.join(a, b), y)
    assert holds(v.combine(a, b, lambda p, q: p ^ q), x ^ y)


@given(known_with_member(), st.sampled_from([8, 16, 32, 64]))
def test_extensions_contain_the_concrete_results(item, bits):
    value, word = item
    low = word & ((1 << bits) - 1)
    assert holds(v.low_bits(value, bits), low)
    if bits < 64:
        assert holds(v.sign_extend(value, bits), v.signed(low, bits) & v.MASK)


@given(known_with_member(), st.sampled_from([1, 2, 4, 8]), WORDS)
def test_scaling_and_masking_contain_the_concrete_results(item, factor, mask):
    value, word = item
    assert holds(v.scale(value, factor), word * factor & v.MASK)
    assert holds(v.index_offsets(value, factor), word * factor & v.MASK)
    assert holds(v.mask_with(value, mask), word & mask)


@given(known_with_member(), st.sampled_from([8, 16, 32, 64]), WORDS, WORDS)
def test_restriction_keeps_every_word_that_satisfies_the_fact(item, bits, a, b):
    value, word = item
    top = (1 << bits) - 1
    low, high = sorted((a & top, b & top))
    if low <= word & top <= high:
        assert holds(v.restrict(value, bits, low, high), word)


def test_restriction_to_nothing_is_infeasible():
    with pytest.raises(v.Infeasible):
        v.restrict(v.number(5), 32, 6, 9)


def test_a_table_of_pointers_keeps_every_entry():
    places = v.add(v.address(0x1000), v.index_offsets(v.Range(64, 0, 3), 8))
    assert places == v.Pointers(frozenset({(0x1000,), (0x1008,), (0x1010,), (0x1018,)}))
    assert v.add(v.address(0x1000), v.index_offsets(None, 8)) is None


def test_frame_addresses_do_not_survive_an_unknown_step():
    assert v.add(v.Frame(0, -8), v.number(8)) == v.Frame(0, 0)
    assert v.add(v.Frame(0, 0), v.Range(64, 0, 3)) is None

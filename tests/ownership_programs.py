"""Programs that keep, hand over or drop arrays which Python owns, and what is true of each.

Each is called with containers that hold the last reference to an array, so that dropping it
there ends the array's life inside the call.
"""

from __future__ import annotations

import numpy as np
from numba import float64, njit, types
from numba.experimental import jitclass
from numba.typed import Dict, List

ARRAY = types.float64[::1]


@jitclass([("buffer", float64[::1]), ("other", float64[::1])])
class Holder:
    def __init__(self, buffer, other):
        self.buffer = buffer
        self.other = other


@njit
def first(values):
    return values[0]


@njit
def chosen(values, i):
    if i > 0:
        return values[i]
    return values[0]


@njit
def each(values):
    for i in range(len(values)):
        yield values[i]


@njit
def numbers(array):
    for i in range(array.size):
        yield array[i]


@njit
def halves(array):
    for one in numbers(array):
        yield one / 2.0


@njit
def popped(values, new):
    kept = new
    while len(values) > 0:
        yield kept[0]
        kept = values.pop()


@njit
def popped_halves(values, new):
    for one in popped(values, new):
        yield one / 2.0


# --- nothing is dropped -----------------------------------------------------------------------


def read_item(values, new):
    return values[0][1]


def read_through_helper(values, new):
    return first(values)[1] + chosen(values, 1)[0]


def read_in_loop(values, new):
    total = 0.0
    for i in range(len(values)):
        total += values[i][0]
    return total


def pair_of_items(values, new):
    pair = (values[0], values[1])
    return pair[0][0] + pair[1][1]


def read_entry(table, new):
    return table[1][1]


def read_attribute(holder, new):
    view = holder.buffer[1:]
    return view[0] + holder.other[0]


def generator_of_an_argument(values, new):
    total = 0.0
    for one in numbers(new):
        total += 1 / len(values)
    return total


def generator_of_a_generator(values, new):
    total = 0.0
    for one in halves(new):
        if len(values) == 7:
            continue
        total += one / len(values)
    return total


def own_copy(values, new):
    copy = values[0].copy()
    return copy[0]


# --- something is dropped ---------------------------------------------------------------------


def overwrite_item(values, new):
    values[0] = new
    return 0.0


def pop_item(values, new):
    return values.pop()[0]


def delete_item(values, new):
    del values[0]
    return 0.0


def clear_items(values, new):
    values.clear()
    return 0.0


def pop_and_keep_view(values, new):
    view = values.pop(0)[1:]
    return view[0]


def overwrite_entry(table, new):
    table[1] = new
    return 0.0


def delete_entry(table, new):
    del table[1]
    return 0.0


def pop_entry(table, new):
    return table.pop(1)[0]


def pop_any_entry(table, new):
    return table.popitem()[1][0]


def replace_attribute(holder, new):
    holder.buffer = new
    return 0.0


def replace_while_reading(holder, new):
    old = holder.buffer
    holder.buffer = new
    return old[0]


def generator_then_pop(values, new):
    total = 0.0
    for item in each(values):
        total += item[0]
    values.pop()
    return total


def generator_that_keeps_what_it_popped(values, new):
    total = 0.0
    for one in popped(values, new):
        total += one / (len(values) + 1)
    return total


def generator_of_one_that_keeps(values, new):
    total = 0.0
    for one in popped_halves(values, new):
        if new[0] == 7.0:
            continue
        total += one / (len(values) + 1)
    return total


def items(a, b):
    values = List.empty_list(ARRAY)
    values.append(a)
    values.append(b)
    return values


def entries(a, b):
    table = Dict.empty(types.int64, ARRAY)
    table[1] = a
    table[2] = b
    return table


LIST = types.ListType(ARRAY)
DICT = types.DictType(types.int64, ARRAY)
HOLDER = Holder.class_type.instance_type
MAKERS = {LIST: items, DICT: entries, HOLDER: Holder}

KEEPING = {
    read_item: LIST,
    read_through_helper: LIST,
    read_in_loop: LIST,
    pair_of_items: LIST,
    read_entry: DICT,
    read_attribute: HOLDER,
    generator_of_an_argument: LIST,
    generator_of_a_generator: LIST,
    own_copy: LIST,
}
DROPPING = {
    overwrite_item: LIST,
    pop_item: LIST,
    delete_item: LIST,
    clear_items: LIST,
    pop_and_keep_view: LIST,
    overwrite_entry: DICT,
    delete_entry: DICT,
    pop_entry: DICT,
    pop_any_entry: DICT,
    replace_attribute: HOLDER,
    replace_while_reading: HOLDER,
    generator_then_pop: LIST,
    generator_that_keeps_what_it_popped: LIST,
    generator_of_one_that_keeps: LIST,
}


def new_array():
    return np.array([4.0, 5.0])

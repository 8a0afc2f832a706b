"""A named tuple as state that goes in and comes out."""

from collections import namedtuple

from numba import types

State = namedtuple("State", ["position", "velocity"])


def ENTRY(state, dt):
    return State(state.position + dt * state.velocity, state.velocity)


SIGNATURE = (types.NamedUniTuple(types.float64, 2, State), types.float64)
GUARANTEE = "nonblocking"
RAISES = False
RESULT = State(1.5, 1.0)


def ARGS():
    return State(1.0, 1.0), 0.5

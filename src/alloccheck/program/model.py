"""The neutral program graph that every reader produces: functions, blocks, calls, exits.

Knows nothing of LLVM, machine code, Numba or contracts. A reader that meets something it does
not understand must say so with `Unread`, never leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from alloccheck.program.ranges import Ranges
from alloccheck.source import Backtrace

# --- what a call can reach ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Direct:
    """A call by symbol: a function of the program, or an external one."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Address:
    """A call of a constant address that is known when the program is read."""

    address: int
    name: str


@dataclass(frozen=True, slots=True)
class Indirect:
    """A call through a pointer; `candidates` is None when the targets are not known."""

    candidates: tuple[str, ...] | None
    description: str


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call; `number` is None when it could not be decided."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that the reader could not read: inline assembly, an unknown instruction."""

    description: str


Target = Direct | Address | Indirect | SystemCall | Unread

# --- status values: where the integer that a function returns may come from ------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A known integer."""

    value: int


@dataclass(frozen=True, slots=True)
class CallResult:
    """The integer that the call with this index (into `Function.calls`) returned."""

    call: int


@dataclass(frozen=True, slots=True)
class Phi:
    """One of several values, chosen by the block that was left last."""

    block: int
    incoming: tuple[tuple[str, int], ...]
    """Pairs of value name and predecessor block."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several values, chosen by something else (a select)."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """What taking an edge says about a value: it equals, or differs from, a constant."""

    value: str
    equal: bool
    constant: int


@dataclass(frozen=True, slots=True)
class Within:
    """What taking an edge says about a value: it lies in a set of integers."""

    value: str
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Choice:
    """A value chosen by a comparison: each arm is a value name and the facts that chose it."""

    arms: tuple[tuple[str, tuple[Fact | Within, ...]], ...]


@dataclass(frozen=True, slots=True)
class Bounded:
    """An integer of which only a set that holds it is known."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of which nothing is known."""


Value = Constant | CallResult | Phi | OneOf | Choice | Bounded | Opaque


@dataclass(frozen=True, slots=True)
class Edge:
    """A control-flow edge with the facts, all of which hold when it is taken."""

    target: int
    facts: tuple[Fact | Within, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A call site."""

    index: int
    block: int
    target: Target
    location: int | None = None
    """Key for `Program.locate`."""
    size: int | None = None
    """Constant byte count of an allocation, when the reader knows one."""
    operand: str | None = None
    """Name of the first pointer operand, for pairing reference counts."""
    arguments: tuple[str, ...] = ()
    """Value names or constants passed, in order; empty when the reader does not know them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block. `returns` is the status value of a return, if it ends in one."""

    index: int
    name: str
    edges: tuple[Edge, ...]
    calls: tuple[int, ...]
    exits: bool = False
    """Ends in a return."""
    returns: str | None = None
    """Name of the returned status value; None with `exits` when nothing is known of it."""
    dies: bool = False
    """Ends in `unreachable` or a trap: control never goes on."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program; block 0 is the entry."""

    name: str
    blocks: tuple[Block, ...]
    calls: tuple[Call, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    has_status: bool = False
    """Whether it returns a 32-bit integer that may be a status code. Which of these functions
    follow a status convention is for the analysis to say."""
    parameters: tuple[str, ...] = ()
    """Names of its parameters in order, as they occur in `Call.arguments`."""
    location: int | None = None
    """Key for `Program.locate` of the function itself, for calls that have no location."""


@dataclass(frozen=True, slots=True)
class Program:
    """A closed set of functions, and the externals they mention."""

    functions: Mapping[str, Function]
    externals: frozenset[str]
    address_taken: frozenset[str]
    """Functions whose address is stored or passed somewhere."""
    locate: Callable[[int], Backtrace]
    """From a call's `location` to its backtrace, innermost frame first."""
    entry: str = ""
    """Symbol of the function that the program was read for."""

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

# --- pointers: where they come from, and what stack slots hold ------------------------------


@dataclass(frozen=True, slots=True)
class Merge:
    """A pointer that is one of several, chosen by the block that was left last."""

    block: int
    incoming: tuple[tuple[str, int], ...]
    """Pairs of pointer and predecessor block."""


@dataclass(frozen=True, slots=True)
class Select:
    """A pointer that is one of several, chosen by something else."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A pointer is loaded from a slot."""

    name: str
    slot: str
    offset: int


@dataclass(frozen=True, slots=True)
class Write:
    """Something is stored into a slot: anywhere in it when `offset` is None."""

    slot: str
    offset: int | None
    size: int | None
    value: str | None
    """The pointer that is stored, if it is one; ``zeroinitializer`` when all bytes become zero, or
    undefined; these may be more or fewer than a pointer's."""
    maybe: bool = False
    """It may be another place that is written instead."""


PointerEvent = int | Read | Write | Select
"""What happens in a block in order; an integer is a call, an index into `Function.calls`."""


@dataclass(frozen=True, slots=True)
class Pointers:
    """The pointers of a function.

    A slot is memory that nothing reaches but the function itself, by constant distances from
    its start or by a choice of such, and those functions that it is passed to. Each is named by
    the `alloca` that made it or the parameter that brought it.
    """

    merges: Mapping[str, Merge] = field(default_factory=dict)
    events: Mapping[int, tuple[PointerEvent, ...]] = field(default_factory=dict)
    """By block; merges are not among them."""
    homes: Mapping[str, int] = field(default_factory=dict)
    """From each pointer that an instruction defines to its block."""
    results: Mapping[str, int] = field(default_factory=dict)
    """From names to the calls that returned them."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """From names to the aggregates of which they are a field."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """From names to other names of the same pointer, by which the rest of this speaks of it."""
    locations: Mapping[str, int] = field(default_factory=dict)
    """Keys for `Program.locate` of what defines them."""
    addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """From names to the slot that they point into, and the distance from its start."""
    choices: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """From names to several such places, of which they are one."""
    partial: frozenset[str] = frozenset()
    """Names in `choices` that may point elsewhere as well."""
    slots: frozenset[str] = frozenset()
    pointer_free: frozenset[str] = frozenset()
    """Memory on the stack whose type has no pointer in it."""

    def places(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return the slots that a name may point into, and the distances from their starts."""
        known = self.addresses.get(name)
        return self.choices.get(name, ()) if known is None else (known,)


def no_pointers() -> Pointers:
    """Return the pointers of a function of which the reader knows none."""
    return Pointers()


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
    plain: bool = False
    """Whether the compiler says that it is about a container whose elements refer to nothing."""


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
class Output:
    """A pointer is stored where a parameter points to."""

    block: int
    parameter: str
    location: int | None = None
    """Key for `Program.locate`."""
    passed_on: bool = False
    """Whether it was itself loaded from memory, and so was made elsewhere."""


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
    returns: str = ""
    """Its return type, as the reader writes types; empty when that is not known."""
    takes: tuple[str, ...] = ()
    """The types of its parameters."""
    outputs: tuple[Output, ...] = ()
    """Pointers that it hands to its caller."""
    read_pointers: Callable[[], Pointers] = field(default=no_pointers, repr=False, compare=False)
    """Reads its pointers, when asked."""


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

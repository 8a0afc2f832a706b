"""The status that a C entry leaves for its thread when the function raised.

A thread that Python has never seen has no storage of ours, and thread-local variables of jitted
code would be allocated on first use. So each artifact whose C entry can raise has a fixed table in
its own data. A thread's slot is one word that holds the thread pointer and the status; only that
thread changes it while it is taken, each time by one atomic instruction, so there is nothing to
lock, to wait for or to allocate. Knows LLVM IR; nothing of Numba's calling convention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

SLOTS = 64
"""Threads whose last call raised, at one time, of which the status is known."""

UNKNOWN_STATUS = -(2**31)
"""What the reader returns for a thread without a slot once a status found none."""

_i16, _i32, _i64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_CODE_BITS = 16
"""The thread pointer stands above these bits: user addresses have 48 bits at most."""
_ALIGNMENT = 8


@dataclass(frozen=True)
class StatusTable:
    """The IR functions that entries call; none of them calls, locks or waits.

    Parameters
    ----------
    raised : ir.Function
        ``void(i32 code)``: remember the code for this thread.
    returned : ir.Function
        ``void()``: forget this thread's code.
    ever : ir.GlobalVariable
        Whether any call ever raised. Only `raised` writes it, so that a function that cannot raise
        loses its table to the optimiser.
    live : ir.GlobalVariable
        How many slots are taken; while it is zero there is nothing to forget.
    """

    raised: Any
    returned: Any
    ever: Any
    live: Any

    def forget(self, builder: Any) -> None:
        """Emit what a call that returned owes to the table: nothing, unless a slot is taken."""
        with _if_not_zero(builder, self.ever), _if_not_zero(builder, self.live):
            builder.call(self.returned, ())


def add_status_table(module: Any, reader: str) -> StatusTable:
    """Add a table and its functions to a module.

    Parameters
    ----------
    module : ir.Module
        Where.
    reader : str
        Symbol of the function ``i32()`` that returns the calling thread's code: 0 when its last
        call returned, `UNKNOWN_STATUS` when no slot was free.

    Returns
    -------
    StatusTable
        What entries call.
    """
    parts = _Parts(module)
    parts.reader(reader)
    return StatusTable(parts.raised(), parts.returned(), parts.ever, parts.live)


class _Parts:
    def __init__(self, module: Any) -> None:
        self.module = module
        self.table = self._data("alloccheck.status.table", ir.ArrayType(_i64, SLOTS))
        self.ever = self._data("alloccheck.status.ever", _i64)
        self.live = self._data("alloccheck.status.live", _i64)
        self.lost = self._data("alloccheck.status.lost", _i64)
        shape = ir.FunctionType(ir.IntType(8).as_pointer(), ())
        self.thread = module.declare_intrinsic("llvm.thread.pointer.p0", (), shape)

    def _data(self, name: str, type_: Any) -> Any:
        variable = ir.GlobalVariable(self.module, type_, name)
        variable.initializer = type_(None)
        variable.linkage = "internal"
        variable.align = _ALIGNMENT
        return variable

    def _function(self, name: str, result: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        function = ir.Function(self.module, ir.FunctionType(result, arguments), name)
        # Loops over the slots are rare: they shall stay loops, not sixty-four copies.
        function.attributes.add("minsize")
        function.attributes.add("optsize")
        return function, ir.IRBuilder(function.append_basic_block("entry"))

    def _internal(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        function, builder = self._function(name, ir.VoidType(), arguments)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("cold")
        return function, builder

    def _mine(self, builder: Any) -> Any:
        """Return this thread's key: its thread pointer, above the bits of the code."""
        pointer = builder.ptrtoint(builder.call(self.thread, ()), _i64)
        return builder.shl(pointer, _i64(_CODE_BITS))

    def _each_slot(self, function: Any, builder: Any, act: Callable[[Any], None]) -> None:
        """Emit a loop over the slots; `act` gets each."""
        before = builder.block
        head = function.append_basic_block("slot")
        done = function.append_basic_block("done")
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(_i64)
        index.add_incoming(_i64(0), before)
        act(builder.gep(self.table, [_i64(0), index], inbounds=True))
        following = builder.add(index, _i64(1))
        index.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, _i64(SLOTS)), head, done)
        builder.position_at_end(done)

    def _is_mine(self, builder: Any, word: Any, key: Any) -> Any:
        owner = builder.and_(word, _i64(-(1 << _CODE_BITS)))
        return builder.icmp_unsigned("==", owner, key)

    def raised(self) -> Any:
        function, builder = self._internal("alloccheck.status.raised", (_i32,))
        key = self._mine(builder)
        code = builder.trunc(function.args[0], _i16)
        code = builder.select(builder.icmp_unsigned("==", code, _i16(0)), _i16(1), code)
        word = builder.or_(key, builder.zext(code, _i64))

        def renew(slot: Any) -> None:
            found = builder.load_atomic(slot, "monotonic", _ALIGNMENT)
            with _leaving(function, builder, self._is_mine(builder, found, key)):
                builder.store_atomic(word, slot, "monotonic", _ALIGNMENT)

        def claim(slot: Any) -> None:
            answer = builder.cmpxchg(slot, _i64(0), word, "monotonic", "monotonic")
            with _leaving(function, builder, builder.extract_value(answer, 1)):
                builder.atomic_rmw("add", self.live, _i64(1), "monotonic")
                builder.store_atomic(_i64(1), self.ever, "monotonic", _ALIGNMENT)

        self._each_slot(function, builder, renew)
        self._each_slot(function, builder, claim)
        builder.store_atomic(_i64(1), self.lost, "monotonic", _ALIGNMENT)
        builder.ret_void()
        return function

    def returned(self) -> Any:
        function, builder = self._internal("alloccheck.status.returned", ())
        key = self._mine(builder)

        def release(slot: Any) -> None:
            found = builder.load_atomic(slot, "monotonic", _ALIGNMENT)
            with builder.if_then(self._is_mine(builder, found, key)):
                builder.store_atomic(_i64(0), slot, "monotonic", _ALIGNMENT)
                builder.atomic_rmw("sub", self.live, _i64(1), "monotonic")

        self._each_slot(function, builder, release)
        builder.ret_void()
        return function

    def reader(self, symbol: str) -> Any:
        function, builder = self._function(symbol, _i32, ())
        key = self._mine(builder)
        answer = builder.alloca(_i32)
        lost = builder.load_atomic(self.lost, "monotonic", _ALIGNMENT)
        none = builder.icmp_unsigned("==", lost, _i64(0))
        builder.store(builder.select(none, _i32(0), _i32(UNKNOWN_STATUS)), answer)

        def look(slot: Any) -> None:
            found = builder.load_atomic(slot, "monotonic", _ALIGNMENT)
            with builder.if_then(self._is_mine(builder, found, key)):
                code = builder.sext(builder.trunc(found, _i16), _i32)
                builder.store(code, answer)

        self._each_slot(function, builder, look)
        builder.ret(builder.load(answer))
        return function


def _if_not_zero(builder: Any, counter: Any) -> Any:
    found = builder.load_atomic(counter, "monotonic", _ALIGNMENT)
    return builder.if_then(builder.icmp_unsigned("!=", found, _i64(0)), likely=False)


@contextmanager
def _leaving(function: Any, builder: Any, condition: Any) -> Iterator[None]:
    """Emit a block that runs when `condition` holds and then leaves the function."""
    leave = function.append_basic_block("leave")
    stay = function.append_basic_block("stay")
    builder.cbranch(condition, leave, stay)
    builder.position_at_end(leave)
    yield
    builder.ret_void()
    builder.position_at_end(stay)

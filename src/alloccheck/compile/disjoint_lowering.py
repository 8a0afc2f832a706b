"""The lowering of functions whose array arguments do not overlap: the guard, and what it saves.

Loaded when such a function is compiled; `disjoint` says what the question is.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from alloccheck.compile import numba_internals
from alloccheck.compile.disjoint import ALL, disjoint_names
from alloccheck.compile.views import ViewLower, without_copies
from alloccheck.errors import Refused

# isort: split
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj

numba_internals.require_later()

_VIEWS = frozenset({"T", "real", "imag"})
"""Attributes of arrays that are parts of them."""

_VIEW_METHODS = frozenset({"reshape", "transpose", "ravel", "view"})
"""Methods of arrays that return parts of them, or copies."""


class _DisjointLower(ViewLower):
    """Lowers a function's entry guard, and its assignments between disjoint arguments."""

    def pre_lower(self) -> None:
        super().pre_lower()
        if self.generator_info is not None:
            raise Refused("disjoint= is not possible for a generator: its body runs after the call")
        self._arrays = self._disjoint_arrays()
        self._definitions = _definitions(self.blocks)
        self._guard()

    def lower_inst(self, inst: Any) -> None:
        if not (isinstance(inst, ir.SetItem | ir.StaticSetItem) and self._is_disjoint(inst)):
            super().lower_inst(inst)
            return
        with without_copies():
            super().lower_inst(inst)

    def _disjoint_arrays(self) -> dict[str, tuple[Any, Any]]:
        """Return type and value of each array argument that was named."""
        names = self.func_ir.alloccheck_disjoint
        arguments = dict(
            zip(self.fndesc.args, zip(self.fndesc.argtypes, self.fnargs, strict=True), strict=True)
        )
        # Numba calls them "arg.x" here.
        arguments = {name.removeprefix("arg."): one for name, one in arguments.items()}
        if names == (ALL,):
            return {n: one for n, one in arguments.items() if isinstance(one[0], types.Array)}
        for name in names:
            if not isinstance(arguments[name][0], types.Array):
                raise Refused(
                    f"disjoint names {name!r}, which is {arguments[name][0]} here and no array"
                )
        return {name: arguments[name] for name in names}

    def _guard(self) -> None:
        self.debuginfo.mark_location(self.builder, self.defn_loc.line)
        extents = {n: self._extent(ty, value) for n, (ty, value) in self._arrays.items()}
        for (one, mine), (other, its) in itertools.combinations(extents.items(), 2):
            overlap = arrayobj.extents_may_overlap(self.context, self.builder, *mine, *its)
            message = (
                f"the arrays {one} and {other} overlap, and {self.func_ir.func_id.func_name} was "
                "compiled for arrays that do not"
            )
            with self.builder.if_then(overlap, likely=False):
                self.call_conv.return_user_exc(
                    self.builder,
                    ValueError,
                    (message,),
                    loc=self.defn_loc,
                    func_name=self.func_ir.func_id.func_name,
                )

    def _extent(self, array_type: Any, value: Any) -> Any:
        array = arrayobj.make_array(array_type)(self.context, self.builder, value)
        shape, strides = (
            [self.builder.extract_value(one, axis) for axis in range(array_type.ndim)]
            for one in (array.shape, array.strides)
        )
        start, end = arrayobj.get_array_memory_extents(
            self.context, self.builder, array_type, array, shape, strides, array.data
        )
        # An empty array lies nowhere, whatever it points to.
        nowhere = start.type(0)
        empty = self.builder.icmp_unsigned("==", start, end)
        return (
            self.builder.select(empty, nowhere, start),
            self.builder.select(empty, nowhere, end),
        )

    def _is_disjoint(self, inst: Any) -> bool:
        target, value = self._root(inst.target.name), self._root(inst.value.name)
        return target is not None and value is not None and target != value

    def _root(self, name: str, above: frozenset[str] = frozenset()) -> str | None:
        """Return the named argument that an array variable is, or is a part of; None if unsure."""
        if name in above or not isinstance(self.typeof(name), types.Array):
            return None
        roots = {
            self._root_of_value(value, above | {name}) for value in self._definitions.get(name, ())
        }
        return roots.pop() if len(roots) == 1 else None

    def _root_of_value(self, value: Any, above: frozenset[str]) -> str | None:
        if isinstance(value, ir.Arg):
            return value.name if value.name in self._arrays else None
        if isinstance(value, ir.Var):
            return self._root(value.name, above)
        if not isinstance(value, ir.Expr):
            return None
        if value.op in ("getitem", "static_getitem", "typed_getitem", "cast"):
            return self._root(value.value.name, above)
        if value.op == "getattr" and value.attr in _VIEWS:
            return self._root(value.value.name, above)
        if value.op == "phi":
            roots = {self._root(one.name, above) for one in value.incoming_values}
            return roots.pop() if len(roots) == 1 else None
        if value.op == "call":
            return self._root_of_method(value, above)
        return None

    def _root_of_method(self, call: Any, above: frozenset[str]) -> str | None:
        defined = self._definitions.get(call.func.name, [])
        if len(defined) != 1:
            return None
        method = defined[0]
        if (
            isinstance(method, ir.Expr)
            and method.op == "getattr"
            and method.attr in _VIEW_METHODS
            and isinstance(self.typeof(method.value.name), types.Array)
        ):
            return self._root(method.value.name, above)
        return None


def _definitions(blocks: dict[int, Any]) -> dict[str, list[Any]]:
    """Return what each variable is assigned."""
    found: dict[str, list[Any]] = {}
    for block in blocks.values():
        for statement in block.body:
            if isinstance(statement, ir.Assign):
                found.setdefault(statement.target.name, []).append(statement.value)
    return found


@register_pass(mutates_CFG=True, analysis_only=False)
class DisjointLowering(NativeLowering):  # type: ignore[misc]
    """Numba's step from typed functions to LLVM, with the guard."""

    _name = "alloccheck_disjoint_lowering"

    @property
    def lowering_class(self) -> Callable[..., Any]:
        return _DisjointLower

    def run_pass(self, state: Any) -> bool:
        state.func_ir.alloccheck_disjoint = disjoint_names(type(state.pipeline))
        return bool(super().run_pass(state))

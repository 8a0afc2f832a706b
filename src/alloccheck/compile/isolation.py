"""A place where Numba keeps no memory: what is shared is set aside on entry and put back on exit.

Numba remembers results in class attributes of templates, in interned types and on the thread's
flag stack. `isolated` gives the current thread, which must hold the compiler lock, empty ones and
restores the user's own afterwards, also after an error. It also owns the few redirections
through which Numba's machinery finds the contexts of the world that is being compiled.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

from alloccheck.compile import choices, numba_internals
from alloccheck.compile.interrupts import COMPILER_LOCK, interrupts_at_safe_points
from alloccheck.compile.views import ViewLower

# isort: split
from numba.core import cpu, errors, event, lowering, registry, targetconfig, types
from numba.core import target_extension as te
from numba.core.descriptors import TargetDescriptor
from numba.core.typed_passes import NativeLowering
from numba.core.types.abstract import _typecache
from numba.core.typing import templates
from numba.experimental.jitclass import boxing as jitclass_boxing

if TYPE_CHECKING:
    from alloccheck.compile.world import World

TARGET = "alloccheck"
"""Name of our target in Numba's registries."""

_thread = threading.local()


def current_world() -> World | None:
    """Return the world that the calling thread is compiling in, if any."""
    return getattr(_thread, "world", None)


class HermeticCPU(te.CPU):  # type: ignore[misc]
    """The CPU, as a target whose contexts belong to the current world."""


class HermeticTarget(TargetDescriptor):  # type: ignore[misc]
    """Descriptor through which Numba asks for the contexts of `HermeticCPU`."""

    options = cpu.CPUTargetOptions

    @property
    def typing_context(self) -> Any:
        return _require_world().typing_context

    @property
    def target_context(self) -> Any:
        return _require_world().target_context


def _require_world() -> World:
    world = current_world()
    if world is None:
        raise RuntimeError("the alloccheck target is only available inside a hermetic compile")
    return world


hermetic_target = HermeticTarget(TARGET)


# --- the flags that a callee inherits -----------------------------------------------------------


DEFAULT_FLAGS = {"nrt": "True", "fastmath": "", "error_model": "python", "forceinline": "False"}
"""What a function compiled on its own has of the flags that callees inherit."""


def _flag_text(value: Any) -> str:
    """Return a flag's value as text that does not depend on hash order."""
    chosen = getattr(value, "flags", None)
    return ",".join(sorted(chosen)) if isinstance(chosen, set | frozenset) else str(value)


def inherited_flags() -> tuple[tuple[str, str], ...]:
    """Return the flags that a callee compiled now would inherit, as a key.

    Two callers with the same key may share a compiled callee; two with different keys may not.
    """
    top = targetconfig.ConfigStack.top_or_none()
    if top is None:
        return tuple(DEFAULT_FLAGS.items())
    return tuple(
        (name, _flag_text(getattr(top, name)) if top.is_set(name) else DEFAULT_FLAGS[name])
        for name in numba_internals.INHERITED_FLAGS
    )


@contextlib.contextmanager
def no_inherited_flags() -> Iterator[None]:
    """Compile as if no caller had asked for it, as what is declared with its types is."""
    stack = targetconfig._FlagsStack()._stack
    saved = stack[:]
    stack.clear()
    try:
        yield
    finally:
        stack[:] = saved


class VariantDict(dict[Any, Any]):
    """A dict whose keys carry, unseen, the flags that callees inherit at the moment.

    Numba keys several caches by argument types alone, so that two callers with different flags
    would share one callee. With this class in their place each finds its own.
    """

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__((inherited_flags(), key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((inherited_flags(), key), value)

    def __contains__(self, key: object) -> bool:
        return super().__contains__((inherited_flags(), key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((inherited_flags(), key), default)


# --- redirections: inert outside a world ----------------------------------------------------------

_dispatcher_property = types.Dispatcher.dispatcher
_numba_unify_dispatcher = types.Dispatcher.unify
_numba_unify_recursive = types.RecursiveCall.unify
_typing_property = registry.CPUTarget.typing_context
_target_property = registry.CPUTarget.target_context
_numba_specialize_box = jitclass_boxing._specialize_box
_numba_new_dispatcher = registry.CPUDispatcher.__init__
_numba_compile_dispatcher = registry.CPUDispatcher.compile
_numba_lowering = NativeLowering.lowering_class
_python_execute_module = SourceFileLoader.exec_module


def _dispatcher(self: Any) -> Any:
    dispatcher = _dispatcher_property.fget(self)
    world = current_world()
    return dispatcher if world is None else world.clone(dispatcher)


def _unify_dispatcher(self: Any, typingctx: Any, other: Any) -> Any:
    if current_world() is None:
        return _numba_unify_dispatcher(self, typingctx, other)
    return choices.unified(self, other)


def _unify_recursive(self: Any, typingctx: Any, other: Any) -> Any:
    if current_world() is None:
        return _numba_unify_recursive(self, typingctx, other)
    return choices.unified(self, other)


def _typing_context(self: Any) -> Any:
    world = current_world()
    return _typing_property.fget(self) if world is None else world.typing_context


def _target_context(self: Any) -> Any:
    world = current_world()
    return _target_property.fget(self) if world is None else world.target_context


def _specialize_box(typ: Any) -> Any:
    # Completes the Python class of a jitclass's instances, by compiling its properties.
    if current_world() is None:
        return _numba_specialize_box(typ)
    with outside():
        return _numba_specialize_box(typ)


def _new_dispatcher(self: Any, *args: Any, **options: Any) -> None:
    # Whoever makes a dispatcher of Numba's while we compile (the body of an overload, say) may
    # keep it: it belongs to the user's contexts. A world makes its own counterpart of it.
    world, _thread.world = current_world(), None
    try:
        _numba_new_dispatcher(self, *args, **options)
    finally:
        _thread.world = world


def _compile_dispatcher(self: Any, sig: Any) -> Any:
    if current_world() is None:
        return _numba_compile_dispatcher(self, sig)
    with outside():
        return _numba_compile_dispatcher(self, sig)


def _lowering_class(self: Any) -> Any:
    return _numba_lowering.fget(self) if current_world() is None else ViewLower


def _execute_module(self: Any, module: Any) -> None:
    # A module that is first imported while we compile is everybody's: its decorators must not
    # find the contexts of a world.
    if current_world() is None:
        _python_execute_module(self, module)
        return
    with outside():
        _python_execute_module(self, module)


def install() -> None:
    """Install the redirections and the target, once per process.

    The redirections answer exactly as Numba's own outside a hermetic compile.
    """
    if TARGET in te.target_registry:
        return
    # Contexts and modules that Numba makes on demand must not be made inside a world: they would
    # be bound to it for ever.
    registry.cpu_target._toplevel_typing_context  # noqa: B018
    registry.cpu_target._toplevel_target_context  # noqa: B018
    numba_internals.import_on_demand()
    te.target_registry[TARGET] = HermeticCPU
    types.Dispatcher.dispatcher = property(_dispatcher, doc=_dispatcher_property.__doc__)
    types.Dispatcher.unify = _unify_dispatcher
    types.RecursiveCall.unify = _unify_recursive
    registry.CPUTarget.typing_context = property(_typing_context, doc=_typing_property.__doc__)
    registry.CPUTarget.target_context = property(_target_context, doc=_target_property.__doc__)
    jitclass_boxing._specialize_box = _specialize_box
    registry.CPUDispatcher.__init__ = _new_dispatcher
    registry.CPUDispatcher.compile = _compile_dispatcher
    NativeLowering.lowering_class = property(_lowering_class, doc=_numba_lowering.__doc__)
    SourceFileLoader.exec_module = _execute_module  # type: ignore[method-assign]


def global_typing_context() -> Any:
    """Return the typing context that the user's own dispatchers share."""
    return registry.cpu_target._toplevel_typing_context


def global_target_context() -> Any:
    """Return the target context that the user's own dispatchers share."""
    return registry.cpu_target._toplevel_target_context


# --- setting shared memory aside ------------------------------------------------------------------


def _template_classes() -> list[type]:
    found: list[type] = []
    pending: list[type] = [
        templates._OverloadFunctionTemplate,
        templates._IntrinsicTemplate,
        templates._OverloadAttributeTemplate,
    ]
    while pending:
        children: list[type] = type.__subclasses__(pending.pop())
        for sub in children:
            found.append(sub)
            pending.append(sub)
    return found


class WorldMemory:
    """What Numba's shared caches hold on behalf of one world, while it is not active."""

    def __init__(self) -> None:
        self.class_dicts: dict[tuple[type, str], dict[Any, Any]] = {}
        self.impl_keys: dict[int, tuple[Any, dict[Any, Any]]] = {}
        self.bound: list[tuple[Any, Any, Any]] = []


@functools.cache
def _kind(cls: type) -> type | None:
    # `isinstance` with Numba's abstract classes is too slow for every type there is.
    kinds: tuple[type, ...] = (types.BaseFunction, types.BoundFunction)
    return next((kind for kind in kinds if issubclass(cls, kind)), None)


@dataclass(frozen=True, slots=True)
class _Caches:
    """Where templates remember results: every class attribute, and whether flags are its keys."""

    classes: list[type]
    places: list[tuple[type, str, bool]]

    @classmethod
    def of(cls, classes: list[type]) -> _Caches:
        names = [
            *((name, False) for name in numba_internals.TEMPLATE_CACHES),
            *((name, True) for name in numba_internals.TEMPLATE_VARIANT_CACHES),
        ]
        places = [(one, name, by) for one in classes for name, by in names if name in vars(one)]
        return cls(classes, places)


_caches = _Caches([], [])
"""Kept from one exchange to the next, as long as there are no new templates."""


class _Exchange:
    """Puts a world's memory in the place of the user's, and back again, any number of times.

    Both directions may be broken off anywhere, by Ctrl-C say: `undo` can be repeated, and then puts
    back all that is the user's. What the world made is lost in that case.
    """

    def __init__(self, memory: WorldMemory) -> None:
        self._memory = memory
        self._made = False

    def make(self) -> None:
        """Note what is the user's, all of it, and then put the world's there."""
        global _caches
        memory = self._memory
        classes = _template_classes()
        if classes != _caches.classes:
            _caches = _Caches.of(classes)
        self._caches = _caches
        users = [vars(cls)[name] for cls, name, _ in self._caches.places]
        own = [memory.class_dicts.get((cls, name)) for cls, name, _ in self._caches.places]
        # An empty one that is keyed alike serves both.
        self._shared = [
            mine is None and not by_flags and not theirs
            for mine, theirs, (_, _, by_flags) in zip(own, users, self._caches.places, strict=True)
        ]
        self._users = users
        alive = [(reference, reference()) for reference in list(_typecache)]
        kinds = [(reference, one, _kind(one.__class__)) for reference, one in alive]
        self._impl_keys: list[tuple[Any, dict[Any, Any]]] = [
            (one, one._impl_keys) for _, one, kind in kinds if kind is types.BaseFunction
        ]
        # A bound function holds the typing context that it was made in; a world must make its own.
        # The type is kept alive here, so its entry can be put back.
        self._bound: list[tuple[Any, Any, Any]] = [
            (reference, _typecache[reference], one)
            for reference, one, kind in kinds
            if kind is types.BoundFunction
        ]
        self._made = True
        for (cls, name, by_flags), mine, shared in zip(
            self._caches.places, own, self._shared, strict=True
        ):
            if mine is not None:
                setattr(cls, name, mine)
            elif by_flags:
                setattr(cls, name, VariantDict())
            elif not shared:
                setattr(cls, name, {})
        for interned, _ in self._impl_keys:
            known = memory.impl_keys.get(id(interned))
            interned._impl_keys = VariantDict() if known is None else known[1]
        for reference, _, _ in self._bound:
            del _typecache[reference]
        for reference, value, _alive in memory.bound:
            _typecache[reference] = value

    def undo(self) -> None:
        """Keep what the world made in its memory, and put the user's own back."""
        if not self._made:
            return
        memory = self._memory
        memory.class_dicts = {}
        for (cls, name, _), users, shared in zip(
            self._caches.places, self._users, self._shared, strict=True
        ):
            if shared:
                if users:
                    memory.class_dicts[(cls, name)] = dict(users)
                    users.clear()
                continue
            mine = vars(cls)[name]
            if mine is users:
                continue
            setattr(cls, name, users)
            if mine:
                memory.class_dicts[(cls, name)] = mine
        # Implementations of overloads define intrinsics when they are typed. Their classes stay in
        # Numba's registries; what they remember of this world must not.
        for cls in set(_template_classes()) - set(self._caches.classes):
            for name in (
                *numba_internals.TEMPLATE_CACHES,
                *numba_internals.TEMPLATE_VARIANT_CACHES,
            ):
                if vars(cls).get(name):
                    memory.class_dicts[(cls, name)] = vars(cls)[name]
                    setattr(cls, name, {})
        memory.impl_keys = {}
        kept = set()
        for interned, keys in self._impl_keys:
            kept.add(id(interned))
            if interned._impl_keys is not keys:
                if interned._impl_keys:
                    memory.impl_keys[id(interned)] = (interned, interned._impl_keys)
                interned._impl_keys = keys
        memory.bound = []
        for reference in list(_typecache):
            interned = reference()
            kind = _kind(interned.__class__)
            if kind is types.BoundFunction:
                memory.bound.append((reference, _typecache.pop(reference), interned))
            elif kind is types.BaseFunction and id(interned) not in kept:
                if interned._impl_keys:
                    memory.impl_keys[id(interned)] = (interned, interned._impl_keys)
                interned._impl_keys = {}
        for reference, value, _alive in self._bound:
            _typecache[reference] = value
        self._made = False


_numba_first_line = lowering.get_func_body_first_lineno


def _first_line(function: Any) -> Any:
    # Numba parses the whole source file per function to find this line; the code object has it.
    # Where debug information is asked for, a missing source is warned of.
    flags = targetconfig.ConfigStack.top_or_none()
    if flags is not None and flags.debuginfo:
        return _numba_first_line(function)
    return int(function.__code__.co_firstlineno) + 1


_numba_event = event.trigger_event


def _event(kind: str, data: Any = None) -> Any:
    # Who is told of compiles knows the user's dispatcher, which tells of its own.
    if kind == "numba:compile":
        return contextlib.nullcontext()
    return _numba_event(kind, data=data)


@contextlib.contextmanager
def own_location() -> Iterator[None]:
    """Compile something of its own: afterwards Numba's "current" source location is as before.

    Numba keeps one for the process and writes it into some messages that become code, so that a
    callee that is compiled just now, or was before, would show in its caller.
    """
    saved = dict(errors.loc_info)
    try:
        yield
    finally:
        errors.loc_info.clear()
        errors.loc_info.update(saved)


@contextlib.contextmanager
def isolated(world: World) -> Iterator[None]:
    """Compile in `world`: with its contexts, and without any memory of earlier compiles.

    Parameters
    ----------
    world : World
        The world whose contexts answer while the block runs.

    Notes
    -----
    Holds Numba's compiler lock throughout. Everything set aside is put back on exit, whatever
    happens inside.
    """
    with COMPILER_LOCK, interrupts_at_safe_points():
        outer, outer_exchange = current_world(), getattr(_thread, "exchange", None)
        target = te.current_target()
        stack = targetconfig._FlagsStack()._stack
        saved_stack = stack[:]
        first_line = lowering.get_func_body_first_lineno
        trigger_event = event.trigger_event
        exchange = _Exchange(world.memory)

        def put_back() -> None:
            _thread.world = outer
            lowering.get_func_body_first_lineno = first_line
            event.trigger_event = trigger_event
            exchange.undo()
            _thread.exchange = outer_exchange
            stack[:] = saved_stack
            te.target_override(target).__enter__()

        try:
            try:
                stack.clear()
                _thread.world = None
                _thread.exchange = exchange
                exchange.make()
                lowering.get_func_body_first_lineno = _first_line
                event.trigger_event = _event
                _thread.world = world
                with te.target_override(TARGET), own_location():
                    errors.loc_info.clear()
                    yield
            finally:
                _surely(put_back)
        finally:
            # Once more, should the first time have been broken off before it began.
            _surely(put_back)


ATTEMPTS = 50
"""How often a step that must not be left half done is tried."""


def _surely(step: Callable[[], None]) -> None:
    """Do what must be done even if exceptions come in from outside, and raise the first at last.

    Parameters
    ----------
    step : callable
        Can be repeated from its beginning wherever it was broken off.
    """
    first: BaseException | None = None
    for _ in range(ATTEMPTS):
        try:
            step()
            break
        except BaseException as error:
            first = first or error
    if first is not None:
        raise first


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Run a block as if no world were active, with the user's own memory of earlier compiles.

    For Numba objects that belong to the user and are completed on demand.
    """
    world = current_world()
    assert world is not None, "there is no world to step out of"
    exchange = _thread.exchange

    def come_back() -> None:
        # Broken off half-way before: begin with what is the user's.
        exchange.undo()
        exchange.make()
        _thread.world = world

    try:
        _thread.world = None
        exchange.undo()
        with te.target_override("cpu"):
            yield
    finally:
        _surely(come_back)

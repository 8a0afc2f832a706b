"""The contexts of a world: typing, lowering and code generation of its own.

They differ from Numba's in what they refuse to share: lowerings of intrinsics go to a registry of
the world, libraries of another code generator cannot be linked in, and nothing is turned into
machine code before the artifact is closed.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from alloccheck.compile import choices, containers, dumps, isolation
from alloccheck.compile.interrupts import safe_point
from alloccheck.compile.isolation import TARGET, VariantDict
from alloccheck.compile.job import Configuration
from alloccheck.compile.lines import LineTables
from alloccheck.compile.llvm_contexts import read_bitcode, read_text
from alloccheck.compile.pass_builders import freed_builder
from alloccheck.compile.pass_managers import freed
from alloccheck.errors import Refused

# isort: split
from numba.core import (
    cgutils,
    codegen,
    config,
    cpu,
    debuginfo,
    externals,
    imputils,
    pythonapi,
    registry,
    types,
    typing,
    utils,
)
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel import default_manager
from numba.core.datamodel.manager import DataModelManager
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import nrtdynmod, rtsys
from numba.core.typing import templates

if TYPE_CHECKING:
    from alloccheck.compile.recursion import RoundRecursion
    from alloccheck.compile.world import World

UNRESOLVED = ".numba.unresolved$"
"""Prefix of the variables through which Numba calls functions still being compiled."""


class WorldTypingContext(typing.Context):  # type: ignore[misc]
    """A typing context of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._installing = 0
        super().__init__()
        self.follow(world.recursion)

    def follow(self, recursion: RoundRecursion) -> None:
        """Ask `recursion` from now on about functions that are still being inferred."""
        self.callstack = recursion.call_stack()

    def install_registry(self, registry: Any) -> None:
        self._installing += 1
        try:
            super().install_registry(registry)
        finally:
            self._installing -= 1

    def _lookup_global(self, value: Any) -> Any:
        if self._installing:
            # Falling back to the user's context now would mark the declaration as known.
            return super()._lookup_global(value)
        value = self._world.counterpart(value)
        found = super()._lookup_global(value)
        if found is None:
            # Jitclasses and functions that extensions registered live in the user's context.
            found = isolation.global_typing_context()._lookup_global(value)
        return found

    def insert_global(self, gv: Any, gty: Any) -> None:
        if isinstance(gv, registry.CPUDispatcher):
            # A dispatcher of the user's, made while we compile (by a module that an overload
            # imports): it belongs to the user's contexts, and is met here as any other.
            gv.typingctx = isolation.global_typing_context()
            gv.targetctx = isolation.global_target_context()
            gv.typingctx.insert_global(gv, gty)
            return
        super().insert_global(gv, gty)

    def resolve_value_type(self, val: Any) -> Any:
        self._world.note_constant(val)
        return super().resolve_value_type(val)

    def resolve_module_constants(self, typ: Any, attr: str) -> Any:
        self._world.note_module_attribute(typ.pymod, attr)
        return super().resolve_module_constants(typ, attr)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if isinstance(func, types.RecursiveCall):
            # Reached only while a partial return type is computed, where Numba would give up.
            return self._world.recursion.assumed_signature(func, args, kws)
        return super().resolve_function_type(func, args, kws)


class WorldLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A library that is linked and optimised, but becomes machine code only in an artifact."""

    # Bitcode, of the module as it was before linking and as others link it. Modules in memory are
    # ten times as large, and a kept world has thousands. Everyone links from bitcode, whether the
    # library was made just now or for an earlier job, so that the order of LLVM's use lists, which
    # bitcode does not keep, is the same for both.
    _pristine: bytes | None = None
    _linkable: bytes | None = None
    _module: Any = None
    _adding_entries = False
    _is_copy = False

    def __init__(self, generator: WorldCodegen, name: str) -> None:
        super().__init__(generator, name)
        self._module = read_bitcode(self._module.as_bitcode())

    @property
    def _final_module(self) -> Any:
        if self._module is None:
            known = self._linkable if self._finalized else self._pristine
            if known is not None:
                self._module = read_bitcode(known)
        return self._module

    @_final_module.setter
    def _final_module(self, module: Any) -> None:
        self._module = module

    def pack(self) -> None:
        """Let go of the module in memory; it is read again if anyone asks for it."""
        if self._module is not None:
            if self._finalized:
                self._make_linkable()
            else:
                self._pristine = self._module.as_bitcode()
        self._module = None

    def _make_linkable(self) -> bytes:
        if self._linkable is None:
            module = self._final_module
            if next(iter(module.functions), None) is not None:
                # Numba refuses one that the optimiser left nothing of.
                module = super()._get_module_for_linking()
            self._linkable = module.as_bitcode()
            self._shared_module = None
        return self._linkable

    def _get_module_for_linking(self) -> Any:
        raise AssertionError("Numba links a library's module by itself; see `link_into`")

    def link_into(self, module: Any) -> None:
        """Link what this library defines into another library's `module`."""
        module.link_in(read_bitcode(self._make_linkable(), beside=module))

    def add_ir_module(self, ir_module: Any) -> None:
        """As Numba's, in the context of this library."""
        self._raise_if_finalized()
        text = cgutils.normalize_ir_text(str(ir_module))
        module = read_text(text, beside=self._final_module)
        module.name = ir_module.name
        module.verify()
        self.add_llvm_module(module)

    def add_llvm_module(self, ll_module: Any) -> None:
        """As Numba's; the module may be of another context, which Numba's older pruning makes."""
        self._optimize_functions(ll_module)
        if not config.LLVM_REFPRUNE_PASS:
            ll_module = codegen.remove_redundant_nrt_refct(ll_module)
        self._final_module.link_in(ll_module)

    def add_linking_library(self, library: Any) -> None:
        if library is rtsys.library:
            library = self._codegen.runtime
        if library._codegen is not self._codegen:
            raise Refused(
                f"the compiled library {library.name!r} was built outside this hermetic compile "
                "and would be linked in unchecked. Pass the Python function or its dispatcher "
                "instead of a compiled object."
            )
        super().add_linking_library(library)

    def _optimize_functions(self, ll_module: Any) -> None:
        # As Numba's, but without a pass pipeline for each mere declaration: there is nothing to
        # optimise, and LLVM keeps some memory per pipeline.
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not (function.is_declaration or self._adding_entries):
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)

    @contextmanager
    def adding_entries(self) -> Iterator[None]:
        """Leave what is added in the block to the optimisation of the whole module."""
        self._adding_entries = True
        try:
            yield
        finally:
            self._adding_entries = False

    def opened(self) -> WorldLibrary:
        """Return a library with this one's own code, neither linked nor optimised yet.

        An artifact is closed from such a copy, so that its code is the same whether or not this
        library served as a callee before.
        """
        copy: WorldLibrary = self._codegen.create_library(self.name)
        self._codegen.libraries.remove(copy)  # nobody links it
        copy.enable_object_caching()
        before = self._pristine if self._finalized else None
        if before is None:
            before = self._final_module.as_bitcode()
        copy._final_module = read_bitcode(before)
        copy._is_copy = True
        copy._linking_libraries = list(self._linking_libraries)
        copy._reload_init = set(self._reload_init)
        return copy

    def finalize(self) -> None:
        """Link and optimise; code generation waits for `artifact.close`."""
        safe_point()
        self._raise_if_finalized()
        dumps.before_linking(self)
        self._pristine = self._final_module.as_bitcode()
        if not self._is_copy:
            # It may have been packed since it was made, or not: both go on from the same.
            self._final_module = read_bitcode(self._pristine)
        linked: set[int] = set()
        for library in self._linking_libraries:
            if id(library) not in linked:
                linked.add(id(library))
                self._reload_init.update(library._reload_init)
                library.link_into(self._final_module)
        before = self._codegen.before_optimization.pop(self, None)
        if before is not None:
            before(self)
        self._optimize_final_module()
        self._final_module.verify()
        self._finalized = True
        dumps.optimised(self)

    def get_pointer_to_function(self, name: str) -> int:
        """Return null: no address exists before the artifact is loaded.

        Clones of ufuncs ask for loop addresses that nobody calls during a compile.
        """
        self._ensure_finalized()
        return 0


_runtimes: dict[str, bytes] = {}
"""Numba's run-time library as bitcode, under each configuration: the same in every world."""


def runtime_library(context: WorldContext) -> WorldLibrary:
    """Return a world's own copy of Numba's run-time library.

    That of the process was compiled under whatever settings it started with.

    Parameters
    ----------
    context : WorldContext
        The world's.
    """
    configuration = repr(Configuration.current())
    known = _runtimes.get(configuration)
    if known is None:
        compiled: WorldLibrary = nrtdynmod.compile_nrt_functions(context)
        known = compiled._final_module.as_bitcode()
        # One is in use at a time: those of earlier settings are compiled again when needed.
        _runtimes.clear()
        _runtimes[configuration] = known
    library: WorldLibrary = context.codegen().create_library("nrt")
    library._final_module = read_bitcode(known)
    library._finalized = True
    return library


class _PlainLevel(int):
    """A level of optimisation that a program set as a mere number."""

    is_opt_max = False


class WorldCodegen(codegen.JITCPUCodegen):  # type: ignore[misc]
    """A code generator of one world. It remembers its libraries, to resolve recursion."""

    _library_class = WorldLibrary

    runtime: WorldLibrary
    """See `runtime_library`."""

    def __init__(self, module_name: str) -> None:
        self.libraries: list[WorldLibrary] = []
        self.before_optimization: dict[WorldLibrary, Callable[[WorldLibrary], None]] = {}
        super().__init__(module_name)

    def _pass_builder(self, **kwargs: Any) -> Any:
        return freed_builder(super()._pass_builder(**kwargs))

    def _module_pass_manager(self, **kwargs: Any) -> tuple[Any, Any]:
        manager, builder = super()._module_pass_manager(**kwargs)
        return freed(manager), builder

    def _function_pass_manager(self, **kwargs: Any) -> tuple[Any, Any]:
        manager, builder = super()._function_pass_manager(**kwargs)
        return freed(manager), builder

    def _init(self, llvm_module: Any) -> None:
        # Numba does this once, at start-up, when the level is still as the environment says.
        level = config.OPT
        if hasattr(level, "is_opt_max"):
            super()._init(llvm_module)
            return
        config.OPT = _PlainLevel(level)
        try:
            super()._init(llvm_module)
        finally:
            config.OPT = level

    def create_library(self, name: str, **kwargs: Any) -> WorldLibrary:
        library: WorldLibrary = super().create_library(name, **kwargs)
        self.libraries.append(library)
        return library


class _WorldRegistries(dict[Any, Any]):
    """Registries of a context; denies the shared one, so that new lowerings go to ours."""

    def __contains__(self, key: object) -> bool:
        return key is not imputils.builtin_registry and super().__contains__(key)


class PendingEntry:
    """Stands for the entry point of a function that has no machine code yet."""

    def __init__(self, library: WorldLibrary, descriptor: Any, environment: Any) -> None:
        self.library = library
        self.descriptor = descriptor
        self.environment = environment


class StablePythonAPI(pythonapi.PythonAPI):  # type: ignore[misc]
    """Numba's, but for one message, where a per-process counter would get into the code."""

    def emit_environment_sentry(
        self, envptr: Any, return_pyobject: bool = False, debug_msg: str = ""
    ) -> None:
        name = self.context.fndesc.qualname if self.context.fndesc else "?"
        super().emit_environment_sentry(envptr, return_pyobject=return_pyobject, debug_msg=name)


class WorldContext(cpu.CPUContext):  # type: ignore[misc]
    """A target context of one world."""

    enable_debuginfo = True

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(world.typing_context, TARGET)

    @property
    def DIBuilder(self) -> Any:
        """What describes the source to LLVM: lines; with ``debug=True`` all that Numba does."""
        # Numba sets the attribute on the copy that it makes for a function with that option.
        asked = "enable_debuginfo" in vars(self)
        return debuginfo.DIBuilder if asked else LineTables

    @global_compiler_lock  # type: ignore[untyped-decorator]
    def init(self) -> None:
        self.is32bit = utils.MACHINE_BITS == 32
        self._refreshing = False
        self._loaded: tuple[int, ...] = ()
        self._world_registry = imputils.Registry("alloccheck world")
        self._c_wrappers: dict[str, WorldLibrary] = {}
        self._registries = _WorldRegistries()
        # Numba's manager keeps each type that it was ever asked for, and a model refers to its
        # type; of a world's own, both go with the world.
        self.data_model_manager = DataModelManager(default_manager._handlers)
        self._internal_codegen = WorldCodegen("alloccheck.world")
        self.cached_internal_func = VariantDict()
        externals.c_math_functions.install(self)
        self.install_registry(self._world_registry)

    def refresh(self) -> None:
        """Load new declarations, if there are any.

        Numba refreshes once per overloaded method and intrinsic. A world sees the whole of the
        registries at the start; later only what was added since is worth the walk.
        """
        if self._refreshing:
            return
        seen = self._registered()
        if seen == self._loaded:
            return
        self._refreshing = True
        try:
            super().refresh()
            # Typing overloaded methods registered their lowerings just now.
            self.install_registry(self._world_registry)
        finally:
            self._refreshing = False
        self._loaded = self._registered()

    def declarations(self) -> tuple[int, ...]:
        """Return a key that changes when overloads or lowerings are registered with Numba.

        Intrinsics register their lowering, under a function of its own, whenever anyone compiles
        them; that concerns nobody else and does not count.
        """
        shared = (one for one in self._registries if one is not self._world_registry)
        counts = [
            len(getattr(one, name))
            for one in shared
            for name in imputils.RegistryLoader.registry_items
            if one is not imputils.builtin_registry or name != "functions"
        ]
        counts.append(
            sum(
                not isinstance(function, FunctionType)
                for _, function, _ in imputils.builtin_registry.functions
            )
        )
        counts += [
            len(getattr(one, name))
            for one in self.typing_context._registries
            for name in templates.RegistryLoader.registry_items
        ]
        return tuple(counts)

    def _registered(self) -> tuple[int, ...]:
        lowering = (*self._registries, imputils.builtin_registry)
        counts = [
            len(getattr(one, name))
            for one in lowering
            for name in imputils.RegistryLoader.registry_items
        ]
        counts += [
            len(getattr(one, name))
            for one in (*self.typing_context._registries, templates.builtin_registry)
            for name in templates.RegistryLoader.registry_items
        ]
        return tuple(counts)

    def load_additional_registries(self) -> None:
        super().load_additional_registries()
        self.install_registry(self._world_registry)

    def get_executable(self, library: Any, fndesc: Any, env: Any) -> PendingEntry:
        """Return a unique key for the function; machine code comes with the artifact."""
        return PendingEntry(library, fndesc, env)

    def _compile_subroutine_no_cache(self, *args: Any, **kwargs: Any) -> Any:
        with isolation.own_location():
            return super()._compile_subroutine_no_cache(*args, **kwargs)

    def get_python_api(self, builder: Any) -> StablePythonAPI:
        return StablePythonAPI(self, builder)

    def get_constant_generic(self, builder: Any, ty: Any, val: Any) -> Any:
        # Large arrays are captured by address: whoever keeps the code must keep the value.
        self._world.pin(val)
        self._world.note_constant(val)
        if isinstance(ty, types.FunctionType) and isinstance(val, Dispatcher):
            # Numba leaves the address to the first call, which would ask the user's dispatcher.
            return choices.pointer(self, builder, self._world.clone(val), val, ty)
        if isinstance(ty, types.FunctionType) and isinstance(val, CFunc):
            # Numba writes down the address of what the decorator compiled.
            return choices.callback(self, builder, self._world.callback(val), val, ty)
        return super().get_constant_generic(builder, ty, val)

    def cast(self, builder: Any, val: Any, fromty: Any, toty: Any) -> Any:
        if fromty != toty:
            converted = choices.cast(self, builder, val, fromty, toty)
            if converted is not None:
                return converted
        return super().cast(builder, val, fromty, toty)

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        if isinstance(fn, choices.Choice):
            return choices.caller(self, fn, sig)
        if any(isinstance(one, types.Dispatcher | choices.Choice) for one in sig.args):
            key = getattr(fn, "typing_key", fn)
            if key in (operator.is_, operator.is_not):
                return functools.partial(self._identity, sig, negated=key is operator.is_not)
        found = super().get_function(fn, sig, _firstcall)
        symbol = containers.symbol_to_mark(self, fn, sig)
        return found if symbol is None else containers.marking(found, symbol)

    def _identity(
        self, sig: Any, builder: Any, arguments: Any, loc: Any = None, *, negated: bool
    ) -> Any:
        return choices.identity(self, builder, sig, arguments, negated=negated)

    def c_wrapper(self, result: Any) -> tuple[WorldLibrary, str]:
        """Return what C calls for a function of this world: its library and its symbol.

        Parameters
        ----------
        result : CompileResult
            Of the function.
        """
        name = result.fndesc.llvm_cfunc_wrapper_name
        library = self._c_wrappers.get(name)
        if library is None:
            library = self.codegen().create_library(f"{result.library.name} for C")
            self.create_cfunc_wrapper(library, result.fndesc, None, None)
            library.add_linking_library(result.library)
            library.finalize()
            self._c_wrappers[name] = library
        return library, name

    def __repr__(self) -> str:
        # Gets into the code of C wrappers, which must not depend on the process.
        return "<alloccheck context>"


def parse_like(module: Any, text: str) -> Any:
    """Parse IR `text` with the data layout and triple of `module`, to be linked with it."""
    parsed = read_text(text, beside=module)
    parsed.data_layout = module.data_layout
    parsed.triple = module.triple
    return parsed

"""The closed artifact: one module, one engine, and the machine code that was checked.

Closing links every callee into the root's module, resolves recursion to direct calls, optimises
as Numba does, makes everything internal but the entries, and emits one object. Every undefined
symbol of that object is resolved before it is loaded, and loading adds nothing to it.
"""

from __future__ import annotations

import ctypes
import re
import time
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import llvmlite.binding as ll

from alloccheck.compile import canonical, dumps, isolation
from alloccheck.compile.collector import slow_collector
from alloccheck.compile.contexts import UNRESOLVED, WorldLibrary, parse_like
from alloccheck.compile.entry import add_c_entries, has_c_signature, is_called_in_registers
from alloccheck.compile.image import Image, Slot, locate
from alloccheck.compile.interrupts import COMPILER_LOCK
from alloccheck.compile.job import CompileJob, Configuration
from alloccheck.compile.lifetime import Lifetime, reason_to_keep
from alloccheck.compile.loaded import Artifact, CEntries, ClosedLibrary, Engine, GeneratorCode
from alloccheck.compile.numba_internals import ENVIRONMENT_PREFIX
from alloccheck.compile.objectfile import ObjectFile, read_object
from alloccheck.compile.pass_managers import freed
from alloccheck.compile.provenance import captures, compiled_functions
from alloccheck.compile.recursion import RoundRecursion, compile_to_fixpoint
from alloccheck.compile.world import FunctionVariants, World
from alloccheck.errors import Refused

# isort: split
from numba import _dynfunc
from numba.core import config, targetconfig, types, typing
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment


@dataclass(frozen=True, slots=True)
class Embedded:
    """What code refers to besides its externals.

    Parameters
    ----------
    environments : mapping
        Numba's environment of each function that has one, by symbol.
    reloads : bool
        Whether Numba would have to run something before the code is loaded elsewhere.
    linked : tuple of Callable
        Python functions whose code was linked in.
    """

    environments: Mapping[str, Any]
    reloads: bool
    linked: tuple[Any, ...]


@dataclass(frozen=True)
class Built:
    """An artifact and what only the check, or the store, needs of it."""

    artifact: Artifact
    listing: str
    """Text of the optimised, closed module."""
    object_file: ObjectFile
    assumed_symbols: Mapping[str, Any]
    annotations: tuple[Any, ...]
    timings: Mapping[str, float]
    embedded: Embedded


@slow_collector()
def build(job: CompileJob) -> Built:
    """Compile, close and load a job's artifact.

    Parameters
    ----------
    job : CompileJob
        The question.

    Returns
    -------
    Built
        The artifact, ready to be called, with the listing for the check.

    Raises
    ------
    Refused
        When the code cannot be closed: unresolved symbol, object mode, foreign library.
    RecursionFault
        When recursion has no answer.
    numba.core.errors.NumbaError
        Numba's own, for code that does not compile; now and then it lets through errors of other
        kinds, see `is_of_numba`.
    """
    start = time.perf_counter()

    def in_world(world: World) -> Built:
        with world.active():
            result = world.compile(job)
            compiled = time.perf_counter()
            closed = _close(world, result, job.value_on_raise)
            return _load(job, world, result, closed, start, compiled)

    with COMPILER_LOCK:
        kept = canonical.shared.use(job, in_world)
        if kept is not None:
            return kept
        variants = FunctionVariants()

        def one_round(recursion: RoundRecursion) -> Built:
            world = World(recursion, variants)
            try:
                return in_world(world)
            finally:
                world.dispose()

        built, rounds = compile_to_fixpoint(one_round, _unify)
    return built if rounds == 1 else _with_rounds(built, rounds)


def told_of(job: CompileJob) -> tuple[Any, dict[str, Any]]:
    """Return Numba's type annotation and metadata of a job's function, by compiling it again.

    Artifacts do not keep them: they hold on to the whole of a compile.

    Parameters
    ----------
    job : CompileJob
        The question that an artifact answered.
    """
    variants = FunctionVariants()

    def one_round(recursion: RoundRecursion) -> Any:
        world = World(recursion, variants)
        try:
            with world.active():
                result = world.compile(job)
                if config.LLVM_PASS_TIMINGS:
                    dumps.timed(result.library)
                return result.type_annotation, result.metadata
        finally:
            world.dispose()

    annotation, metadata = compile_to_fixpoint(one_round, _unify)[0]
    return annotation, metadata


def _unify(first: Any, second: Any) -> Any:
    return isolation.global_typing_context().unify_types(first, second)


def _with_rounds(built: Built, rounds: int) -> Built:
    return replace(built, artifact=replace(built.artifact, rounds=rounds))


def is_of_numba(error: BaseException) -> bool:
    """Tell whether Numba, or what Numba ran for a function, raised an error while compiling it.

    Its type says little: typing and lowering pass on whatever an overload or LLVM raises.
    An error that one of our own functions raised is a bug of ours, wherever it was called from.

    Parameters
    ----------
    error : BaseException
        What came out of `build`.

    Examples
    --------
    >>> is_of_numba(ValueError())
    False
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    compiling = {World.compile.__code__, _close.__code__}
    return any(frame.f_code in compiling for frame in frames) and not _is_ours(frames[-1])


def _is_ours(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]


@dataclass(frozen=True)
class _Closed:
    library: WorldLibrary
    object_code: bytes
    listing: str
    object_file: ObjectFile
    entries: tuple[str, ...]
    c_entries: CEntries | None
    environment: Any
    generator: Any
    returns: bool
    """Whether the body ends with status 0 alone."""


def _close(world: World, result: Any, value_on_raise: Any) -> _Closed:
    """Turn the root's open library into one closed object."""
    descriptor = result.fndesc
    pending = result.entry_point
    library = result.library.opened()
    context = world.target_context.subtarget(
        environment=pending.environment, fndesc=descriptor, enable_nrt=True
    )
    entries = [descriptor.mangled_name, descriptor.llvm_cpython_wrapper_name]
    # Each is one body, reached by all wrappers, not a copy in each of them.
    bodies = [descriptor.mangled_name]
    wrapped = [descriptor]
    generator = None
    if isinstance(descriptor.restype, types.Generator):
        generator = context.get_generator_desc(descriptor.restype)
        wrapped.append(generator)
        bodies.append(generator.mangled_name)
        entries.append(generator.mangled_name)
    c_entries = None
    # Wrappers compile callees, too (the hash of a set's items, say): as the function would.
    inherited = targetconfig.ConfigStack().enter(world.root_flags())
    with inherited, context.push_code_library(library), library.adding_entries():
        for one in wrapped:
            # The generator may be another function's, whose constants its wrapper then reads.
            own = one.env_name == descriptor.env_name
            context.create_cpython_wrapper(
                library,
                one,
                pending.environment if own else lookup_environment(one.env_name),
                result.call_helper,
                release_gil=bool(world.root.targetoptions.get("nogil", False)),
            )
        if has_c_signature(descriptor):
            before = str(library._final_module.get_function(descriptor.mangled_name))
            small = before.count("\n  ") <= SMALL and is_called_in_registers(descriptor)
            inline = small and _returns(before)
            c_entries = add_c_entries(context, library, descriptor, value_on_raise, inline=inline)
            entries += c_entries.symbols
    codegen = world.target_context.codegen()

    def prepare(one: WorldLibrary) -> None:
        _resolve_recursion(codegen, one)
        for symbol in bodies:
            body = one._final_module.get_function(symbol)
            if b"alwaysinline" not in b" ".join(body.attributes):
                body.add_function_attribute("noinline")

    codegen.before_optimization[library] = prepare
    library.finalize()
    module = library._final_module
    if _internalize(module, set(entries)):
        # Only then: the optimiser has dropped what was not needed before, and LLVM keeps some
        # memory for each pass pipeline.
        manager = freed(ll.create_new_module_pass_manager())
        manager.add_global_dead_code_eliminate_pass()
        manager.run(module, codegen._pass_builder(opt=0, loop_vectorize=False, slp_vectorize=False))
    module.verify()
    body = str(module.get_function(descriptor.mangled_name))
    dumps.closed(library, module, codegen._tm)
    object_code = codegen._tm.emit_object(module)
    object_file = read_object(object_code)
    return _Closed(
        library,
        object_code,
        str(module),
        object_file,
        tuple(entries),
        c_entries,
        pending.environment,
        generator,
        _returns(body),
    )


def _internalize(module: Any, keep: set[str]) -> bool:
    """Make all functions internal but those to `keep`; return whether there were others."""
    others = [f for f in module.functions if not f.is_declaration and f.name not in keep]
    for function in others:
        function.linkage = "internal"
    return bool(others)


SMALL = 128
"""Instructions, before optimisation, up to which a body is inlined into its C entry.

Calling a smaller one through memory and a status would cost as much as running it.
"""

_RETURN = re.compile(r"^  ret (.*?)(?:, !.*)?$", re.MULTILINE)


def _returns(body: str) -> bool:
    """Tell whether a native function ends with status 0 alone, by the text of its IR."""
    return {"i32 0"}.issuperset(_RETURN.findall(body))


def _generator_code(descriptor: Any, engine: Engine) -> GeneratorCode | None:
    if descriptor is None:
        return None
    (generator_type,) = descriptor.argtypes
    return GeneratorCode(
        descriptor,
        descriptor.mangled_name,
        engine.address(descriptor.mangled_name),
        descriptor.llvm_finalizer_name if generator_type.has_finalizer else None,
    )


def _resolve_recursion(codegen: Any, library: WorldLibrary) -> None:
    """Bind calls of functions that were still being compiled to those functions, directly."""
    module = library._final_module
    wanted: dict[str, None] = {}
    while True:
        for variable in list(module.global_variables):
            if variable.name.startswith(UNRESOLVED) and variable.is_declaration:
                target = _defined_name(codegen, variable.name[len(UNRESOLVED) :])
                text = (
                    f'declare i32 @"{target}"(...)\n@"{variable.name}" = constant ptr @"{target}"\n'
                )
                name = variable.name
                module.link_in(parse_like(module, text))
                module.get_global_variable(name).linkage = "internal"
                wanted[target] = None
        declared = {one.name for one in module.functions if one.is_declaration}
        missing = [one for one in wanted if one in declared]
        if not missing:
            return
        for target in missing:
            provider = _provider(codegen, library, target)
            if provider is None:
                raise Refused(
                    f"a recursive call reaches {target!r}, which no function of this compile "
                    "defines; the cycle cannot be closed"
                )
            provider.link_into(module)


_FLAG_TAG = re.compile(r"(_ZN.*?B\d+v\d+)B(\d+)")


def _without_flags(symbol: str) -> tuple[str, str] | None:
    """Return what a mangled name says besides flags: function and counter, argument types."""
    found = _FLAG_TAG.match(symbol)
    return None if found is None else (found[1], symbol[found.end() + int(found[2]) :])


def _defined_name(codegen: Any, symbol: str) -> str:
    """Return the name under which a function that a recursive call means is defined.

    Numba mangles the name of a function that is not finished with the flags of its caller. The
    counter in the name says which function is meant; the flags are the function's own.
    """
    meant = _without_flags(symbol)
    if meant is None:
        return symbol
    for library in codegen.libraries:
        for function in library._final_module.functions:
            if not function.is_declaration and _without_flags(function.name) == meant:
                return str(function.name)
    return symbol


def _provider(codegen: Any, root: WorldLibrary, symbol: str) -> WorldLibrary | None:
    for library in codegen.libraries:
        if library is root:
            continue
        for function in library._final_module.functions:
            if function.name == symbol and not function.is_declaration:
                library._ensure_finalized()
                return library  # type: ignore[no-any-return]
    return None


def _resolve_externals(object_file: ObjectFile) -> dict[str, int]:
    """Find the address of every undefined symbol.

    Raises
    ------
    Refused
        Naming the symbols that this process does not have.
    """
    found, missing = {}, []
    for symbol in object_file.undefined:
        address = ll.address_of_symbol(symbol)
        if address is None:
            missing.append(symbol)
        else:
            found[symbol] = int(address)
    if missing:
        raise Refused(
            f"unresolved external symbol{'s' if len(missing) > 1 else ''} "
            f"{', '.join(missing)}: a call of it would crash. Load the library that defines it "
            "first (for example with llvmlite.binding.load_library_permanently)"
        )
    return found


def _linked(world: World, result: Any) -> list[Any]:
    """Return the Python functions whose libraries were linked into the root's."""
    owners = {
        id(compiled.library): one.py_func
        for one in world.dispatchers
        for compiled in one.overloads.values()
    }
    reached = {id(result.library): result.library}
    waiting = [result.library]
    for library in waiting:
        for linked in library._linking_libraries:
            if id(linked) not in reached and isinstance(linked, WorldLibrary):
                reached[id(linked)] = linked
                waiting.append(linked)
    functions = [owners[one] for one in reached if one in owners]
    return sorted(functions, key=lambda one: (one.__module__ or "", one.__qualname__))


def _image(closed: _Closed, engine: Engine, slots: list[Slot]) -> Image:
    """Find where the loader put the object."""
    exported = set(closed.entries)

    def address_of(symbol: str) -> int:
        if symbol in exported:
            return engine.address(symbol)
        return engine.data_address(symbol) if symbol in commons else 0

    commons = {one.name for one in closed.object_file.symbols if one.section == "common"}
    return replace(locate(closed.object_file, address_of), slots=tuple(slots))


def _has_own_pipeline(world: World) -> bool:
    return world.root._compiler.pipeline_class is not Compiler


def _load(
    job: CompileJob,
    world: World,
    result: Any,
    closed: _Closed,
    start: float,
    compiled: float,
) -> Built:
    """Bind the object's externals, load it, and make the Python entry point."""
    externals = _resolve_externals(closed.object_file)
    module = closed.library._final_module
    engine = Engine(module.triple, module.data_layout, closed.object_code)
    environments = [closed.environment]
    by_symbol = {result.fndesc.env_name: closed.environment}
    slots = []
    defined = {one.name for one in closed.object_file.symbols}
    for variable in module.global_variables:
        name = variable.name
        if name.startswith(ENVIRONMENT_PREFIX) and name in defined:
            environment = lookup_environment(name)
            if environment is None:
                raise Refused(f"the environment {name!r} of a callee is gone")
            address = engine.data_address(name)
            ctypes.c_void_p.from_address(address).value = id(environment)
            slots.append(Slot(name, address, id(environment)))
            environments.append(environment)
            by_symbol[name] = environment
    descriptor = result.fndesc
    reason = None if closed.generator is None else "a generator may run in it"
    needed = (tuple(environments), tuple(world.pinned.values()))
    lifetime = Lifetime(engine, needed, reason or reason_to_keep(closed.listing))
    entry_point = _dynfunc.make_function(
        descriptor.lookup_module(),
        descriptor.qualname.split(".")[-1],
        f"checked artifact of {descriptor.qualname!r}",
        engine.address(descriptor.llvm_cpython_wrapper_name),
        closed.environment,
        lifetime.held,
    )
    c_entries = closed.c_entries
    linked = _linked(world, result)
    sources = compiled_functions(job.function, linked, job.argument_types)
    addresses = {one: engine.address(one) for one in closed.entries}
    library = ClosedLibrary(
        closed.library.name, zlib.compress(closed.listing.encode(), 1), addresses, lifetime
    )
    signature = typing.signature(result.signature.return_type, *result.signature.args)
    artifact = Artifact(
        job=job,
        configuration=Configuration.current(),
        result=result._replace(
            entry_point=entry_point,
            library=library,
            environment=closed.environment,
            type_annotation=None,
            signature=signature,
            call_helper=None,
            # A world is dropped when its job is done; whoever asks gets the user's contexts.
            typing_context=isolation.global_typing_context(),
            target_context=isolation.global_target_context(),
            # Numba's own is large and serves nobody; that of a user's pipeline may be asked for.
            metadata=result.metadata if _has_own_pipeline(world) else {},
            reload_init=(),
        ),
        symbol=descriptor.mangled_name,
        c_symbol=None if c_entries is None else c_entries.value,
        address=engine.address(descriptor.mangled_name),
        c_address=None if c_entries is None else engine.address(c_entries.value),
        digest=closed.object_file.digest,
        externals=externals,
        rounds=1,
        object_code=zlib.compress(closed.object_code, 1),
        lifetime=lifetime,
        generator=_generator_code(closed.generator, engine),
        c_entries=c_entries,
        status_address=None if c_entries is None else engine.address(c_entries.status),
        last_status_address=None if c_entries is None else engine.address(c_entries.last_status),
        direct=c_entries is not None and c_entries.inlined and closed.returns,
        image=_image(closed, engine, slots),
        sources=sources,
        captures=captures(sources),
    )
    loaded = time.perf_counter()
    return Built(
        artifact=artifact,
        listing=closed.listing,
        object_file=closed.object_file,
        assumed_symbols=world.assumed_symbols(result),
        annotations=world.annotations(result),
        timings={"compile": compiled - start, "close": loaded - compiled},
        embedded=Embedded(
            environments=by_symbol,
            reloads=bool(result.reload_init or closed.library._reload_init),
            linked=tuple(linked),
        ),
    )

"""A world: one hermetic compile, with a counterpart of its own for everything that remembers.

A world owns contexts and a code generator and meets the user's dispatchers and ufuncs only to make
counterparts of them. It is used for one job and dropped. Nothing that happened before in the
process can change what it yields.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from alloccheck.compile import isolation
from alloccheck.compile.captures import ASSUMPTION_ATTRIBUTE, plain_functions
from alloccheck.compile.contexts import (
    WorldContext,
    WorldLibrary,
    WorldTypingContext,
    runtime_library,
)
from alloccheck.compile.disjoint import base_pipeline
from alloccheck.compile.interrupts import safe_point
from alloccheck.compile.isolation import TARGET, HermeticCPU, hermetic_target, inherited_flags
from alloccheck.compile.job import CompileJob
from alloccheck.compile.origin import is_of_libraries, is_trusted_module
from alloccheck.compile.recursion import NothingKnown, RoundRecursion
from alloccheck.compile.sources import Source
from alloccheck.errors import InterpreterRefused, Refused

# isort: split
from numba.core import dispatcher, errors, funcdesc, registry, sigutils, types, typing
from numba.core import target_extension as te
from numba.core.ccallback import CFunc
from numba.core.compiler import Compiler
from numba.core.compiler import Flags as CompilerFlags
from numba.core.cpu_options import ParallelOptions
from numba.core.decorators import jit
from numba.core.runtime import rtsys
from numba.core.typing import templates
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc
from numba.np.ufunc.ufuncbuilder import UFuncDispatcher
from numba.stencils.stencil import StencilFunc

Flags = tuple[tuple[str, str], ...]


Identity = tuple[Any, ...]
"""What tells the counterparts of a dispatcher apart: function, options, declarations, flags."""


_COPIED = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Types whose values are written into the code and not referred to by it."""


class FunctionVariants:
    """Distinct Python functions for the variants of one function, stable over all rounds.

    Numba's call stack knows functions by identity, so two variants of one function that differ in
    options or inherited flags must be two functions.
    """

    def __init__(self) -> None:
        self._functions: dict[Identity, Any] = {}
        self._seen: dict[int, Any] = {}

    def of(self, function: Any, identity: Identity) -> Any:
        """Return the function that stands for `function` in the variant `identity`."""
        if identity not in self._functions:
            first = id(function) not in self._seen
            self._seen[id(function)] = function
            self._functions[identity] = function if first else _copy_function(function)
        return self._functions[identity]


def _identity(original: Any) -> Identity:
    """Return what makes a dispatcher's counterpart different from others of its function.

    Inherited flags come on top. Two dispatchers of one function with equal options are one in a
    world: decorating a recursive function once more must not split it from itself.
    """
    declared = _declared_signatures(original)
    return (
        *_question(original.py_func, original.targetoptions, original.locals),
        original._compiler.pipeline_class,
        None if declared is None else tuple(map(str, declared)),
    )


def _plain_options(job: CompileJob) -> dict[str, Any]:
    return {"nopython": True, "boundscheck": None, **job.options}


def _callback_options(original: CFunc) -> dict[str, Any]:
    own = {k: v for k, v in original._compiler.targetoptions.items() if k != "cache"}
    return {**own, "nopython": True, "boundscheck": own.get("boundscheck")}


def _question(function: Any, options: Any, declared_locals: Any) -> Identity:
    return (
        id(function),
        repr(sorted((name, repr(one)) for name, one in options.items() if name != "cache")),
        repr(sorted((name, str(one)) for name, one in declared_locals.items())),
    )


class _WorldFunctionCompiler(dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiles the native function only: wrappers belong to the artifact's entry."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        return flags


class _UnfinishedEntry:
    """Stands for the entry point of a function that is still being inferred."""

    def __init__(self, identity: Any) -> None:
        self._identity = identity

    def call(self, context: Any, builder: Any, sig: Any, args: Any) -> Any:
        """Lower a call of the function by its name, as Numba does for recursion."""
        identity = self._identity
        name = context.mangler(
            funcdesc.qualifying_prefix(identity.modname, identity.func_qualname),
            sig.args,
            abi_tags=context.fndesc.abi_tags,
            uid=identity.unique_id,
        )
        return context.call_unresolved(builder, name, sig, args)


class WorldDispatcher(dispatcher.Dispatcher):  # type: ignore[misc]
    """A dispatcher inside a world. Never handed to users.

    Parameters
    ----------
    py_func, locals, targetoptions, pipeline_class
        As in Numba.
    """

    targetdescr = hermetic_target

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: Any = None,
    ) -> None:
        world = isolation.current_world()
        assert world is not None, "a world dispatcher is made inside a world only"
        arguments = {} if pipeline_class is None else {"pipeline_class": pipeline_class}
        self.world = world
        self.declared: tuple[Any, ...] | None = None
        self._unfinished: dict[tuple[Any, ...], _UnfinishedEntry] = {}
        self._compiling: set[tuple[Any, ...]] = set()
        self._returning: dict[Any, WorldDispatcher] = {}
        own = _own_options(targetoptions)
        super().__init__(py_func, locals=locals, targetoptions=own, **arguments)
        plain: Any = self._compiler
        self._compiler: Any = _WorldFunctionCompiler(
            plain.py_func,
            plain.targetdescr,
            plain.targetoptions,
            plain.locals,
            plain.pipeline_class,
        )
        # `functools.update_wrapper` copies attributes; the mark must not be lost with a copy.
        self.assumption = getattr(py_func, ASSUMPTION_ATTRIBUTE, None)
        world.dispatchers.append(self)

    def _make_finalizer(self) -> Callable[[], None]:
        # The base class would remove our functions from a context that outlives nothing.
        return _nothing

    def compile(self, sig: Any) -> Any:
        safe_point()
        arguments = tuple(sigutils.normalize_signature(sig)[0])
        outermost = arguments not in self._compiling
        self._compiling.add(arguments)
        try:
            with isolation.own_location(), self._flags_of_caller():
                return super().compile(sig)
        finally:
            if outermost:
                self._compiling.discard(arguments)

    def _flags_of_caller(self) -> AbstractContextManager[None]:
        """Inherit the flags of who needs it, unless it was compiled where it was declared."""
        return nullcontext() if self.declared is None else isolation.no_inherited_flags()

    def get_function_type(self) -> Any:
        """Return the type of this function as a value, None unless one signature is declared."""
        if self.declared is None or len(self.declared) != 1:
            return None
        (declared,) = self.declared
        if declared.return_type is not types.undefined:
            return types.FunctionType(declared)
        arguments = tuple(declared.args)
        frame = self.typingctx.callstack.match(self.py_func, arguments)
        if frame is not None:
            return types.FunctionType(self._recursive_signature(frame, arguments))
        self.compile(arguments)
        return types.FunctionType(self.overloads[arguments].signature)

    def get_compile_result(self, sig: Any) -> Any:
        return self.pointee(sig)

    def pointee(self, signature: Any) -> Any:
        """Return the compiled function that a first-class function of a signature points to.

        Numba keeps it where calls find theirs, so that a forced return type and an inferred one
        exclude each other, whichever was first. Here they are two.

        Parameters
        ----------
        signature : Signature
            Argument types and return type, exactly.

        Returns
        -------
        CompileResult

        Raises
        ------
        TypingError
            When the function cannot have the signature.
        """
        arguments = tuple(signature.args)
        if arguments in self._compiling:
            raise errors.TypingError(
                f"{self.py_func.__qualname__} is used as a value of the type "
                f"{types.FunctionType(signature)} in its own definition"
            )
        question: Any = arguments
        if self.declared is not None:
            matching = [one for one in self.declared if tuple(one.args) == arguments]
            if not matching:
                raise errors.TypingError(f"{signature} not available and compilation disabled")
            if matching[0].return_type is not types.undefined:
                question = matching[0]
        try:
            self.compile(question)
        except NotImplementedError as error:
            # Numba's word for some recursion, which it would take for a constant it cannot lower.
            raise errors.TypingError(
                f"{self.py_func.__qualname__} cannot be a value here: {error}"
            ) from error
        natural = self.overloads[arguments]
        wanted = signature.return_type
        if wanted is None or natural.signature.return_type == wanted:
            return natural
        if self.declared is not None:
            raise errors.TypingError(
                f"{self.py_func.__qualname__} returns {natural.signature.return_type} for "
                f"{arguments}, and {wanted} is needed"
            )
        return self._forced(signature)

    def _forced(self, signature: Any) -> Any:
        """Compile with a return type that is not the inferred one, apart from all other results."""
        arguments, wanted = tuple(signature.args), signature.return_type
        apart = self._returning.get(wanted)
        if apart is None:
            apart = self._returning[wanted] = self.world.returning(self, wanted)
        apart.compile(typing.signature(wanted, *arguments))
        return apart.overloads[arguments]

    def enable_caching(self) -> None:
        """Ignore: a world never reads or writes a disk cache."""

    def add_overload(self, cres: Any) -> None:
        # Keep the table only: there is no machine code to hand to the C dispatcher.
        self.overloads[tuple(cres.signature.args)] = cres
        if self.assumption is not None:
            symbol = cres.fndesc.llvm_func_name
            cres.library._ensure_finalized()
            cres.library.get_function(symbol).add_function_attribute("noinline")
            self.world.note_assumption(symbol, cres.library, self.assumption)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        pysig, folded = self._compiler.fold_argument_types(args, kws)
        frame = self.typingctx.callstack.match(self.py_func, tuple(folded))
        if frame is not None:
            # A call of itself on a way that Numba does not take for recursion: as a method.
            return (
                self._template([self._recursive_signature(frame, tuple(folded))]),
                pysig,
                folded,
                {},
            )
        if self.declared is None:
            return super().get_call_template(args, kws)
        # Signatures were declared by the user: select among all, compile only the selected one.
        chosen = self.typingctx.resolve_overload(
            self.py_func, list(self.declared), tuple(folded), {}, allow_ambiguous=True
        )
        signatures = list(self.declared)
        if chosen is not None:
            for declared in self.declared:
                if declared.args == chosen.args:
                    inferred = declared.return_type is types.undefined
                    self.compile(tuple(declared.args) if inferred else declared)
                    signatures = [self.overloads[tuple(declared.args)].signature]
                    break
        return self._template(signatures), pysig, folded, {}

    def _template(self, signatures: list[Any]) -> Any:
        name = self.py_func.__name__
        return typing.make_concrete_template(
            f"CallTemplate({name})", key=name, signatures=signatures
        )

    def _recursive_signature(self, frame: Any, arguments: tuple[Any, ...]) -> Any:
        return_type = frame.typeinfer.return_types_from_partial()
        if return_type is None:
            # While a partial type is being found, this one is not known to be bottom.
            kind = errors.TypingError if self.world.recursion.looking else NothingKnown
            raise kind("cannot type infer runaway recursion")
        self._unfinished[arguments] = _UnfinishedEntry(frame.func_id)
        return typing.signature(return_type, *arguments)

    def get_overload(self, sig: Any) -> Any:
        arguments, _ = sigutils.normalize_signature(sig)
        unfinished = self._unfinished.get(tuple(arguments))
        if tuple(arguments) in self.overloads or unfinished is None:
            return super().get_overload(sig)
        self.targetctx._defns[unfinished].append(unfinished.call, tuple(arguments))
        return unfinished


def _nothing() -> None:
    """Do nothing."""


def _world_jit(*args: Any, **options: Any) -> Any:
    """Stand for ``jit`` where overload implementations are compiled."""
    options.pop("_target", None)
    options.pop("cache", None)
    return jit(*args, _target=TARGET, **options)


def install() -> None:
    """Register the target's dispatcher and decorator with Numba, once per process."""
    isolation.install()
    if HermeticCPU not in te.jit_registry:
        te.dispatcher_registry[HermeticCPU] = WorldDispatcher
        te.jit_registry[HermeticCPU] = _world_jit


class World:
    """The contexts and counterparts of one hermetic compile.

    Parameters
    ----------
    recursion : RoundRecursion
        Answers for functions that are still being inferred.
    variants : FunctionVariants
        Shared by the rounds of one job.
    """

    def __init__(self, recursion: RoundRecursion, variants: FunctionVariants) -> None:
        install()
        self.memory = isolation.WorldMemory()
        self.recursion = recursion
        self._variants = variants
        self.dispatchers: list[WorldDispatcher] = []
        self._assumed: dict[str, tuple[Any, Any]] = {}
        self.pinned: dict[int, Any] = {}
        self.refusal: Refused | None = None
        self._identities: dict[int, tuple[Any, Identity]] = {}
        # Not the originals: a kept world must not keep users' dispatchers. `FunctionVariants` keeps
        # their functions, whose identity is in the key.
        self._clones: dict[Identity, WorldDispatcher] = {}
        self._counterparts: dict[tuple[int, Flags], tuple[Any, Any]] = {}
        self._copies: dict[int, Any] = {}
        self._classes: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._constants: dict[int, Any] = {}
        self._module_attributes: dict[tuple[int, str], tuple[Any, str]] = {}
        self.transformed = False
        """Whether code of somebody else's took part that may look at anything, such as a pass."""
        self.root: WorldDispatcher
        """Counterpart of the function that the present job is about."""
        self._root: tuple[Any, WorldDispatcher] | None = None
        self._declared_return: tuple[Identity, Any] | None = None
        self.typing_context: WorldTypingContext
        self.target_context: WorldContext

    @contextmanager
    def active(self) -> Iterator[World]:
        """Enter the world: the calling thread compiles in it until the block ends."""
        with isolation.isolated(self):
            if not hasattr(self, "target_context"):
                self.typing_context = WorldTypingContext(self)
                self.target_context = WorldContext(self)
                # The process's library is compiled as Numba would, in the user's context: in a
                # world's, it would keep that world, and serve the user without an address.
                rtsys.initialize(isolation.global_target_context())
                self.target_context.codegen().runtime = runtime_library(self.target_context)
                self.target_context.refresh()
            yield self

    def restart(self, recursion: RoundRecursion) -> None:
        """Prepare a kept world for its next job."""
        self.recursion = recursion
        self.typing_context.follow(recursion)
        self._identities.clear()

    def rest(self) -> None:
        """Let go of what the last job needed: modules in memory, and its caller's frames.

        Numba remembers errors of candidates that did not fit. Their tracebacks would keep the
        frames of whoever called, and all values in them, as long as the world is kept.
        """
        for one in self.dispatchers:
            for error in one._compiler._failed_cache.values():
                _forget_traceback(error)
            for result in one.overloads.values():
                # A tenth of what a kept function holds, and nobody asks a kept one for it.
                result.metadata.pop("pipeline_times", None)
        for library in self.target_context.codegen().libraries:
            library.pack()
        self._identities.clear()

    def declarations(self) -> tuple[int, ...]:
        """Return a key that changes when overloads or lowerings are registered with Numba."""
        return self.target_context.declarations()

    def sources(self) -> Iterator[Source]:
        """Yield all that could be changed by a user and that this world's code was made of.

        Python functions that are not Numba's own: those compiled here, kernels of ufuncs, and
        those that chose an overload's implementation. The types of jitclasses, objects that
        extensions made constants of, and what was read of modules.
        """
        for one in self.dispatchers:
            if is_of_libraries(one.py_func):
                continue
            # One that is inlined has no overloads, but what it calls may have changed as well.
            yield from map(Source, plain_functions(one.py_func))
            for result in one.overloads.values():
                if id(result) not in self._classes:
                    self._classes[id(result)] = (result, _class_types(result))
                yield from map(Source, self._classes[id(result)][1])
        for original, _ in self._counterparts.values():
            if isinstance(original, DUFunc):
                yield Source(original._dispatcher.py_func)
            elif isinstance(original, GUFunc):
                yield Source(original.gufunc_builder.py_func)
        for chooser in self.choosers():
            yield from map(Source, plain_functions(chooser))
        for value in self._constants.values():
            yield Source(value, "constant")
        for module, name in self._module_attributes.values():
            yield Source(module, "attribute", name)

    def choosers(self) -> Iterator[Any]:
        """Yield the functions of the user's that chose implementations of overloads here."""
        for template, _ in self.memory.class_dicts:
            for name in ("_overload_func", "_definition_func"):
                chooser = getattr(template, name, None)
                if isinstance(chooser, python_types.FunctionType) and not is_of_libraries(chooser):
                    yield chooser

    def types_met(self) -> Iterator[Any]:
        """Yield the types of arguments and results of what was compiled here."""
        for one in self.dispatchers:
            for result in one.overloads.values():
                yield from result.signature.args
                yield result.signature.return_type

    def note_constant(self, value: Any) -> None:
        """Remember an object that an extension of Numba's may turn into a constant."""
        if not is_trusted_module(str(type(value).__module__)):
            self._constants[id(value)] = value

    def note_module_attribute(self, module: Any, name: str) -> None:
        """Remember that something was read of a module, under whatever name it was reached."""
        if not is_trusted_module(module.__name__):
            self._module_attributes[id(module), name] = (module, name)
            # What a module makes up when it is asked can be another thing the next time.
            self.transformed |= name not in vars(module)

    # --- counterparts -------------------------------------------------------------------------

    def clone(self, original: Any) -> Any:
        """Return this world's counterpart of a dispatcher, for the flags inherited now.

        Parameters
        ----------
        original : dispatcher
            The user's, or one of this world (returned as it is).

        Raises
        ------
        Refused
            For lifted code and dispatchers of other targets.
        """
        if isinstance(original, WorldDispatcher):
            return original
        if isinstance(original, dispatcher.LiftedWith) and not isinstance(
            original, dispatcher.ObjModeLiftedWith
        ):
            self.refuse(
                "the body of a `with` block is lifted out as a function of its own, which is "
                "compiled at its first call. Make it a function and call that instead."
            )
        if isinstance(original, dispatcher.LiftedCode):
            self.refuse(
                "an `objmode` block runs in the interpreter: it takes the GIL and allocates "
                "Python objects, so nothing can be proved about it. Move that work out of the "
                "checked function.",
                InterpreterRefused,
            )
        if isinstance(original, UFuncDispatcher):
            return original
        if not isinstance(original, registry.CPUDispatcher):
            self.refuse(
                f"{type(original).__module__}.{type(original).__qualname__} is not a CPU "
                f"dispatcher; {getattr(original, '__name__', original)!r} cannot be compiled here"
            )
        known = self._identities.get(id(original))
        if known is None:
            known = self._identities[id(original)] = (original, _identity(original))
        self._note_pipeline(original._compiler.pipeline_class)
        # Where it was declared with types it was compiled at once, before any caller.
        closed = known[1][-1] is not None
        key = self._key(known[1], None if closed else original.targetoptions)
        found = self._clones.get(key)
        if found is None:
            found = self._dispatcher_like(original, self._variants.of(original.py_func, key))
            # Declared before it is compiled: a cycle must find it.
            self._clones[key] = found
        return found

    def _note_pipeline(self, pipeline: Any) -> None:
        if base_pipeline(pipeline) not in (None, Compiler):
            self.transformed = True

    def _dispatcher_like(self, original: Any, function: Any) -> WorldDispatcher:
        options = {k: v for k, v in original.targetoptions.items() if k != "cache"}
        copy = WorldDispatcher(
            function,
            locals=original.locals,
            targetoptions=options,
            pipeline_class=original._compiler.pipeline_class,
        )
        copy.declared = _declared_signatures(original)
        return copy

    def callback(self, original: CFunc) -> Any:
        """Return this world's compile of the function behind a C callback.

        Parameters
        ----------
        original : CFunc
            The user's. Its decorator compiled it for itself, with no flags of a caller's.

        Returns
        -------
        CompileResult
            With the signature that was declared.
        """
        function, options = original._pyfunc, _callback_options(original)
        compiler, declared = original._compiler, original._sig
        self._note_pipeline(compiler.pipeline_class)
        identity = (
            *_question(function, options, compiler.locals),
            compiler.pipeline_class,
            (str(declared),),
        )
        with isolation.no_inherited_flags():
            key = self._key(identity, options)
            found = self._clones.get(key)
            if found is None:
                found = self._clones[key] = WorldDispatcher(
                    self._variants.of(function, key),
                    locals=compiler.locals,
                    targetoptions=options,
                    pipeline_class=compiler.pipeline_class,
                )
                found.declared = (declared,)
            return found.pointee(declared)

    def returning(self, counterpart: WorldDispatcher, wanted: Any) -> WorldDispatcher:
        """Return another counterpart of the same function, to be compiled with a return type."""
        function = counterpart.py_func
        # A function known already, so that this one is told apart from it by identity.
        self._variants.of(function, (id(function), "itself"))
        return WorldDispatcher(
            self._variants.of(function, (id(function), "returning", wanted)),
            locals=counterpart.locals,
            targetoptions=counterpart.targetoptions,
            pipeline_class=counterpart._compiler.pipeline_class,
        )

    def _key(self, identity: Identity, options: Mapping[str, Any] | None) -> Identity:
        """Return what a counterpart is kept under; no options: it inherits no flags."""
        key = (*identity, () if options is None else self._effective_flags(options))
        if self._declared_return is not None and identity == self._declared_return[0]:
            # Numba keeps results by argument types alone; with another return type it is
            # another question.
            return (*key, self._declared_return[1])
        return key

    def _effective_flags(self, options: Mapping[str, Any]) -> Flags:
        """Return the inherited flags that matter: those which the callee does not set itself."""
        own = {"nrt" if name == "_nrt" else name for name in options}
        return tuple(flag for flag in inherited_flags() if flag[0] not in own)

    def counterpart(self, value: Any) -> Any:
        """Return this world's counterpart of a ufunc or stencil, or `value` itself.

        Parameters
        ----------
        value : object
            A global, closure variable or module attribute that inference met.
        """
        if self._root is not None and value is self._root[0]:
            return self._root[1]
        if not isinstance(value, DUFunc | GUFunc | StencilFunc):
            return value
        if id(value) in self._copies:
            return value
        # Kernels inherit flags as callees do, unless they were compiled where they were declared.
        key = (id(value), () if _is_closed(value) else inherited_flags())
        found = self._counterparts.get(key)
        if found is None:
            copy = self._copy_ufunc(value)
            self._counterparts[key] = found = (value, copy)
            self._copies[id(copy)] = copy
        return found[1]

    def _copy_ufunc(self, original: Any) -> Any:
        """Return a ufunc or stencil of this world, with the original's declarations."""
        if not isinstance(original, DUFunc):
            return _copy_other(original)
        kernel = original._dispatcher
        identity = original.identity
        if identity is None and original.reorderable:
            identity = "reorderable"
        with self._declaring_here():
            copy = DUFunc(
                kernel.py_func,
                identity=identity,
                targetoptions={k: v for k, v in kernel.targetoptions.items() if k != "cache"},
            )
        if original._frozen:
            with isolation.no_inherited_flags():
                for cres in kernel.overloads.values():
                    copy.add(cres.signature)
            copy.disable_compile()
        return copy

    @contextmanager
    def _declaring_here(self) -> Iterator[None]:
        """Keep what is registered in the block to this world, which knows it at once.

        A ufunc registers overloads of its own, for its attributes and methods.
        """
        shared, own = templates.builtin_registry, templates.Registry()
        items = templates.RegistryLoader.registry_items
        before = {name: len(getattr(shared, name)) for name in items}
        try:
            yield
        finally:
            for name, length in before.items():
                listed = getattr(shared, name)
                getattr(own, name).extend(listed[length:])
                del listed[length:]
        self.typing_context.install_registry(own)

    # --- what a compile leaves ------------------------------------------------------------------

    def pin(self, value: Any) -> None:
        """Keep a captured value alive as long as the world's code may refer to it."""
        if type(value) not in _COPIED:
            self.pinned[id(value)] = value

    def refuse(self, message: str, kind: type[Refused] = Refused) -> None:
        """Remember and raise a refusal, which Numba may otherwise rewrap.

        Raises
        ------
        Refused
            Always.
        """
        self.refusal = kind(message)
        raise self.refusal

    def compile(self, job: CompileJob) -> Any:
        """Compile a job's function and callees; call inside `active`.

        Parameters
        ----------
        job : CompileJob
            The question.

        Returns
        -------
        CompileResult
            Numba's, whose library is not finalised yet.
        """
        self._root = None
        self._declared_return = None
        if job.return_type is not None:
            self._declared_return = (self._root_identity(job), job.return_type)
        if job.dispatcher is not None:
            root = self.clone(job.dispatcher)
        else:
            root = self._plain_root(job)
            self._root = (job.function, root)
        self.root = root
        arguments = tuple(job.argument_types)
        signature = (
            arguments if job.return_type is None else typing.signature(job.return_type, *arguments)
        )
        try:
            root.compile(signature)
        except Exception:
            if self.refusal is not None:
                raise self.refusal from None
            raise
        normalized, _ = sigutils.normalize_signature(signature)
        return root.overloads[tuple(normalized)]

    def dispose(self) -> None:
        """Let go of what the garbage collector cannot: a ufunc's C part hides its references."""
        for copy in self._copies.values():
            if isinstance(copy, DUFunc):
                copy._dispatcher.overloads.clear()
                vars(copy._dispatcher).clear()
            vars(copy).clear()
        self._copies.clear()
        self._counterparts.clear()

    def _plain_root(self, job: CompileJob) -> WorldDispatcher:
        """Return the counterpart of a function that has no dispatcher: as if ``njit`` made one."""
        self._note_pipeline(job.pipeline_class)
        options = _plain_options(job)
        key = self._key(self._root_identity(job), options)
        found = self._clones.get(key)
        if found is None:
            found = self._clones[key] = WorldDispatcher(
                self._variants.of(job.function, key),
                locals=dict(job.locals),
                targetoptions=options,
                pipeline_class=job.pipeline_class,
            )
        return found

    def root_flags(self) -> Any:
        """Return the compile flags of the present job's function."""
        compiler = self.root._compiler
        flags = CompilerFlags()
        compiler.targetdescr.options.parse_as_flags(flags, compiler.targetoptions)
        return compiler._customize_flags(flags)

    def _root_identity(self, job: CompileJob) -> Identity:
        if job.dispatcher is not None:
            return _identity(job.dispatcher)
        question = _question(job.function, _plain_options(job), job.locals)
        return (*question, job.pipeline_class or Compiler, None)

    def note_assumption(self, symbol: str, library: Any, mark: Any) -> None:
        """Remember that the function `symbol`, defined in `library`, is trusted by the user."""
        self._assumed[symbol] = (library, mark)

    def assumed_symbols(self, result: Any) -> dict[str, Any]:
        """Return the trusted functions that a result links, by symbol."""
        linked = _linked(result.library)
        return {
            symbol: mark
            for symbol, (library, mark) in self._assumed.items()
            if id(library) in linked
        }

    def annotations(self, result: Any) -> tuple[Any, ...]:
        """Return Numba's type annotations of the user's functions that a result links."""
        linked = _linked(result.library)
        return tuple(
            cres.type_annotation
            for one in self.dispatchers
            if not is_of_libraries(one.py_func)
            for cres in one.overloads.values()
            if cres.type_annotation is not None and id(cres.library) in linked
        )


def _class_types(result: Any) -> tuple[Any, ...]:
    """Return the types of the jitclasses whose instances a compiled function handles."""
    annotation = result.type_annotation
    found = {} if annotation is None else annotation.typemap
    return tuple(
        dict.fromkeys(
            one.class_type for one in found.values() if isinstance(one, types.ClassInstanceType)
        )
    )


def _forget_traceback(error: BaseException | None) -> None:
    """Drop the frames that an error, and those that led to it, hold on to."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        _forget_traceback(error.__cause__)
        error = error.__context__


def _linked(library: Any) -> set[int]:
    """Return the identities of a library and of all that it links, directly or not."""
    found: set[int] = set()
    pending = [library]
    while pending:
        one = pending.pop()
        if id(one) not in found:
            found.add(id(one))
            pending.extend(one._linking_libraries)
    return found


def _declared_signatures(original: Any) -> tuple[Any, ...] | None:
    """Return the signatures that a user allowed for a dispatcher, or None for any.

    A return type that was not declared is ``undefined``: it is inferred when it is needed.
    """
    if not original._can_compile:
        return tuple(cres.signature for cres in original.overloads.values())
    waiting = getattr(original, "declared_signatures", ())
    if not waiting:
        return None
    found = []
    for one in waiting:
        arguments, return_type = sigutils.normalize_signature(one)
        found.append(typing.signature(return_type or types.undefined, *arguments))
    return tuple(found)


def _copy_function(function: Any) -> Any:
    """Return a function equal to `function` but distinct, so that variants never meet."""
    copy = python_types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    return copy


def _is_closed(original: Any) -> bool:
    """Tell whether a ufunc was compiled where it was declared; stencils take no flags at all."""
    if isinstance(original, StencilFunc):
        return True
    return bool(original._frozen or (isinstance(original, GUFunc) and not original._is_dynamic))


def _own_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options whose compile leaves those of the user's as they are.

    Numba takes items out of a dictionary of parallel options when it reads it, so that the next
    compile does without them.
    """
    own = dict(options or {})
    if isinstance(own.get("parallel"), dict):
        own["parallel"] = ParallelOptions(dict(own["parallel"]))
    return own


def _copy_other(original: Any) -> Any:
    """Return a generalised ufunc or stencil of the current world, declared as the original is."""
    if isinstance(original, GUFunc):
        builder = original.gufunc_builder
        copy = GUFunc(
            builder.py_func,
            builder.signature,
            identity=original._identity,
            is_dynamic=original._is_dynamic,
            targetoptions=dict(builder.targetoptions),
            writable_args=builder.writable_args,
        )
        if _is_closed(original):
            with isolation.no_inherited_flags():
                for signature in builder._sigs:
                    copy.add(signature)
        copy.build_ufunc()
        copy._frozen = original._frozen
        return copy
    copy = StencilFunc(original.kernel_ir.copy(), original.mode, dict(original.options))
    copy.kws = list(original.kws)
    return copy


__all__ = ["ASSUMPTION_ATTRIBUTE", "World", "WorldDispatcher", "WorldLibrary", "install"]

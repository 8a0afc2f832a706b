"""The dispatcher that users call: it compiles hermetically, proves, and runs what was proved.

A `CheckedDispatcher` is Numba's CPU dispatcher with another way to compile. Calls from Python go
through Numba's C fast path into the artifact; calls from jitted code that is not checked go to the
artifact by address; checked callers inline the function into their own artifact and check it again
there.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import alloccheck
from alloccheck.binding import Bound
from alloccheck.compile.disjoint import base_pipeline, disjoint_names, disjoint_pipeline
from alloccheck.compile.entry import value_entry_type
from alloccheck.compile.interrupts import COMPILER_LOCK
from alloccheck.compile.job import (
    CompileJob,
    Configuration,
    checked_options,
    parse_signature,
    require_jit_enabled,
)
from alloccheck.compile.loaded import Artifact, GeneratorCode
from alloccheck.compile.target import fold_types, types_of_call
from alloccheck.errors import AllocCheckError, Refused, UsageError, VerificationError
from alloccheck.policy import Policy
from alloccheck.storage import Storage, Stored
from alloccheck.verification import verify

# isort: split
import numba
from numba.core import cgutils, event, imputils, registry, sigutils, typeinfer, types, typing
from numba.core.errors import ForceLiteralArg

if TYPE_CHECKING:
    from alloccheck.compile.artifact import Built
    from alloccheck.findings import Report

OnFailure = Literal["raise", "warn", "report"]

_deferred: ContextVar[bool] = ContextVar("alloccheck_deferred_proofs", default=False)


class AllocCheckWarning(UserWarning):
    """A guarantee could not be proved, and the function runs all the same."""


@contextmanager
def deferred_proofs() -> Iterator[None]:
    """Record the signatures of eager decorators without proving them.

    For tools that import a module and then check it as a whole.
    """
    token = _deferred.set(True)
    try:
        yield
    finally:
        _deferred.reset(token)


class CheckedDispatcher(Bound, registry.CPUDispatcher):  # type: ignore[misc]
    """A function that was, or will be, proved before it runs.

    Made by :func:`alloccheck.check_allocs`, :func:`alloccheck.nonblocking` and
    :func:`alloccheck.hermetic`.

    Parameters
    ----------
    py_func : Callable
        The Python function.
    locals, targetoptions
        As in Numba; `targetoptions` passes through to it.
    policy : Policy or None
        What to prove; None compiles hermetically without a check.
    on_failure : {"raise", "warn", "report"}
        What to do when the guarantee cannot be proved.
    value_on_raise : int or float, optional
        What the C entry at `address` returns when the function raised.
    pipeline_class : type, optional
        Numba's, for compiler passes of one's own.
    storage : Storage or None
        Where proved artifacts are kept for other processes.
    """

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: Any = None,
        targetoptions: Any = None,
        *,
        policy: Policy | None = None,
        on_failure: OnFailure = "raise",
        value_on_raise: int | float | None = None,
        pipeline_class: Any = None,
        storage: Storage | None = None,
    ) -> None:
        self.policy = policy
        self._storage = storage
        self._stored: dict[tuple[Any, ...], Stored] = {}
        self.value_on_raise = value_on_raise
        self.on_failure: OnFailure = on_failure
        self.declared_signatures: tuple[Any, ...] = ()
        self._sealed = False
        self._artifacts: dict[tuple[Any, ...], Artifact] = {}
        self._offered: list[Any] = []
        self._replaced: list[Any] = []
        self._reports: dict[tuple[Any, ...], Report] = {}
        pipeline = {} if pipeline_class is None else {"pipeline_class": pipeline_class}
        super().__init__(py_func, locals=locals, targetoptions=targetoptions, **pipeline)

    # --- what was asked and found ---------------------------------------------------------------

    @property
    def guarantee(self) -> Any:
        """The guarantee asked for; None on a hermetic function."""
        return None if self.policy is None else self.policy.guarantee

    @property
    def ignore_throw(self) -> bool:
        """Whether paths that end by raising are left out."""
        return True if self.policy is None else self.policy.ignore_throw

    @property
    def reports(self) -> Mapping[tuple[Any, ...], Report]:
        """The report of each argument-type tuple that was checked, also the failed ones."""
        return MappingProxyType(self._reports)

    @property
    def stored(self) -> Mapping[tuple[Any, ...], Stored]:
        """What the artifact store did for each argument-type tuple, and why; empty without one."""
        return MappingProxyType(self._stored)

    # --- compiling ------------------------------------------------------------------------------

    def _make_finalizer(self) -> Callable[[], None]:
        """Return what is done when the dispatcher is gone.

        It must not refer to what the dispatcher's code refers to, which may be the dispatcher:
        hence not to all overloads, as Numba's does, but to those that jitted code has asked for.
        """
        offered, context = self._offered, self.targetctx

        def finalizer(shutting_down: Callable[[], bool] = sys.is_finalizing) -> None:
            if not shutting_down():
                for entry in offered:
                    context._defns.pop(entry, None)
                offered.clear()

        return finalizer

    def _reset_overloads(self) -> None:
        # Another thread, or a caller further up in this one, may be in the code that is replaced.
        self._replaced += [one.entry_point for one in self.overloads.values()]
        super()._reset_overloads()

    def get_overload(self, sig: Any) -> Any:
        """Return the entry point of a signature, for jitted code to call.

        Parameters
        ----------
        sig : tuple of types, or signature
            As Numba takes it.
        """
        entry = super().get_overload(sig)
        if entry not in self._offered:
            known = self._artifacts.values()
            (artifact,) = (one for one in known if one.result.entry_point is entry)
            implementation = _call_by_address(artifact)
            self.targetctx._defns[entry].append(implementation, implementation.signature)
            self._offered.append(entry)
        return entry

    def enable_caching(self) -> None:
        """Refuse: Numba's disk cache brings back code that was not checked."""
        checked_options({"cache": True})

    def recompile(self) -> None:
        """Prove all signatures afresh, under the present configuration."""
        jobs = [one.job for one in self._artifacts.values()]
        self._reset_overloads()
        self._artifacts.clear()
        self._reports.clear()
        self._stored.clear()
        can_compile = bool(self._can_compile)  # type: ignore[has-type]
        self._can_compile = True
        try:
            for job in jobs:
                if job.return_type is None:
                    self.compile(tuple(job.argument_types))
                else:
                    self.compile(typing.signature(job.return_type, *job.argument_types))
        finally:
            self._can_compile = can_compile

    def compile(self, sig: Any) -> Any:
        """Compile and prove one signature, and return its entry point.

        Parameters
        ----------
        sig : tuple of types, or signature
            As Numba takes it.

        Raises
        ------
        AllocCheckError
            When the guarantee cannot be proved and `on_failure` is ``"raise"``.
        Refused
            When the signature was proved under another configuration; `recompile` proves anew.
        """
        require_jit_enabled()
        arguments, return_type = sigutils.normalize_signature(sig)
        key = tuple(arguments)
        with COMPILER_LOCK:
            known = self.overloads.get(key)
            if known is not None:
                self._require_same_configuration(key)
                return known.entry_point
            if not self._can_compile:
                raise RuntimeError("compilation disabled")
            if self._sealed:
                return self._declared_entry(key)
            job = CompileJob(
                self.py_func, self, key, return_type, value_on_raise=self.value_on_raise
            )
            told = {"dispatcher": self, "args": key, "return_type": return_type}
            with event.trigger_event("numba:compile", data=told):
                try:
                    artifact = self._checked(job)
                except ForceLiteralArg as request:
                    raise request.bind_fold_arguments(self._folded_types) from None
                except Exception as error:
                    from alloccheck.check import raise_translated

                    raise_translated(job, error)
                self._admit(key, artifact)
        return artifact.result.entry_point

    def _require_same_configuration(self, key: tuple[Any, ...]) -> None:
        """Refuse to let an artifact answer a question that is asked under other settings."""
        artifact = self._artifacts.get(key)
        if artifact is None:
            return
        changed = artifact.configuration.changed_to(Configuration.current())
        if changed:
            raise Refused(
                f"{self.__qualname__} was proved under other settings: {'; '.join(changed)} now. "
                "Call recompile() to prove it under the present ones"
            )

    def _checked(self, job: CompileJob) -> Artifact:
        """Bring a job's artifact back, or build it and judge it by the policy."""
        if self._storage is None:
            return self._proved(job)[0].artifact
        from alloccheck.store import ArtifactStore

        key = tuple(job.argument_types)
        store = ArtifactStore(self._storage)
        artifact, report, self._stored[key] = store.answer(
            job, self.policy, lambda: self._proved(job)
        )
        if report is not None:
            self._reports[key] = report
        return artifact

    def _proved(self, job: CompileJob) -> tuple[Built, Report | None]:
        # A process that brings artifacts back never loads the compiler's side of us.
        from alloccheck.check import prove
        from alloccheck.compile.artifact import build

        if self.policy is None:
            return build(job), None
        verdict = prove(job, self.policy)
        self._reports[tuple(job.argument_types)] = verdict.report
        if not verdict.report.ok:
            if self.on_failure == "raise":
                verdict.artifact.lifetime.never_ran()
            self._fail(verdict.report)
        return verdict.built, verdict.report

    def _folded_types(self, args: Any, kws: Any) -> Any:
        return self.fold_argument_types(args, kws)[1]

    def _fail(self, report: Report) -> None:
        from alloccheck.report.text import render_text

        text = render_text(report)
        if self.on_failure == "raise":
            raise AllocCheckError(report, text)
        if self.on_failure == "warn":
            warnings.warn(text, AllocCheckWarning, stacklevel=_level_of_the_caller())

    def _admit(self, key: tuple[Any, ...], artifact: Artifact) -> None:
        """Make an artifact callable from Python and from jitted code."""
        self._artifacts[key] = replace(artifact, job=self._on_its_own(artifact.job))
        result = artifact.result
        if artifact.generator is not None:
            result = self._with_own_generator(artifact)
        self.add_overload(result)

    def _on_its_own(self, job: CompileJob) -> CompileJob:
        """Return a job's question in terms of its function.

        An artifact that referred to the dispatcher that keeps it would delay, until the garbage
        collector runs, that a function without references goes, and its code with it.
        """
        return replace(
            job,
            dispatcher=None,
            options=checked_options(self.targetoptions),
            locals=self.locals,
            pipeline_class=self._compiler.pipeline_class,
        )

    def _with_own_generator(self, artifact: Artifact) -> Any:
        """Let jitted code run an artifact's generator, by address.

        Numba finds a generator's code by its type. The type gets a name of its own here, so that
        neither this code is run for a generator of ``njit``, nor the other way round.
        """
        generator, result = artifact.generator, artifact.result
        assert generator is not None
        found = result.signature.return_type
        own = types.Generator(
            gen_func=_OwnGenerator(uuid4().hex, result.entry_point),
            yield_type=found.yield_type,
            arg_types=found.arg_types,
            state_types=found.state_types,
            has_finalizer=found.has_finalizer,
        )
        self.targetctx._generators[own] = (generator.descriptor, _next_by_address(generator))
        return result._replace(signature=typing.signature(own, *result.signature.args))

    def prove_now(self, signatures: tuple[Any, ...]) -> None:
        """Prove declared signatures and allow no others, as Numba's eager compilation does.

        Parameters
        ----------
        signatures : tuple
            In any of Numba's forms. Arguments with defaults may be left out.

        Raises
        ------
        UsageError
            When a signature does not fit the function.
        """
        self.declared_signatures = tuple(self._fitted(one) for one in signatures)
        if _deferred.get():
            return
        with typeinfer.register_dispatcher(self):
            for signature in self.declared_signatures:
                self.compile(signature)
            if any(isinstance(one, types.Omitted) for key in self.overloads for one in key):
                # Numba's C dispatcher takes all omitted arguments of one kind for the same, and so
                # may not find the signature: it has to ask `compile`, which allows no others.
                self._sealed = True
            else:
                self.disable_compile()

    def _declared_entry(self, key: tuple[Any, ...]) -> Any:
        """Return the entry of the declared signature that arguments of other types select."""
        chosen = self.typingctx.resolve_overload(
            self.py_func, self.nopython_signatures, key, {}, allow_ambiguous=False
        )
        if chosen is None:
            raise TypeError(
                f"No matching definition for argument type(s) {', '.join(map(str, key))}"
            )
        return self.overloads[tuple(chosen.args)].entry_point

    def _fitted(self, signature: Any) -> Any:
        arguments, return_type = parse_signature(signature)
        folded = fold_types(self.py_func, arguments)
        return folded if return_type is None else typing.signature(return_type, *folded)

    # --- inspection -----------------------------------------------------------------------------

    def inspect_types(
        self,
        file: Any = None,
        signature: Any = None,
        pretty: bool = False,
        style: str = "default",
        **options: Any,
    ) -> Any:
        """Print the types that inference found, as Numba's dispatcher does."""
        self._annotate(signature)
        return super().inspect_types(
            file=file, signature=signature, pretty=pretty, style=style, **options
        )

    def get_annotation_info(self, signature: Any = None) -> Any:
        """Return the types that inference found, for Numba's own renderers."""
        self._annotate(signature)
        return super().get_annotation_info(signature)

    def get_metadata(self, signature: Any = None) -> Any:
        """Return what Numba's pipeline noted, such as the times that its passes took."""
        self._annotate(signature)
        return super().get_metadata(signature)

    def parallel_diagnostics(self, signature: Any = None, level: int = 1) -> None:
        """Print what became of the parallel loops, as Numba's dispatcher does."""
        self._annotate(signature)
        super().parallel_diagnostics(signature, level)

    def _annotate(self, signature: Any) -> None:
        from alloccheck.compile.artifact import told_of

        for key in self.overloads if signature is None else (signature,):
            result = self.overloads[key]
            if result.type_annotation is None:
                # It is made by compiling again: under other settings, it would tell of other code.
                self._require_same_configuration(key)
                annotation, metadata = told_of(replace(self._artifacts[key].job, dispatcher=self))
                self.overloads[key] = result._replace(type_annotation=annotation, metadata=metadata)

    # --- pickling -------------------------------------------------------------------------------

    def _reduce_states(self) -> dict[str, Any]:
        states: dict[str, Any] = super()._reduce_states()
        states["policy"] = self.policy
        states["on_failure"] = self.on_failure
        states["value_on_raise"] = self.value_on_raise
        pipeline = self._compiler.pipeline_class
        states["pipeline_class"] = base_pipeline(pipeline)
        states["disjoint"] = disjoint_names(pipeline)
        states["storage"] = self._storage
        return states

    @classmethod
    def _rebuild(
        cls,
        uuid: str,
        py_func: Callable[..., Any],
        locals: Any,
        targetoptions: Any,
        can_compile: bool,
        sigs: Any,
        policy: Policy | None,
        on_failure: OnFailure,
        value_on_raise: int | float | None,
        pipeline_class: Any,
        disjoint: tuple[str, ...],
        storage: Storage | None,
    ) -> CheckedDispatcher:
        known = cls._memo.get(uuid)
        if known is not None:
            return known  # type: ignore[no-any-return]
        if disjoint:
            pipeline_class = disjoint_pipeline(pipeline_class, disjoint)
        self = cls(
            py_func,
            locals,
            targetoptions,
            policy=policy,
            on_failure=on_failure,
            value_on_raise=value_on_raise,
            pipeline_class=pipeline_class,
            storage=storage,
        )
        self._set_uuid(uuid)
        for signature in sigs:
            self.compile(signature)
        self._can_compile = can_compile
        return self


@dataclass(frozen=True, slots=True)
class _OwnGenerator:
    """Tells the type of one artifact's generators from all others.

    Types of signatures are pickled. In another process, this one means no code.
    """

    name: str
    entry_point: Any = field(compare=False, repr=False, default=None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name,)


class VerifyingDispatcher(CheckedDispatcher):
    """A checked function that compares itself with its proof before each call from Python.

    Calls from jitted code and from C go to the artifact directly, as always.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Verify the artifact of these arguments, then call it.

        Raises
        ------
        VerificationError
            When anything changed since the proof.
        """
        for artifact in self._selected(args, kwargs):
            found = verify(artifact)
            if not found:
                raise VerificationError(found)
        return super().__call__(*args, **kwargs)

    def _selected(self, args: Any, kwargs: Any) -> tuple[Artifact, ...]:
        """Return the artifact of exactly these types; else all that Numba may choose from."""
        try:
            exact = self._artifacts.get(types_of_call(self.py_func, args, kwargs))
        except UsageError:
            exact = None
        return tuple(self._artifacts.values()) if exact is None else (exact,)


_MACHINERY = tuple(str(Path(str(one.__file__)).parent) + os.sep for one in (numba, alloccheck))


def _level_of_the_caller() -> int:
    """Return the `stacklevel` of the first frame, seen from the caller, that is the user's."""
    level, frame = 1, inspect.currentframe()
    while (frame := frame.f_back if frame is not None else None) is not None:
        if not frame.f_code.co_filename.startswith(_MACHINERY):
            return level
        level += 1
    return 1


def _call_by_address(artifact: Artifact) -> Any:
    """Return Numba's implementation of a call that goes to the artifact's own machine code.

    Numba keeps it under the entry point, so it must not refer to the artifact, which refers to
    its function.
    """
    if artifact.direct:
        return _value_by_address(artifact)
    result, arguments = artifact.fndesc.restype, artifact.fndesc.argtypes
    address, symbol, lifetime = artifact.address, artifact.symbol, artifact.lifetime

    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lifetime.keep("jitted code calls it")
        convention = context.call_conv
        shape = convention.get_function_type(result, arguments)
        pointer = context.add_dynamic_addr(builder, address, info=symbol)
        function = builder.bitcast(pointer, shape.as_pointer())
        status, value = convention.call_function(builder, function, result, arguments, args)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        value = imputils.fix_returning_optional(context, builder, sig, status, value)
        return imputils.impl_ret_new_ref(context, builder, result, value)

    implementation.signature = arguments  # type: ignore[attr-defined]
    implementation.libs = ()  # type: ignore[attr-defined]
    return implementation


def _value_by_address(artifact: Artifact) -> Any:
    """Return Numba's implementation of a call of an entry that cannot raise: a plain C call.

    The value stays in a register. Numba's convention hands it over in memory, which costs a loop
    over short calls half of its time.
    """
    assert artifact.c_address is not None
    types_only = SimpleNamespace(restype=artifact.fndesc.restype, argtypes=artifact.fndesc.argtypes)
    address, symbol, lifetime = artifact.c_address, artifact.c_symbol, artifact.lifetime

    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lifetime.keep("jitted code calls it")
        shape = value_entry_type(context, types_only)
        pointer = context.add_dynamic_addr(builder, address, info=symbol)
        value = builder.call(builder.bitcast(pointer, shape.as_pointer()), args)
        return imputils.impl_ret_new_ref(context, builder, types_only.restype, value)

    implementation.signature = types_only.argtypes  # type: ignore[attr-defined]
    implementation.libs = ()  # type: ignore[attr-defined]
    return implementation


def _next_by_address(generator: GeneratorCode) -> Any:
    """Return Numba's implementation of a step of a generator, in the artifact's machine code."""
    descriptor = generator.descriptor

    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        shape = context.call_conv.get_function_type(descriptor.restype, descriptor.argtypes)
        pointer = context.add_dynamic_addr(
            builder, generator.next_address, info=generator.next_symbol
        )
        function = builder.bitcast(pointer, shape.as_pointer())
        # The caller reads the status: it says when the generator has ended.
        return context.call_conv.call_function(
            builder, function, descriptor.restype, descriptor.argtypes, args
        )

    implementation.libs = ()  # type: ignore[attr-defined]
    return implementation

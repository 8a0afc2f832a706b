"""The dispatcher that users call: it compiles hermetically, proves, and runs what was proved.

A `CheckedDispatcher` is Numba's CPU dispatcher with another way to compile. Calls from Python go
through Numba's C fast path into the artifact; calls from jitted code that is not checked go to the
artifact by address; checked callers inline the function into their own artifact and check it again
there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal

from alloccheck.binding import Bound
from alloccheck.check import Policy, prove
from alloccheck.compile.artifact import Artifact, build
from alloccheck.compile.job import CompileJob, Configuration, require_jit_enabled
from alloccheck.compile.target import types_of_call
from alloccheck.errors import AllocCheckError, Refused, UsageError, VerificationError
from alloccheck.findings import Report
from alloccheck.verification import verify

# isort: split
from numba.core import cgutils, imputils, registry, sigutils, typeinfer, typing
from numba.core.compiler_lock import global_compiler_lock

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
    ) -> None:
        self.policy = policy
        self.value_on_raise = value_on_raise
        self.on_failure: OnFailure = on_failure
        self.declared_signatures: tuple[Any, ...] = ()
        self._artifacts: dict[tuple[Any, ...], Artifact] = {}
        self._reports: dict[tuple[Any, ...], Report] = {}
        super().__init__(py_func, locals=locals, targetoptions=targetoptions)

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

    # --- compiling ------------------------------------------------------------------------------

    def _make_finalizer(self) -> Callable[[], None]:
        # Artifacts live as long as the process: callers may hold their addresses.
        return _nothing

    def enable_caching(self) -> None:
        """Refuse: Numba's disk cache brings back code that was not checked."""
        from alloccheck.compile.job import checked_options

        checked_options({"cache": True})

    def recompile(self) -> None:
        """Prove all signatures afresh, under the present configuration."""
        jobs = [one.job for one in self._artifacts.values()]
        self._reset_overloads()
        self._artifacts.clear()
        self._reports.clear()
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
        with global_compiler_lock:
            known = self.overloads.get(key)
            if known is not None:
                self._require_same_configuration(key)
                return known.entry_point
            if not self._can_compile:
                raise RuntimeError("compilation disabled")
            job = CompileJob(
                self.py_func, self, key, return_type, value_on_raise=self.value_on_raise
            )
            if self.policy is None:
                artifact = build(job).artifact
            else:
                verdict = prove(job, self.policy)
                artifact = verdict.artifact
                self._reports[key] = verdict.report
                if not verdict.report.ok:
                    self._fail(verdict.report)
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

    def _fail(self, report: Report) -> None:
        from alloccheck.report.text import render_text

        text = render_text(report)
        if self.on_failure == "raise":
            raise AllocCheckError(report, text)
        if self.on_failure == "warn":
            warnings.warn(text, AllocCheckWarning, stacklevel=4)

    def _admit(self, key: tuple[Any, ...], artifact: Artifact) -> None:
        """Make an artifact callable from Python and from jitted code."""
        self._artifacts[key] = artifact
        self.add_overload(artifact.result)
        implementation = _call_by_address(artifact)
        self.targetctx._defns[artifact.result.entry_point].append(
            implementation, implementation.signature
        )

    def prove_now(self, signatures: tuple[Any, ...]) -> None:
        """Prove declared signatures and allow no others, as Numba's eager compilation does."""
        self.declared_signatures = signatures
        if _deferred.get():
            return
        with typeinfer.register_dispatcher(self):
            for signature in signatures:
                self.compile(signature)
            self.disable_compile()

    # --- pickling -------------------------------------------------------------------------------

    def _reduce_states(self) -> dict[str, Any]:
        states: dict[str, Any] = super()._reduce_states()
        states["policy"] = self.policy
        states["on_failure"] = self.on_failure
        states["value_on_raise"] = self.value_on_raise
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
    ) -> CheckedDispatcher:
        known = cls._memo.get(uuid)
        if known is not None:
            return known  # type: ignore[no-any-return]
        self = cls(
            py_func,
            locals,
            targetoptions,
            policy=policy,
            on_failure=on_failure,
            value_on_raise=value_on_raise,
        )
        self._set_uuid(uuid)
        for signature in sigs:
            self.compile(signature)
        self._can_compile = can_compile
        return self


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


def _nothing() -> None:
    """Do nothing."""


def _call_by_address(artifact: Artifact) -> Any:
    """Return Numba's implementation of a call that goes to the artifact's own machine code."""
    descriptor = artifact.result.fndesc

    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        convention = context.call_conv
        shape = convention.get_function_type(descriptor.restype, descriptor.argtypes)
        pointer = context.add_dynamic_addr(builder, artifact.address, info=artifact.symbol)
        function = builder.bitcast(pointer, shape.as_pointer())
        status, value = convention.call_function(
            builder, function, descriptor.restype, descriptor.argtypes, args
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        value = imputils.fix_returning_optional(context, builder, sig, status, value)
        return imputils.impl_ret_new_ref(context, builder, descriptor.restype, value)

    implementation.signature = descriptor.argtypes  # type: ignore[attr-defined]
    implementation.libs = ()  # type: ignore[attr-defined]
    return implementation

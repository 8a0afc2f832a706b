"""Runs what was checked, to see whether each finding fires and no proof is refuted.

A finding is an effect that the function *may* have. Here the very machine code of a report is run
in the oracle's helper process on given or generated arguments. See ``docs/oracle.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from alloccheck.confirm.inputs import described, weight
from alloccheck.confirm.match import confirmed_by
from alloccheck.confirm.trial import EXAMPLES, Plan, Tally, run
from alloccheck.effects import Effect
from alloccheck.errors import ProofRefuted, UsageError
from alloccheck.findings import Confirmation, Report, Trial
from alloccheck.oracle import CallCounts, Counts, Event, Oracle, default_oracle, made_by
from alloccheck.oracle.references import reference_of

if TYPE_CHECKING:
    from alloccheck.compile.loaded import Artifact
    from alloccheck.policy import Policy

__all__ = ["confirm"]


def confirm(
    report: Report,
    artifact: Artifact,
    target: Any,
    policy: Policy,
    *,
    how: Any = True,
    options: Mapping[str, Any] | None = None,
    oracle: Oracle | None = None,
    examples: int = EXAMPLES,
) -> Report:
    """Run a function and say of each finding whether it was seen.

    Parameters
    ----------
    report : Report
        What was found.
    artifact : Artifact
        The machine code that it speaks of.
    target : Callable
        What was asked about; a module-level name must lead to it.
    policy : Policy
        What was asked.
    how : True, tuple, list of tuples, or Hypothesis strategy
        Arguments: generated from the signature; those of one call; those of several calls; drawn
        from a strategy of tuples. A tuple may hold strategies for single arguments.
    options : mapping
        Numba's options, where they were given besides the target's own.
    oracle : Oracle, optional
        Instead of the process's shared one.
    examples : int
        How many inputs are generated.

    Returns
    -------
    Report
        With a `Confirmation` at each finding, and a `Trial`.

    Raises
    ------
    ProofRefuted
        When a proved function did what was proved impossible.
    UsageError
        When `how` is none of these, an argument cannot be sent, or Hypothesis is missing. Where
        the function cannot be named or no arguments generated, the trial's note says so.
    OracleUnavailable
        When this machine cannot measure.
    """
    symbol = artifact.c_symbol if policy.entry == "c" else artifact.symbol
    evidence = _Evidence(report, artifact, symbol, _parameter_names(target))
    try:
        inputs, strategy = _source_of_inputs(how, artifact)
        plan = _plan(report, artifact, target, policy, dict(options or {}))
    except _CannotRun as reason:
        return evidence.judged(Tally(note=f"not run: {reason}"))
    tally = run(
        oracle or default_oracle(), plan, inputs, strategy, evidence.look, examples=examples
    )
    if evidence.refutation is not None:
        raise ProofRefuted(report, evidence.refutation)
    return evidence.judged(tally)


class _CannotRun(Exception):
    """The function is fine, and so is the question, but nothing can be run."""


def _source_of_inputs(how: Any, artifact: Artifact) -> tuple[list[tuple[Any, ...]] | None, Any]:
    from alloccheck.confirm import strategies
    from alloccheck.confirm.names import caller_types

    if how is True:
        strategies.require_hypothesis()
        try:
            return None, strategies.arguments(caller_types(artifact.job.argument_types))
        except UsageError as error:
            raise _CannotRun(error) from None
    if _is_strategy(how):
        return None, how
    if isinstance(how, tuple):
        if not any(map(_is_strategy, how)):
            return [how], None
        strategies.require_hypothesis()
        from hypothesis import strategies as st

        return None, st.tuples(*(one if _is_strategy(one) else st.just(one) for one in how))
    if isinstance(how, Iterable) and not isinstance(how, str | bytes):
        listed = list(how)
        if listed and all(isinstance(one, tuple) for one in listed):
            return listed, None
    raise UsageError(
        "confirm takes True, a tuple of arguments, a list of such tuples, or a Hypothesis strategy "
        f"of tuples; found {how!r}"
    )


def _is_strategy(value: Any) -> bool:
    # By name: Hypothesis need not be installed.
    return any(one.__name__ == "SearchStrategy" for one in type(value).__mro__)


def _plan(
    report: Report, artifact: Artifact, target: Any, policy: Policy, options: dict[str, Any]
) -> Plan:
    from alloccheck.confirm import subject
    from alloccheck.confirm.names import signature_text

    job = artifact.job
    try:
        reference = reference_of(target)
    except UsageError as error:
        raise _CannotRun(error) from None
    if options.pop("locals", None) or options.pop("pipeline_class", None):
        raise _CannotRun("types of locals and pipelines cannot be sent to the helper process")
    if not options.get("disjoint"):
        options.pop("disjoint", None)
    sent = tuple(
        (name, tuple(sorted(value)) if isinstance(value, set | frozenset | list | tuple) else value)
        for name, value in sorted(options.items())
    )
    eager = signature_text(job.argument_types, job.return_type)
    made = made_by(
        subject.checked,
        reference.module,
        reference.qualname,
        reference.path,
        eager,
        str(policy.guarantee),
        policy.ignore_throw,
        policy.first_call,
        policy.entry,
        sent,
    )
    digest = str(report.certificate.digest)
    called = signature_text(job.argument_types) if eager is not None else None
    if any(type(one).__name__ == "Omitted" for one in job.argument_types):
        called = None
    return Plan(made, called, "c" if policy.entry == "c" else "numba", digest)


def _parameter_names(target: Any) -> list[str]:
    from alloccheck.compile.target import python_function

    code = python_function(target).__code__
    return list(code.co_varnames[: code.co_argcount])


class _Evidence:
    """What the calls showed so far."""

    def __init__(
        self, report: Report, artifact: Artifact, symbol: str | None, names: list[str]
    ) -> None:
        from alloccheck.confirm.places import Places

        self._report = report
        self._places = Places(artifact, symbol)
        self._names = names
        self._best: dict[int, tuple[int, Confirmation]] = {}
        self.refutation: str | None = None

    def look(self, given: tuple[Any, ...], counts: Counts, call: CallCounts) -> None:
        """Take in one call."""
        if self._report.ok:
            self._refute(given, counts, call)
            return

        def lines(event: Event) -> tuple[tuple[str, int], ...]:
            if event.site is None:
                return ()
            return self._places.lines(event.site.address - counts.address)

        def target(event: Event) -> str | None:
            if event.site is None:
                return None
            return self._places.target(event.site.address - counts.address)

        for number, seen in confirmed_by(self._report.findings, call, lines, target).items():
            heavy = weight(given)
            known = self._best.get(number)
            if known is None or heavy < known[0]:
                shown = Confirmation(True, described(self._names, given), seen)
                self._best[number] = heavy, shown

    def _refute(self, given: tuple[Any, ...], counts: Counts, call: CallCounts) -> None:
        report = self._report
        if self.refutation is not None or not counts.artifact:
            return
        if call is counts.calls[0] and report.certificate.first_call == "allow":
            return
        if call.outcome == "raised" and report.ignore_throw:
            return
        alone = dataclasses.replace(counts, calls=(call,))
        found = alone.refutations(report.guarantee)
        if found:
            self.refutation = (
                f"PROOF REFUTED: {report.function} {report.signature} is proved "
                f"{report.guarantee}, and did this on ({described(self._names, given)}): "
                f"{'; '.join(found)}. This is a bug in alloccheck; please report it with the "
                "function."
            )

    def judged(self, tally: Tally) -> Report:
        """Return the report with what was seen."""
        trial = Trial(
            tally.inputs, tally.returned, tally.raised, tally.crashed, tally.late, tally.note
        )
        findings = tuple(
            dataclasses.replace(
                one,
                confirmation=self._best[number][1]
                if number in self._best
                else Confirmation(False, None, _why_not(one.effect, tally)),
            )
            for number, one in enumerate(self._report.findings)
        )
        return dataclasses.replace(self._report, findings=findings, trial=trial)


def _why_not(effect: Effect, tally: Tally) -> str:
    if effect in (Effect.DISPATCH, Effect.UNKNOWN):
        return "what is not known cannot be counted"
    if not tally.inputs:
        return tally.note or "no input was tried"
    return f"not seen on {tally.inputs} inputs"

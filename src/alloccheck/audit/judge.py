"""From a record of what Numba compiled to one row of the audit: verdict, place and reason.

Knows the one road to a report; nothing of processes or terminals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alloccheck.effects import Effect, Guarantee
from alloccheck.errors import AllocCheckException, InterpreterRefused, unexpected
from alloccheck.findings import Finding, Report
from alloccheck.report.json import to_json

if TYPE_CHECKING:
    from alloccheck.analysis.contracts import Contract
    from alloccheck.compile.job import CompileJob
    from alloccheck.compile.overloads import Choices, Chosen
    from alloccheck.compile.recording import Compiled

VERDICTS = ("proved", "allocates", "enters Python", "frees", "blocks", "undecided")
"""In the order of the summary; a row has the first of the last five that applies."""

_VERDICT_OF = {
    Effect.ALLOCATE: "allocates",
    Effect.PYTHON: "enters Python",
    Effect.FREE: "frees",
    Effect.BLOCK: "blocks",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What the counter saw of proved machine code.

    Parameters
    ----------
    own : int
        Inputs that are the arguments of a call that the program itself made.
    inputs, returned, raised, crashed, late : int
        All inputs that were tried; and those on which the last call returned, raised, killed the
        measuring process, or took too long.
    note : str
        What kept it from trying more; empty when nothing did.
    refuted : tuple of str
        What calls that returned did although it was proved impossible.
    """

    own: int = 0
    inputs: int = 0
    returned: int = 0
    raised: int = 0
    crashed: int = 0
    late: int = 0
    note: str = ""
    refuted: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.refuted:
            return "REFUTED: " + "; ".join(self.refuted)
        if not self.returned:
            return f"not counted: {self.note or 'no input returned'}"
        of_own = ", the program's own among them" if self.own else ""
        return f"kept in {self.returned} counted calls{of_own}"


@dataclass(frozen=True, slots=True)
class Row:
    """What is known about one function and signature.

    Parameters
    ----------
    function : str
        ``module:qualname``.
    file : str
        Where it is defined.
    line : int
        Its first line.
    signature : str
        Numba's form; without a return type when it was not analysed.
    kind, origin : str
        As recorded.
    verdict : str
        One of `VERDICTS`.
    reason : str
        Where it first does what is forbidden, or why nothing was decided; empty when proved.
    may : tuple of str
        All effects that it may have, forbidden or not.
    report : mapping or None
        The whole report as data.
    seconds : float
        CPU time of the analysis.
    counted : Counted or None
        What running the proved machine code showed; None where it was not asked for or proved.
    chosen : Chosen or None
        What choosers of overloads had answered where it was analysed; None where nobody looked.
    """

    function: str
    file: str
    line: int
    signature: str
    kind: str
    origin: str
    verdict: str
    reason: str = ""
    may: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = field(default=None, repr=False)
    seconds: float = 0.0
    counted: Counted | None = None
    chosen: Chosen | None = field(default=None, repr=False)


def judge(
    one: Compiled,
    guarantee: Guarantee,
    contracts: Iterable[Contract] = (),
    first_call: str = "",
    choices: Choices | None = None,
) -> Row:
    """Analyse one recorded function.

    Parameters
    ----------
    one : Compiled
        The record.
    guarantee : Guarantee
        What is asked.
    contracts : iterable of Contract
        The user's own.
    first_call : str
        How process-wide lazy set-up is treated; the usual way when empty.
    choices : Choices, optional
        Looks at what choosers of overloads answer.

    Returns
    -------
    Row
        Also for a function that cannot be analysed: nothing is raised for what a function is.
    """
    from alloccheck.check import explained
    from alloccheck.policy import Policy

    start = time.process_time()
    try:
        # All effects are asked for, since the table tells of them; the guarantee comes after.
        policy = Policy.of(
            Guarantee.NONBLOCKING, contracts=contracts, first_call=first_call or "prepare"
        )
        with contextlib.nullcontext() if choices is None else choices.seen():
            verdict = explained(job_of(one), policy)
        verdict.artifact.lifetime.never_ran()
        report = verdict.report
    except InterpreterRefused as error:
        row = unjudged(one, _first_lines(str(error)), time.process_time() - start)
        return dataclasses.replace(row, verdict="enters Python")
    except AllocCheckException as error:
        return unjudged(one, _first_lines(str(error)), time.process_time() - start)
    except Exception as error:
        # One function must not end the audit; that it is our fault is said.
        return unjudged(one, unexpected(error), time.process_time() - start)
    row = row_of(one, narrowed(report, guarantee), time.process_time() - start)
    return row if choices is None else dataclasses.replace(row, chosen=choices.so_far())


def proved_again(one: Compiled, guarantee: Guarantee, first_call: str) -> tuple[Any, bool]:
    """Return the machine code that `judge` speaks of, made once more, and whether it is proved.

    Parameters
    ----------
    one : Compiled
        The record.
    guarantee, first_call
        As `judge` takes them.

    Raises
    ------
    AllocCheckException
        When it does not compile hermetically.
    """
    from alloccheck.check import explained
    from alloccheck.policy import Policy

    policy = Policy.of(Guarantee.NONBLOCKING, first_call=first_call or "prepare")
    verdict = explained(job_of(one), policy)
    return verdict.artifact, narrowed(verdict.report, guarantee).ok


def job_of(one: Compiled) -> CompileJob:
    """Return the question about a record.

    Parameters
    ----------
    one : Compiled
        The record.

    Raises
    ------
    AllocCheckException
        When it cannot be asked.
    """
    from alloccheck.compile.target import make_job

    if one.kind == "callback":
        return make_job(one.target)
    options = {}
    if one.kind == "ufunc kernel":
        options = {key: value for key, value in one.options.items() if key in KERNEL_OPTIONS}
    signature = one.argument_types
    if one.return_type is not None:
        signature = one.return_type(*one.argument_types)
    return make_job(one.target, signature, options)


KERNEL_OPTIONS = ("error_model", "fastmath", "boundscheck", "forceinline", "no_rewrites")
"""Options of a ufunc that its kernel is compiled with."""


def narrowed(report: Report, guarantee: Guarantee) -> Report:
    """Return a report on a stronger guarantee as one on a weaker.

    Parameters
    ----------
    report : Report
        On ``nonblocking``.
    guarantee : Guarantee
        What was asked.
    """
    if report.guarantee is guarantee:
        return report
    kept = tuple(one for one in report.findings if one.effect in guarantee.forbidden)
    certificate = dataclasses.replace(report.certificate, guarantee=guarantee, proved=not kept)
    return dataclasses.replace(report, guarantee=guarantee, findings=kept, certificate=certificate)


def row_of(one: Compiled, report: Report, seconds: float) -> Row:
    """Return the row that a report makes.

    Parameters
    ----------
    one : Compiled
        What was asked about.
    report : Report
        The answer.
    seconds : float
        What it took.
    """
    verdict, reason = "proved", ""
    if report.findings:
        worst = min(report.findings, key=_rank)
        verdict = _VERDICT_OF.get(worst.effect, "undecided")
        reason = _where(worst)
    return Row(
        report.function,
        report.file,
        report.line,
        report.signature,
        one.kind,
        one.origin,
        verdict,
        reason,
        tuple(sorted(map(str, report.effects))),
        to_json(report),
        seconds,
    )


def _rank(finding: Finding) -> int:
    return VERDICTS.index(_VERDICT_OF.get(finding.effect, "undecided"))


def _where(finding: Finding) -> str:
    if finding.location is None:
        return f"{finding.code} {finding.message}"
    file = Path(finding.location.file).name
    return f"{file}:{finding.location.line}: {finding.code} {finding.message}"


def unjudged(one: Compiled, reason: str, seconds: float = 0.0) -> Row:
    """Return the row of a function about which nothing could be decided.

    Parameters
    ----------
    one : Compiled
        The record.
    reason : str
        Why, in one sentence.
    seconds : float
        What the attempt took.
    """
    from alloccheck.check import without_addresses

    code = one.function.__code__
    return Row(
        one.name,
        code.co_filename,
        code.co_firstlineno,
        without_addresses(f"({', '.join(map(str, one.argument_types))})"),
        one.kind,
        one.origin,
        "undecided",
        reason,
        seconds=seconds,
    )


class Callees:
    """What functions that were compiled before others had captured then, and choosers answered.

    Parameters
    ----------
    compiled : iterable of Compiled
        All that was recorded.
    choices : Choices or None
        What choosers of overloads answered to the program; None where nobody looked.
    """

    def __init__(self, compiled: Iterable[Compiled] = (), choices: Choices | None = None) -> None:
        self._compiled: dict[str, list[Compiled]] = {}
        self._known: dict[str, str | None] = {}
        self._choices = choices
        self._choosing: set[int] = set()
        for one in compiled:
            self._compiled.setdefault(one.name, []).append(one)
            if one.frozen is not None:
                self._choosing |= one.frozen.choosing

    def changed(self, names: Iterable[str]) -> str | None:
        """Return what a function had captured and has another value by now, in words.

        Parameters
        ----------
        names : iterable of str
            ``module:qualname`` of the functions that matter.
        """
        for name in sorted(names):
            if name not in self._known:
                found = (
                    one.frozen.changed({name})
                    for one in self._compiled.get(name, ())
                    if one.frozen is not None
                )
                self._known[name] = next((text for text in found if text is not None), None)
            if (text := self._known[name]) is not None:
                return f"{text} {_SINCE} {name}, which it may call"
        return None

    def another_choice(self, one: Compiled, chosen: Chosen | None) -> str | None:
        """Return why what Numba compiled was made of other overloads, in words.

        Parameters
        ----------
        one : Compiled
            What was judged.
        chosen : Chosen or None
            What choosers had answered there.
        """
        if one.frozen is None or not one.frozen.inlined:
            # Nothing runs while Numba compiles it.
            return None
        if self._choices is not None and chosen is not None:
            answer = self._choices.another(chosen)
            if answer is not None:
                return f"{answer} is not what Numba was told for the program"
            if self._choices.same(chosen):
                return None
        if chosen is not None and chosen.changed is not None:
            return f"{chosen.changed} {_SINCE} this function"
        # Not all answers can be compared: then choosers must have seen the same, whoever asked.
        return self.ever_changed(one, self._choosing)

    def ever_changed(self, one: Compiled, running: Container[int]) -> str | None:
        """Return what functions may look at and had another value in any compile, in words.

        Numba asks them once, in the first compile that leads to them, and keeps the answer.

        Parameters
        ----------
        one : Compiled
            What was judged.
        running : container of int
            Addresses of the functions that matter.
        """
        for other in itertools.chain([one], *self._compiled.values()) if running else ():
            if other.frozen is not None:
                changed = other.frozen.changed_for(running)
                if changed is not None:
                    return f"{changed} {_SINCE} {'this function' if other is one else other.name}"
        return None


_SINCE = "has changed since Numba compiled"


def as_found(one: Compiled, row: Row) -> Row:
    """Return a row, or one that says that it does not speak of what Numba compiled.

    To be asked where the row was made: a copy of the process may see other values than there were
    before it was made, and will be.

    Parameters
    ----------
    one : Compiled
        What was judged; one that was told by a letter has nothing to compare.
    row : Row
        The judgement, which came later.
    """
    if row.report is None or one.frozen is None:
        return row
    if (changed := one.frozen.changed(_functions_of(row))) is not None:
        return _of_other(one, row, f"{changed} {_SINCE} this function")
    if row.chosen is not None:
        # Whether it matters is told by what choosers answered, all of which is known at the end.
        looked_at = one.frozen.changed_for(one.frozen.choosing)
        row = dataclasses.replace(row, chosen=dataclasses.replace(row.chosen, changed=looked_at))
    return row


def as_compiled(one: Compiled, row: Row, callees: Callees) -> Row:
    """Return a row, or one that says that it does not speak of what Numba compiled.

    To be asked when the program has ended.

    Parameters
    ----------
    one : Compiled
        What was judged.
    row : Row
        The judgement, as `as_found` returned it.
    callees : Callees
        What it may call was perhaps compiled long before it, and is called as it was then.
    """
    if row.report is None or one.frozen is None:
        return row
    names = _functions_of(row)
    changed = one.frozen.changed(names)
    if changed is not None:
        changed = f"{changed} {_SINCE} this function"
    # Itself among the callees, for other types: it may be recursive.
    changed = changed or callees.changed(names | one.frozen.unnamed())
    changed = changed or callees.ever_changed(one, one.frozen.once)
    changed = changed or callees.another_choice(one, row.chosen)
    return row if changed is None else _of_other(one, row, changed)


def _functions_of(row: Row) -> set[str]:
    """Return ``module:qualname`` of what was compiled."""
    assert row.report is not None
    return {source["function"] for source in row.report["certificate"]["sources"]}


def _of_other(one: Compiled, row: Row, why: str) -> Row:
    return unjudged(one, f"{why}: what ran is something else", row.seconds)


def _first_lines(text: str, most: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 3] + "..."

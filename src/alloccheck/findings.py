"""From witnesses to findings that people read: codes, messages, help; and the report.

Knows the effects and the table of remedies; nothing of terminals, compilers or decorators.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.policy import FirstCall
from alloccheck.source import Backtrace, Frame

if TYPE_CHECKING:
    from alloccheck import help
    from alloccheck.analysis.summary import Witness


@dataclass(frozen=True, slots=True)
class TypeHint:
    """What the compiler knows about a user's line.

    Parameters
    ----------
    type : str
        The Numba type of the value that is made there.
    expression : str or None
        The source expression, when the compiler knows it better than the syntax tells.
    """

    type: str
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether running the function showed what a finding says.

    Parameters
    ----------
    confirmed : bool
        It was seen. Otherwise it was not seen on the inputs that were tried, which proves nothing.
    input : str or None
        The smallest input on which it was seen.
    seen : str
        What was counted, or why nothing could be.
    """

    confirmed: bool
    input: str | None
    seen: str


@dataclass(frozen=True, slots=True)
class Trial:
    """How often a function was run to confirm a report, and how the calls ended.

    Parameters
    ----------
    inputs, returned, raised, crashed, late : int
        Inputs tried; and those on which the last call returned, raised, killed the helper process
        or took too long.
    note : str
        What kept it from trying more; empty when nothing did.
    """

    inputs: int
    returned: int
    raised: int
    crashed: int
    late: int
    note: str = ""

    def __str__(self) -> str:
        parts = [f"{self.returned} returned", f"{self.raised} raised"]
        parts += [f"{self.crashed} crashed"] if self.crashed else []
        parts += [f"{self.late} took too long"] if self.late else []
        note = f"; {self.note}" if self.note else ""
        return f"{self.inputs} inputs tried: {', '.join(parts)}{note}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands against the guarantee.

    Parameters
    ----------
    code : str
        Stable code such as ``"AC101"``.
    effect, path, occasion
        See :mod:`alloccheck.effects`.
    symbol : str
        The external symbol reached, or a description.
    message : str
        One sentence: what happens.
    type : str or None
        The Numba type of what is allocated, when known.
    expression : str or None
        The user's source expression, when known.
    size : int or None
        Bytes, when constant.
    backtrace : tuple of Frame
        Innermost frame first.
    reason, source, help : str
        Why we believe it, where to check, and the usual remedy.
    location : Frame or None
        The innermost frame that the user wrote; its column is that of the expression.
    end_column : int or None
        Column just behind the expression when it ends on the location's line.
    confirmation : Confirmation or None
        What running the function showed; None when that was not asked for.
    """

    code: str
    effect: Effect
    path: Path
    occasion: Occasion
    symbol: str
    message: str
    type: str | None
    expression: str | None
    size: int | None
    backtrace: Backtrace
    reason: str
    source: str
    help: str
    location: Frame | None = None
    end_column: int | None = None
    confirmation: Confirmation | None = None

    @property
    def title(self) -> str:
        """The code's title, e.g. ``array allocation``."""
        from alloccheck import help

        return help.codes()[self.code]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A trust that the user declared with `assume`."""

    function: str
    effects: tuple[Effect, ...]
    reason: str
    used: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict about one function and signature.

    `ok` is True only when the guarantee was proved.
    """

    function: str
    """``module:qualname``."""
    file: str
    line: int
    signature: str
    """Numba's form, ``ret(args...)``."""
    guarantee: Guarantee
    ignore_throw: bool
    findings: tuple[Finding, ...]
    effects: frozenset[Effect]
    """All effects on the return and diverge paths, forbidden or not, and `raise` when it may."""
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    certificate: Any = None
    timings: dict[str, float] = field(default_factory=dict, compare=False, hash=False)
    """Seconds spent in each stage."""
    trial: Trial | None = None
    """How it was run to confirm the findings; None when that was not asked for."""

    @property
    def ok(self) -> bool:
        """Whether the guarantee is proved."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, in the schema of ``docs/json-schema.md``."""
        from alloccheck.report.json import to_json

        return to_json(self)

    def __str__(self) -> str:
        from alloccheck.report.text import render_text

        return render_text(self, width=max(shutil.get_terminal_size((100, 24)).columns, 60))

    def _repr_html_(self) -> str:
        from alloccheck.report.html import render_html

        return render_html(self)


def findings_from(
    witnesses: Iterable[Witness],
    *,
    guarantee: Guarantee,
    ignore_throw: bool,
    first_call: FirstCall,
    types: Callable[[Frame], TypeHint | None] = lambda frame: None,
    prepared: frozenset[str] = frozenset(),
    also_forbidden: frozenset[Effect] = frozenset(),
) -> tuple[Finding, ...]:
    """Turn the witnesses that stand against a guarantee into findings.

    Parameters
    ----------
    witnesses : iterable of Witness
        Everything that the entry as a whole may do.
    guarantee : Guarantee
        Witnesses of effects that it does not forbid are left out.
    ignore_throw : bool
        Leave out what happens only when the call ends by raising.
    first_call : {"prepare", "forbid", "allow"}
        ``"prepare"`` leaves out what only the first call of the process does and the checker has
        done already; ``"allow"`` leaves out everything that only a first call does; ``"forbid"``
        leaves out nothing.
    types : callable
        What the compiler knows about a frame of the user's.
    prepared : frozenset of str
        Symbols whose process-wide set-up the checker has triggered and verified.
    also_forbidden : frozenset of Effect
        Effects that are forbidden besides, as raising is for a C entry.

    Returns
    -------
    tuple of Finding
        In the order of file, line, column, code, symbol and trace; equal ones are merged.

    Examples
    --------
    >>> from alloccheck.analysis.summary import Witness
    >>> witness = Witness(Effect.ALLOCATE, Path.RAISE, Occasion.EVERY_CALL,
    ...                   "NRT_Allocate", "takes memory", "nrt.cpp:1", ())
    >>> findings_from([witness], guarantee=Guarantee.NONALLOCATING, ignore_throw=True,
    ...               first_call="prepare")
    ()
    >>> [finding] = findings_from([witness], guarantee=Guarantee.NONALLOCATING,
    ...                           ignore_throw=False, first_call="prepare")
    >>> finding.message
    'allocates memory when it raises'

    Notes
    -----
    `raise` is an effect like any other and counts only under a guarantee that forbids it.
    """
    kept = [
        dataclasses.replace(witness, backtrace=tuple(map(_named_alike, witness.backtrace)))
        for witness in witnesses
        if witness.effect in guarantee.forbidden | also_forbidden
        and not (ignore_throw and witness.path is Path.RAISE)
        and not _excused(witness, first_call, prepared)
    ]
    unique: dict[tuple[object, ...], Witness] = {}
    for witness in sorted(kept, key=lambda one: _PATHS.index(one.path)):
        same = (
            witness.effect,
            witness.occasion,
            witness.symbol,
            witness.source,
            witness.condition,
            witness.size,
            witness.backtrace,
        )
        unique.setdefault(same, witness)
    return tuple(sorted((_finding(one, types) for one in unique.values()), key=_order))


_MADE_BY_NUMBA = re.compile(r"(__gufunc__)\..*|(__numba_\w+?)_0x[0-9a-f]+(?:_\d+)?")
"""Functions that Numba writes itself (parallel loops, stencils) and names by where something lies
in this process: two processes would print two reports."""


def _named_alike(frame: Frame) -> Frame:
    own = _MADE_BY_NUMBA.fullmatch(frame.function)
    return dataclasses.replace(frame, function=own[1] or own[2]) if own else frame


_PATHS = (Path.RETURN, Path.DIVERGE, Path.RAISE)
"""Of equal witnesses on several paths, the one on the first of these is kept."""


def only_seen_in(witness: Witness, reader: Literal["IR", "machine code"]) -> Witness:
    """Mark a witness that one reader shows and the other does not, for codes ``AC9xx``.

    Parameters
    ----------
    witness : Witness
        What the one reader shows.
    reader : {"IR", "machine code"}
        Which one.

    Returns
    -------
    Witness
        The same, with its effect unknown, because nobody can say which reader is right.
    """
    effect = "" if witness.effect is Effect.UNKNOWN else f"may {witness.effect}, but "
    return dataclasses.replace(
        witness,
        effect=Effect.UNKNOWN,
        source=f"seen in the {reader} alone; {witness.source}",
        reason=f"{effect}only the {reader} shows it: {witness.reason}",
    )


def _excused(witness: Witness, first_call: FirstCall, prepared: frozenset[str]) -> bool:
    if witness.occasion is Occasion.EVERY_CALL or first_call == "forbid":
        return False
    if first_call == "allow":
        return True
    return witness.occasion is Occasion.FIRST_CALL and witness.symbol in prepared


def _finding(witness: Witness, types: Callable[[Frame], TypeHint | None]) -> Finding:
    from alloccheck import expressions, help

    location = help.user_frame(witness.backtrace)
    on_line = expressions.expressions_on(location.file, location.line) if location else ()
    kinds = frozenset(kind for one in on_line for kind in one.kinds)
    advice = help.advise(witness, kinds)
    hint = types(location) if location else None
    expression = (
        expressions.likely_expression(location.file, location.line, location.column, advice.kinds)
        if location
        else None
    )
    end_column = None
    if location and expression:
        if expression.line == location.line:
            location = dataclasses.replace(location, column=expression.column)
        if expression.line == expression.end_line == location.line:
            end_column = expression.end_column
    text = (hint.expression if hint else None) or (expression.text if expression else None)
    type_ = hint.type if hint and witness.effect is Effect.ALLOCATE else None
    return Finding(
        code=advice.code,
        effect=witness.effect,
        path=witness.path,
        occasion=witness.occasion,
        symbol=witness.symbol,
        message=_message(witness, advice, type_, text),
        type=type_,
        expression=text,
        size=_bytes(witness),
        backtrace=witness.backtrace,
        reason=witness.reason,
        source=witness.source,
        help=_help(advice.help, text),
        location=location,
        end_column=end_column,
    )


_TAKES_BYTES = re.compile(
    r"(Py(Mem|Object)_(Raw)?(M|Re)|m|re|v|pv)alloc|_Zn[wa]m\w*"
    r"|NRT_(MemInfo_(new_varsize|(varsize_)?(re)?alloc)|Allocate|Reallocate)\w*"
)
"""Symbols whose first integer is how many bytes are asked for. That of others counts dimensions,
threads or entries."""


def _bytes(witness: Witness) -> int | None:
    if witness.effect is Effect.ALLOCATE and _TAKES_BYTES.fullmatch(witness.symbol):
        return witness.size
    return None


def _message(
    witness: Witness, advice: help.Advice, type_: str | None, expression: str | None
) -> str:
    """Write one sentence: what happens, to what, when, and in which expression."""
    what = advice.what
    if type_ is not None:
        what = type_ if advice.typed else f"{what} ({type_})"
    elif (count := _bytes(witness)) is not None:
        size = f"{count} byte{'' if count == 1 else 's'}"
        what = f"{size} for {what}" if what != "memory" else size
    match witness.effect:
        case Effect.ALLOCATE:
            sentence = f"{'may allocate' if witness.condition else 'allocates'} {what}"
        case Effect.FREE:
            sentence = f"may free {what}"
        case Effect.BLOCK:
            sentence = f"may wait for {what}"
        case Effect.PYTHON:
            sentence = f"enters the interpreter for {what}"
        case Effect.DISPATCH:
            sentence = f"calls through {what}, whose target is not known"
        case Effect.RAISE:
            sentence = f"may raise {what}"
        case Effect.UNKNOWN:
            sentence = f"reaches {witness.symbol}, {what}"
    if witness.effect is Effect.PYTHON and what == "the interpreter":
        sentence = f"enters the interpreter at {witness.symbol}"
    when = {
        Path.RETURN: f" on {witness.occasion}" if witness.occasion is _EVERY else "",
        Path.RAISE: " when it raises",
        Path.DIVERGE: " in a loop that never ends",
    }[witness.path]
    if witness.occasion is not _EVERY:
        when += f" on the {witness.occasion}"
    if witness.effect in (Effect.DISPATCH, Effect.UNKNOWN) and witness.occasion is _EVERY:
        when = when if witness.path is not Path.RETURN else ""
    if witness.condition:
        # Contracts word it freely ("only when ..."), so it cannot be a part of the sentence.
        when += f" ({witness.condition})"
    return sentence + when + (f": {_short(expression)}" if expression else "")


_EVERY = Occasion.EVERY_CALL


def _short(text: str, width: int = 60) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3] + "..."


def _help(template: str, expression: str | None) -> str:
    if "{buffer}" not in template:
        return template
    from alloccheck import expressions

    steps = expressions.into_buffer(expression) if expression else None
    return template.replace("{buffer}", f": `{steps}`" if steps else ", or loop over the elements")


def _order(finding: Finding) -> tuple[object, ...]:
    where = finding.location
    return (
        where.file if where else "",
        where.line if where else 0,
        (where.column or 0) if where else 0,
        finding.code,
        finding.symbol,
        tuple((one.file, one.line, one.column or 0, one.function) for one in finding.backtrace),
        finding.effect,
        finding.occasion,
        finding.path,
        finding.size or 0,
    )

"""Programs as tests: what the checker must say stands in the program, on the line it belongs to.

A *case* is one small program under ``tests/cases``. Its docstring says what it shows and, when
it comes from a public report, where that report is. Module-level names ask the question:

=================  ==============================================================================
``ENTRY``          the function to check: plain Python or already jitted
``SIGNATURE``      its argument types, as a Numba signature string or a tuple of types
``OPTIONS``        jit options (default: none)
``GUARANTEE``      ``"nonallocating"`` (default) or ``"nonblocking"``
``IGNORE_THROW``   default False: what happens only when raising is asked for, and annotated
``FIRST_CALL``     ``"prepare"`` (default), ``"forbid"`` or ``"allow"``
``ENTRY_KIND``     ``"python"`` (default) or ``"c"``
``ARGS``           a function that returns example arguments, for counting at run time
``RESULT``         what those arguments must give
``RETURNS``        the inferred return type, as Numba prints it
``RAISES``         whether the call may end by raising
``PRELUDES``       named functions of no arguments: histories after which the answer must stand
``REFUSED``        a regular expression: the question must be refused with such a message
=================  ==============================================================================

An *annotation* is a comment at the end of the line that a finding belongs to, which is the
innermost line of the program in the finding's backtrace. One that starts with a caret stands on a
line of its own and speaks of the line of code above it::

    w = np.zeros(n)                   # ! allocate
    raise ValueError("too low", x)    # ! allocate raise
    u = np.random.random()            # ! python first-call-per-thread numba_get_np_random_state
    v = u @ u                         # ! python first-call; allocate first-call
    # !^ free first-call code=AC201

Its grammar, where brackets enclose what may be left out::

    annotation = ("# ! " | "# !^ ") item *("; " item)
    item       = effect [path] [occasion] [symbol] ["code=" code]
    effect     = "allocate" | "free" | "block" | "python" | "raise" | "dispatch" | "unknown"
    path       = "return" | "raise" | "diverge"                            (default: return)
    occasion   = "every-call" | "first-call" | "first-call-per-thread"     (default: every-call)
    symbol     = a name or shell pattern that the finding's symbol must match
    code       = "AC" and three digits, which the finding must have

The harness demands these findings and no others. Findings of one line are merged by effect,
path and occasion. One that another of the same line and effect covers is not written down: what
may happen when returning covers what may happen when diverging or raising, and what may happen
on every call covers what may happen on some.

The verdict that people get, with ``ignore_throw=True``, follows from the annotations and is asked
for too. This module knows the words of the package, never how a verdict comes about.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import Refused
from alloccheck.findings import Finding, Report

CASES = FilePath(__file__).parent / "cases"

_EFFECTS = {str(effect): effect for effect in Effect}
_PATHS = {str(path): path for path in Path}
_OCCASIONS = {str(occasion).replace(" ", "-"): occasion for occasion in Occasion}
_NAMES = {
    "ENTRY",
    "SIGNATURE",
    "OPTIONS",
    "GUARANTEE",
    "IGNORE_THROW",
    "FIRST_CALL",
    "ENTRY_KIND",
    "ARGS",
    "RESULT",
    "RETURNS",
    "RAISES",
    "PRELUDES",
    "REFUSED",
}

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Analyze = Callable[..., Report]


class CaseError(Exception):
    """The case itself is wrong: a malformed annotation or a missing name."""


class Mismatch(AssertionError):
    """What was found is not what the program's annotations say."""


# --- expectations ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What findings are merged by."""

    line: int
    effect: Effect
    path: Path
    occasion: Occasion

    def covers(self, other: Key) -> bool:
        """Whether this finding makes the other one superfluous."""
        paths = (Path.RAISE, Path.DIVERGE, Path.RETURN)
        occasions = (Occasion.FIRST_CALL, Occasion.FIRST_CALL_PER_THREAD, Occasion.EVERY_CALL)
        return (
            self != other
            and (self.line, self.effect) == (other.line, other.effect)
            and paths.index(self.path) >= paths.index(other.path)
            and occasions.index(self.occasion) >= occasions.index(other.occasion)
        )

    def __str__(self) -> str:
        words = [str(self.effect)]
        if self.path is not Path.RETURN:
            words.append(str(self.path))
        if self.occasion is not Occasion.EVERY_CALL:
            words.append(str(self.occasion).replace(" ", "-"))
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Expected:
    """One item of an annotation."""

    key: Key
    symbol: str | None = None
    code: str | None = None

    def accepts(self, finding: Finding) -> bool:
        """Whether a finding with the same key has the symbol and the code that are asked for."""
        return (self.symbol is None or fnmatch.fnmatchcase(finding.symbol, self.symbol)) and (
            self.code is None or finding.code == self.code
        )

    def __str__(self) -> str:
        words = [str(self.key)]
        if self.symbol is not None:
            words.append(self.symbol)
        if self.code is not None:
            words.append(f"code={self.code}")
        return " ".join(words)


def parse_annotations(source: str, filename: str = "<case>") -> tuple[Expected, ...]:
    """Return what the end-of-line comments of a program expect.

    Raises
    ------
    CaseError
        When a comment looks like an annotation but does not follow the grammar.

    Examples
    --------
    >>> [str(e) for e in parse_annotations("f()  # ! allocate raise NRT_*; python code=AC103")]
    ['allocate raise NRT_*', 'python code=AC103']
    """
    expected: list[Expected] = []
    line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            line = token.start[0]
        if token.type != tokenize.COMMENT or not re.match(r"#\s*!", token.string):
            continue
        where = f"{filename}:{token.start[0]}"
        above = token.string.startswith("# !^ ")
        alone = line != token.start[0]
        if not above and not token.string.startswith("# ! "):
            raise CaseError(f"{where}: an annotation starts with '# ! ', not {token.string!r}")
        if above != alone or not line:
            raise CaseError(
                f"{where}: an annotation stands at the end of the line that it is about; "
                f"on a line of its own it starts with '# !^ ' and is about the line above"
            )
        for text in token.string.removeprefix("# !").lstrip("^").split(";"):
            item = _parse_item(text, line, where)
            if any(item.key == other.key for other in expected):
                raise CaseError(f"{where}: '{item.key}' is stated twice")
            for other in expected:
                if item.key.covers(other.key) or other.key.covers(item.key):
                    raise CaseError(
                        f"{where}: one of '{item.key}' and '{other.key}' covers the other; "
                        f"write the stronger one alone"
                    )
            expected.append(item)
    return tuple(expected)


def _parse_item(text: str, line: int, where: str) -> Expected:
    words = text.split()
    if not words:
        raise CaseError(f"{where}: an empty item; expected an effect: {', '.join(_EFFECTS)}")
    effect, *qualifiers = words
    if effect not in _EFFECTS:
        raise CaseError(
            f"{where}: unknown effect {effect!r}; expected one of {', '.join(_EFFECTS)}"
        )
    given: dict[str, Any] = {}

    def give(what: str, value: Any) -> None:
        if what in given:
            raise CaseError(f"{where}: two values for the {what} in {text.strip()!r}")
        given[what] = value

    for word in qualifiers:
        if word in _PATHS:
            give("path", _PATHS[word])
        elif word in _OCCASIONS:
            give("occasion", _OCCASIONS[word])
        elif word.startswith("code="):
            if not re.fullmatch(r"code=AC\d{3}", word):
                raise CaseError(f"{where}: a code is 'AC' and three digits, not {word[5:]!r}")
            give("code", word[5:])
        elif word in _EFFECTS:
            raise CaseError(f"{where}: two effects in {text.strip()!r}; separate items with ';'")
        elif re.fullmatch(r"[A-Za-z_.*?][\w.*?$@]*", word):
            give("symbol", word)
        else:
            raise CaseError(f"{where}: cannot read {word!r} in {text.strip()!r}")
    key = Key(
        line,
        _EFFECTS[effect],
        given.get("path", Path.RETURN),
        given.get("occasion", Occasion.EVERY_CALL),
    )
    return Expected(key, given.get("symbol"), given.get("code"))


# --- cases ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One program, its question and the answer that its annotations give."""

    name: str
    path: FilePath
    source: str
    module: ModuleType
    entry: Any
    signature: Any
    expected: tuple[Expected, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee = Guarantee.NONALLOCATING
    ignore_throw: bool = False
    first_call: str = "prepare"
    entry_kind: str = "python"
    arguments: Callable[[], tuple[Any, ...]] | None = None
    preludes: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    refused: str | None = None

    @property
    def proved(self) -> bool:
        """Whether the guarantee holds when what happens only on raising is left aside."""
        return self.refused is None and all(e.key.path is Path.RAISE for e in self.expected)

    def ask(self, analyze: Analyze, **changed: Any) -> Report:
        """Put the case's question to `analyze`."""
        question: dict[str, Any] = {
            "guarantee": str(self.guarantee),
            "ignore_throw": self.ignore_throw,
            "first_call": self.first_call,
            "entry": self.entry_kind,
        }
        return analyze(self.entry, self.signature, **(question | changed), **self.options)


def case_files() -> list[FilePath]:
    """All programs, by name."""
    return sorted(CASES.glob("*.py"))


def load_case(path: FilePath) -> Case:
    """Import a program anew, so that none of its functions has been compiled yet.

    Raises
    ------
    CaseError
        When a name is missing or unknown, or an annotation is malformed.
    """
    source = path.read_text()
    expected = parse_annotations(source, path.name)
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    given = {name: value for name, value in vars(module).items() if name in _NAMES}
    for name in ("ENTRY", "SIGNATURE"):
        if name not in given:
            raise CaseError(f"{path.name}: {name} is missing")
    if not module.__doc__:
        raise CaseError(f"{path.name}: no docstring says what the case shows")
    if given.get("REFUSED") is not None and expected:
        raise CaseError(f"{path.name}: what is refused has no findings to annotate")
    return Case(
        name=path.stem,
        path=path,
        source=source,
        module=module,
        entry=given["ENTRY"],
        signature=given["SIGNATURE"],
        expected=expected,
        options=given.get("OPTIONS", {}),
        guarantee=Guarantee(given.get("GUARANTEE", "nonallocating")),
        ignore_throw=given.get("IGNORE_THROW", False),
        first_call=given.get("FIRST_CALL", "prepare"),
        entry_kind=given.get("ENTRY_KIND", "python"),
        arguments=given.get("ARGS"),
        preludes=given.get("PRELUDES", {}),
        refused=given.get("REFUSED"),
    )


# --- comparison -----------------------------------------------------------------------------


def line_of(finding: Finding, path: FilePath) -> int:
    """Innermost line of the program in a finding's backtrace; 0 when there is none."""
    for frame in finding.backtrace:
        if frame.line and FilePath(frame.file).resolve() == path.resolve():
            return frame.line
    return 0


def merge(findings: Iterable[Finding], path: FilePath) -> dict[Key, list[Finding]]:
    """Findings by key, without those that another key covers."""
    merged: dict[Key, list[Finding]] = {}
    for finding in findings:
        key = Key(line_of(finding, path), finding.effect, finding.path, finding.occasion)
        merged.setdefault(key, []).append(finding)
    return {
        key: group
        for key, group in sorted(merged.items())
        if not any(other.covers(key) for other in merged)
    }


def differences(case: Case, report: Report) -> list[str]:
    """Sentences on how a report differs from a case's annotations; empty when it does not."""
    found = merge(report.findings, case.path)
    lines = case.source.splitlines()
    said: list[str] = []

    def say(line: int, sentence: str) -> None:
        where = f"{case.path.name}:{line}" if line else f"{case.path.name}: (no line of it)"
        excerpt = f"\n    {line:4} | {lines[line - 1]}" if line else ""
        said.append(f"{where}: {sentence}{excerpt}")

    for item in case.expected:
        group = found.get(item.key)
        if group is None:
            say(item.key.line, f"expected '{item}', not found")
        elif not any(item.accepts(finding) for finding in group):
            seen = ", ".join(sorted({f"{f.symbol} code={f.code}" for f in group}))
            say(item.key.line, f"expected '{item}', found '{item.key}' with {seen}")
    keys = {item.key for item in case.expected}
    for key, group in found.items():
        if key not in keys:
            symbols = ", ".join(sorted({f.symbol for f in group}))
            say(key.line, f"found '{key}' ({symbols}), not expected")

    returns = getattr(case.module, "RETURNS", None)
    if returns is not None and not report.signature.startswith(f"{returns}("):
        said.append(f"{case.path.name}: expected to return {returns}, found {report.signature}")
    raises = getattr(case.module, "RAISES", None)
    if raises is not None and raises != (Effect.RAISE in report.effects):
        said.append(f"{case.path.name}: expected that it {'may' if raises else 'cannot'} raise")
    if said:
        said.append(f"To say what was found, annotate:\n{annotated(case, report)}")
    return said


def annotated(case: Case, report: Report) -> str:
    """Lines of the program with the annotations that would fit a report."""
    items: dict[int, list[str]] = {item.key.line: [] for item in case.expected}
    for key in merge(report.findings, case.path):
        items.setdefault(key.line, []).append(str(key))
    lines = case.source.splitlines()
    written = []
    for line, texts in sorted(items.items()):
        code = re.sub(r"\s*# ! .*", "", lines[line - 1]) if line else "(no line of the program)"
        written.append(f"    {line:4} | {code}" + (f"  # ! {'; '.join(texts)}" if texts else ""))
    return "\n".join(written)


def check_case(case: Case, analyze: Analyze) -> Report | None:
    """Ask a case's question and demand exactly the findings that it is annotated with.

    Returns
    -------
    Report or None
        The report; None for a question that was refused, as it had to be.

    Raises
    ------
    Mismatch
        With a sentence for each difference, and the annotations that would fit.
    """
    if case.refused is not None:
        try:
            report = case.ask(analyze)
        except Refused as refusal:
            if not re.search(case.refused, str(refusal)):
                raise Mismatch(
                    f"{case.path.name}: refused with {str(refusal)!r}, "
                    f"which does not match {case.refused!r}"
                ) from refusal
            return None
        raise Mismatch(
            f"{case.path.name}: expected to be refused, got {report.findings or 'a pass'}"
        )
    report = case.ask(analyze)
    said = differences(case, report)
    if report.ok != (not report.findings):
        said.append(f"{case.path.name}: ok is {report.ok} with {len(report.findings)} findings")
    if not case.ignore_throw and any(e.key.path is Path.RAISE for e in case.expected):
        usual = case.ask(analyze, ignore_throw=True)
        if usual.ok != case.proved:
            said.append(
                f"{case.path.name}: with ignore_throw=True expected to be "
                f"{'proved' if case.proved else 'found fault with'}, and was not"
            )
    if said:
        raise Mismatch("\n".join(said))
    return report


# --- what must not change -------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The part of a report that must be the same after every history."""

    findings: tuple[tuple[str, str], ...]
    signature: str
    digest: str


def answer_of(case: Case, report: Report) -> Answer:
    """Reduce a report to what must be the same after every history."""
    found = merge(report.findings, case.path)
    return Answer(
        tuple((f"line {key.line}", str(key)) for key in found),
        # Numba prints the address of a jitclass or a function into the name of its type.
        re.sub(r"(#|\b0x)[0-9a-f]+", r"\1", report.signature),
        str(report.certificate.digest) if report.certificate is not None else "",
    )

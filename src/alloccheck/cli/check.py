"""`alloccheck check`: prove functions from the command line.

Knows targets, options and exit codes; how a proof works is the road's business.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from alloccheck.analysis.contracts import Contract, contracts_from_mapping
from alloccheck.cli.discover import Problem, Subject, discover, import_path
from alloccheck.cli.road import Road, default_road
from alloccheck.cli.terminal import color_option, columns, use_color
from alloccheck.config import Config, load_config
from alloccheck.effects import Guarantee
from alloccheck.errors import (
    AllocCheckError,
    AllocCheckException,
    ContractError,
    UsageError,
    unexpected,
)
from alloccheck.findings import Report
from alloccheck.report.json import to_json
from alloccheck.report.printed import printed
from alloccheck.report.text import render_text

RUN_SCHEMA = "alloccheck.run/1"
"""Name and version of the form of a run's JSON."""

_WIDTH = 100
"""Columns where there is no terminal to ask."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the summary."""

    function: str
    signature: str
    verdict: str
    findings: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Run:
    """Everything that one command decided, and what it could not decide."""

    reports: list[Report] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    without_signature: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    strict: bool = False

    @property
    def exit_code(self) -> int:
        """2 when anything was left undecided, else 1 when anything was found, else 0."""
        if self.problems or (self.strict and self.without_signature):
            return 2
        return int(any(not report.ok for report in self.reports))


def run_check(
    targets: Sequence[str],
    *,
    config: Config,
    road: Road,
    signatures: Sequence[str] = (),
    guarantee: Guarantee | None = None,
    ignore_throw: bool | None = None,
    strict: bool = False,
    confirm: bool = False,
) -> Run:
    """Check everything that the targets hold.

    Parameters
    ----------
    targets : sequence of str
        See :func:`alloccheck.cli.discover.discover`; empty: the modules named in the settings.
    config : Config
        The settings.
    road : Road
        The way from a function to a report.
    signatures : sequence of str
        For functions that a target names.
    guarantee, ignore_throw : optional
        Override what decorators and settings say.
    strict : bool
        Whether a decorated function without signature counts as undecided.
    confirm : bool
        Whether to run each function in a helper process, to see which findings fire.

    Returns
    -------
    Run
        Never raises for what a target holds: a target that cannot be decided is a problem.
    """
    run = Run(strict=strict or config.strict)
    named = list(targets) or list(dict.fromkeys(name.split(":")[0] for name in config.signatures))
    if not named:
        run.problems.append(Problem("check", "no target given, and no settings name any"))
        return run
    with import_path():
        found = discover(named, signatures, config, road)
        run.problems += found.problems
        for subject in found.subjects:
            if not subject.signatures:
                run.without_signature.append(subject.name)
                run.rows.append(Row(subject.name, "", "no signature"))
            for signature in subject.signatures:
                _check_one(run, subject, signature, config, road, guarantee, ignore_throw, confirm)
    if not (run.problems or run.reports):
        run.problems.append(
            Problem(
                " ".join(named),
                "nothing to check: no decorated function with a signature, "
                "and no signature in the settings or by --signature",
            )
        )
    return run


def _check_one(
    run: Run,
    subject: Subject,
    signature: Any,
    config: Config,
    road: Road,
    guarantee: Guarantee | None,
    ignore_throw: bool | None,
    confirm: bool,
) -> None:
    own = subject.function if subject.decorated else config
    options: dict[str, Any] = {} if subject.decorated else dict(config.jit)
    policy = getattr(subject.function, "policy", None)
    if policy is not None and policy.entry != "python":
        options["entry"] = policy.entry
    contracts = (*user_contracts(config), *(policy.contracts if policy is not None else ()))
    if contracts:
        options["contracts"] = contracts
    if confirm:
        options["confirm"] = True
    if config.store is not None:
        options["store"] = config.store
    shown = _shown(signature)
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if subject.receiver is not None and isinstance(signature, str):
                signature = road.of_method(subject.receiver, signature)
            report = road.analyze(
                subject.function,
                signature,
                guarantee=guarantee if guarantee is not None else own.guarantee,
                ignore_throw=ignore_throw if ignore_throw is not None else own.ignore_throw,
                first_call=config.first_call if policy is None else policy.first_call,
                **options,
            )
    except AllocCheckError as error:
        report = error.report
    except Exception as error:
        # Whatever goes wrong with one function, the rest is still checked: the boundary is here.
        run.problems.append(Problem(f"{subject.name} {shown}", _sentence(error)))
        run.rows.append(Row(subject.name, shown, "undecided", None, time.perf_counter() - start))
        return
    run.reports.append(report)
    run.rows.append(
        Row(
            report.function,
            report.signature,
            "proved" if report.ok else "not proved",
            len(report.findings),
            time.perf_counter() - start,
        )
    )


def user_contracts(config: Config) -> tuple[Contract, ...]:
    """Read the contracts that the settings declare.

    Parameters
    ----------
    config : Config
        The settings.

    Raises
    ------
    ContractError
        For an entry that is malformed, or names no symbol.

    Examples
    --------
    >>> user_contracts(Config())
    ()
    """
    found: list[Contract] = []
    for entry in config.contracts:
        symbol = entry.get("symbol")
        if not isinstance(symbol, str):
            raise ContractError(
                "pyproject.toml: each [[tool.alloccheck.contracts]] needs a `symbol`, a string; "
                f"found {dict(entry)!r}"
            )
        rest = {key: value for key, value in entry.items() if key != "symbol"}
        found += contracts_from_mapping({symbol: rest}, "pyproject.toml")
    return tuple(found)


def _shown(signature: Any) -> str:
    if isinstance(signature, tuple):
        return f"({', '.join(map(str, signature))})"
    return str(signature)


def _sentence(error: Exception) -> str:
    """Say what happened: our own exceptions speak for themselves, others need a word."""
    if isinstance(error, AllocCheckException):
        return str(error)
    if type(error).__module__.startswith("numba."):
        return f"does not compile: {error}"
    return unexpected(error)


def run_to_json(run: Run) -> str:
    """Write a run as JSON in the schema ``alloccheck.run/1``, without anything that varies.

    Parameters
    ----------
    run : Run
        What was decided.

    Examples
    --------
    >>> run_to_json(Run()).splitlines()[1]
    '  "schema": "alloccheck.run/1",'
    """
    document = {
        "schema": RUN_SCHEMA,
        "exit_code": run.exit_code,
        "reports": [to_json(report) for report in run.reports],
        "problems": [{"target": one.target, "message": one.message} for one in run.problems],
        "without_signature": run.without_signature,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def run_to_text(run: Run, *, color: bool = False, width: int = _WIDTH) -> str:
    """Render a run for people: each report, then the table, then the sum.

    Parameters
    ----------
    run : Run
        What was decided.
    color : bool
        Whether to use the terminal's colours.
    width : int
        Columns to fit into.
    """
    parts = [render_text(report, color=color, width=width) + "\n" for report in run.reports]
    if run.rows:
        parts.append(_table(run.rows, color, width))
    parts.append(_sum(run))
    return "\n".join(parts)


def _sum(run: Run) -> str:
    verdicts = [row.verdict for row in run.rows]
    counts = [
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("proved", "not proved", "undecided", "no signature")
        if verdict in verdicts
    ]
    if run.problems:
        counts.append(f"{len(run.problems)} error{'s' if len(run.problems) != 1 else ''}")
    return ", ".join(counts) or "nothing checked"


_STYLES = {"proved": "green", "not proved": "red", "undecided": "yellow", "no signature": "yellow"}


def _table(rows: Sequence[Row], color: bool, width: int) -> str:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("function", overflow="fold")
    table.add_column("signature", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("findings", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.function),
            Text(row.signature),
            Text(row.verdict, style=_STYLES[row.verdict]),
            "" if row.findings is None else str(row.findings),
            "" if row.seconds is None else f"{row.seconds:.2f} s",
        )
    return printed(table, color=color, width=width) + "\n"


def _require_confirm(ctx: click.Context) -> None:
    """Refuse to begin where nothing can be run or generated; the checks themselves could be made.

    Raises
    ------
    click.UsageError
        With the reason.
    """
    # By name, because it imports Numba, which is slow.
    strategies: Any = importlib.import_module("alloccheck.confirm.strategies")
    oracle: Any = importlib.import_module("alloccheck.oracle")
    try:
        strategies.require_hypothesis()
        oracle.default_oracle().start()
    except AllocCheckException as error:
        raise click.UsageError(f"--confirm: {error}", ctx) from None


@click.command("check")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    metavar="S",
    help="Numba signature for the functions that TARGETs name; may be repeated.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--strict", is_flag=True, help="A decorated function without signature exits with 2.")
@click.option(
    "--effects",
    type=click.Choice([str(one) for one in Guarantee]),
    help="Check this guarantee instead of each function's own.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Run each function in a helper process on generated arguments: which findings fire?",
)
@click.option("--no-ignore-throw", is_flag=True, help="Count what happens only when raising, too.")
@color_option
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    signatures: tuple[str, ...],
    form: str,
    strict: bool,
    effects: str | None,
    confirm: bool,
    no_ignore_throw: bool,
    color: str,
) -> None:
    """Prove the functions in each TARGET.

    TARGET is a file, a directory, an importable module, module:function or path.py:function.
    Without any, the modules named under [tool.alloccheck.signatures] are checked. Exits with 0
    when everything was proved, 1 when something was found, and 2 when anything was left undecided
    or asked wrongly.
    """
    try:
        config = load_config(Path.cwd())
    except UsageError as error:
        raise click.UsageError(str(error), ctx) from None
    road = ctx.obj if isinstance(ctx.obj, Road) else default_road()
    if confirm:
        _require_confirm(ctx)
    run = run_check(
        targets,
        config=config,
        road=road,
        signatures=signatures,
        guarantee=Guarantee(effects) if effects else None,
        ignore_throw=False if no_ignore_throw else None,
        strict=strict,
        confirm=confirm,
    )
    for problem in run.problems:
        click.echo(f"error: {problem.target}: {problem.message}", err=True)
    if form == "json":
        click.echo(run_to_json(run))
    else:
        text = run_to_text(run, color=use_color(color), width=columns(_WIDTH))
        click.echo(text, color=True)
    ctx.exit(run.exit_code)

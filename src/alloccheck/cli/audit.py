"""`alloccheck audit`: prove everything that Numba compiles while a program runs.

Knows options and exit codes; recording and proving are the business of `alloccheck.audit`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import click

from alloccheck.audit.program import command_of
from alloccheck.audit.report import audit_to_json, audit_to_text
from alloccheck.audit.run import audit
from alloccheck.cli.check import user_contracts
from alloccheck.cli.terminal import color_option, columns, use_color
from alloccheck.config import load_config
from alloccheck.effects import Guarantee
from alloccheck.errors import AllocCheckException

_WIDTH = 140
"""Columns where there is no terminal to ask."""


@click.command(
    "audit",
    # What stands behind the program is the program's own.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENT...]")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as with `python -m`.")
@click.option(
    "--only",
    multiple=True,
    metavar="PACKAGE",
    help="Analyse the functions of this package or module alone; may be repeated.",
)
@click.option(
    "--effects",
    type=click.Choice([str(one) for one in Guarantee]),
    help="What is asked of each function.  [default: as the settings say, else nonallocating]",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the audit to FILE instead of standard output.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=0),
    default=min(os.cpu_count() or 1, 8),
    show_default=True,
    help="How many analyses run at once; 0: in the program's own process.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds for one analysis.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Also run what was proved, in a process that runs PROGRAM once more, and count.",
)
@color_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    module: bool,
    only: tuple[str, ...],
    effects: str | None,
    form: str,
    output: str | None,
    processes: int,
    timeout: float,
    confirm: bool,
    color: str,
) -> None:
    """Run PROGRAM and prove every function that Numba compiles for it.

    PROGRAM is a Python file, with -m a module, or the name of a console script such as pytest
    (write `-- pytest ...` to keep its options apart). It runs in this process, unchanged. Exits
    with 0 when everything was proved, 1 when something was found, and 2 when anything was left
    undecided, the program failed, or nothing was compiled.
    """
    if output is not None and not os.access(Path(output).absolute().parent, os.W_OK):
        # Told before the program runs, which may take hours.
        raise click.UsageError(f"--output: {output} is in no directory to write into", ctx)
    try:
        config = load_config(Path.cwd())
        program = command_of(words, module=module)
        contracts = user_contracts(config)
    except AllocCheckException as error:
        raise click.UsageError(str(error), ctx) from None
    # A program that prints must not get into the document.
    quiet = form == "json" and output is None
    try:
        with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
            found = audit(
                program,
                guarantee=Guarantee(effects) if effects else Guarantee(config.guarantee),
                only=only,
                contracts=contracts,
                first_call=config.first_call,
                processes=processes,
                timeout=timeout,
                confirm=confirm,
            )
    except AllocCheckException as error:
        raise click.UsageError(str(error), ctx) from None
    for problem in found.problems:
        click.echo(f"error: {program}: {problem}", err=True)
    if form == "json":
        text = audit_to_json(found)
    elif output is None:
        text = audit_to_text(found, color=use_color(color), width=columns(_WIDTH))
    else:
        text = audit_to_text(found, color=use_color(color, terminal=False), width=_WIDTH)
    if output is None:
        click.echo(text, color=True)
    else:
        Path(output).write_text(text + "\n", encoding="utf-8")
    ctx.exit(found.exit_code)

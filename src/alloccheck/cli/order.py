"""`alloccheck order`: what stock Numba makes of a function under different orders.

Knows options and exit codes; how the answers are found is the business of `alloccheck.order`.
"""

from __future__ import annotations

from pathlib import Path

import click

from alloccheck.cli.discover import split_target
from alloccheck.cli.terminal import color_option, columns, use_color
from alloccheck.errors import UsageError
from alloccheck.order.ask import ask
from alloccheck.order.report import exit_code, to_json, to_text
from alloccheck.order.run import Question
from alloccheck.order.scenarios import KINDS

_WIDTH = 120
"""Columns where there is no terminal to ask."""


@click.command("order")
@click.argument("target", metavar="TARGET")
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    required=True,
    metavar="S",
    help="Numba signature, for example '(float64[::1], int64)'; may be repeated.",
)
@click.option(
    "--args",
    "arguments",
    multiple=True,
    metavar="EXPR",
    help="Sample arguments as a Python tuple, in which np and the module's names are known; may "
    "be repeated. Otherwise they are generated from the signature.",
)
@click.option(
    "--history",
    "kinds",
    multiple=True,
    type=click.Choice(list(KINDS)),
    help="Only histories of this kind; may be repeated.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for one process.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many processes run at once.",
)
@color_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    signatures: tuple[str, ...],
    arguments: tuple[str, ...],
    kinds: tuple[str, ...],
    form: str,
    timeout: float,
    processes: int,
    color: str,
) -> None:
    """Show what stock Numba makes of TARGET under different orders.

    TARGET is module:function or path.py:function. The function is compiled and called in many
    fresh processes, each with another history, beside the interpreter and the hermetic answer.
    Exits with 1 when stock Numba's answer depends on the order, 0 when it does not, and 2 when
    that is undecided or asked wrongly.
    """
    place, function = split_target(target)
    if function is None:
        raise click.UsageError(
            f"{target!r} names no function; write module:function or path.py:function", ctx
        )
    comparisons = []
    for signature in signatures:
        question = Question(
            str(Path(place).resolve()) if place.endswith(".py") else place,
            function,
            signature,
            arguments,
            (str(Path.cwd()),),
            timeout,
        )
        try:
            found = ask(question, kinds=kinds or tuple(KINDS), processes=processes)
        except UsageError as error:
            click.echo(f"error: {target} {signature}: {error}", err=True)
            ctx.exit(2)
        comparisons.append(found)
    if form == "json":
        click.echo(to_json(comparisons))
    else:
        for one in comparisons:
            text = to_text(one, color=use_color(color), width=columns(_WIDTH))
            click.echo(text, color=True)
    ctx.exit(exit_code(comparisons))

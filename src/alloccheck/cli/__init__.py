"""The command `alloccheck`: a group whose commands are each a module of this package.

Knows the names of the commands; a command's module is loaded when it is used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from importlib import metadata
from typing import Any

import click

from alloccheck.errors import AllocCheckException, unexpected

COMMANDS = ("audit", "certificate", "check", "native", "order", "store")
"""Each is a module of this package with a click command named `command`."""


class _Commands(click.Group):
    """A group that imports a command's module on use, so that ``--version`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"alloccheck.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        # The answer of Click and of Python to all else is 1, which says here that something was
        # found, and that the list of it is whole.
        except KeyboardInterrupt:
            click.echo("interrupted: nothing was decided", err=True)
        except AllocCheckException as error:
            click.echo(f"error: {error}", err=True)
        except OSError as error:
            _forget_output()
            click.echo(f"error: {error}", err=True)
        except MemoryError as error:
            click.echo(f"error: {unexpected(error)}", err=True)
        except Exception:
            click.echo(f"internal error, please report it:\n{traceback.format_exc()}", err=True)
        return ctx.exit(2)


def _forget_output() -> None:
    """Let nothing more be written to standard output: at exit Python would try, and fail, again."""
    # A replaced stream, as in tests, has no descriptor and needs none of this.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def version() -> str:
    """Return the installed version of alloccheck.

    Examples
    --------
    >>> bool(version())
    True
    """
    try:
        return metadata.version("alloccheck")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="alloccheck")
def main() -> None:
    """Prove that Numba-compiled functions do not allocate."""

"""`alloccheck store`: what the artifact store holds, and emptying it.

Knows files and what their headers say; loads no code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from alloccheck.certificate import Certificate
from alloccheck.config import load_config
from alloccheck.container import from_bytes
from alloccheck.errors import Unstorable, UsageError
from alloccheck.storage import Storage, storage_at

_DIRECTORY = click.option(
    "--directory",
    metavar="DIR",
    help="Where it is; else as the settings say, else the user's own.",
)


@click.group("store")
def command() -> None:
    """Show and empty the directory of proved artifacts."""


@command.command("list")
@_DIRECTORY
def show(directory: str | None) -> None:
    """List what is kept: function, signature, guarantee and size of each file.

    Exits with 0 when each file is whole, 1 when one is damaged, 2 when the directory is refused.
    """
    storage = _storage(directory)
    damaged = False
    total = 0
    for key in _keys(storage):
        try:
            data = storage.read(key)
            if data is None:
                continue
            total += len(data)
            said = _said(from_bytes(data).record)
        except Unstorable as error:
            damaged = True
            said = f"refused: {error}"
            data = b""
        click.echo(f"{key[:12]}  {len(data):9d}  {said}")
    click.echo(f"{total} of {storage.size_limit} bytes in {storage.directory}")
    sys.exit(int(damaged))


@command.command("clear")
@_DIRECTORY
def clear(directory: str | None) -> None:
    """Remove what is kept; running processes are not affected."""
    storage = _storage(directory)
    keys = _keys(storage)
    for key in keys:
        storage.remove(key)
    left = len(_keys(storage))
    click.echo(f"removed {len(keys) - left} of {len(keys)} files in {storage.directory}")
    sys.exit(int(left > 0))


def _storage(directory: str | None) -> Storage:
    try:
        found = storage_at(directory or load_config(Path.cwd()).store or "user")
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    assert found is not None
    return found


def _keys(storage: Storage) -> tuple[str, ...]:
    try:
        return storage.keys()
    except Unstorable as error:
        raise click.UsageError(str(error)) from None


def _said(record: dict[str, Any]) -> str:
    if "certificate" not in record:
        return "compiled without a check"
    try:
        one = Certificate.from_json(record["certificate"])
    except UsageError as error:
        raise Unstorable(str(error)) from None
    return f"{one.function} {one.signature} {one.guarantee}"

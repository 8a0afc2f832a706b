"""`alloccheck certificate`: show, verify and compare certificates.

Knows targets, files and exit codes; how a proof or a comparison works is the other floors'
business.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alloccheck.certificate import Certificate, compare
from alloccheck.cli.check import user_contracts
from alloccheck.cli.discover import Subject, discover, import_path
from alloccheck.cli.road import default_road
from alloccheck.config import load_config
from alloccheck.errors import AllocCheckException, UsageError
from alloccheck.report.certificate import render_certificate, render_difference

if TYPE_CHECKING:
    from alloccheck.check import Verdict

_SIGNATURE = click.option(
    "--signature", metavar="S", help="Numba signature, for a function that has not exactly one."
)
_FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@click.group("certificate")
def command() -> None:
    """Show, verify and compare what proofs say about machine code."""


@command.command("show")
@click.argument("target", metavar="FILE|FUNCTION")
@_SIGNATURE
@_FORMAT
def show(target: str, signature: str | None, form: str) -> None:
    """Print a certificate.

    FILE is a JSON file that `show --format json` or `check --format json` wrote; FUNCTION is
    module:function or path.py:function, which is proved first. Exits with 0 when the certificate
    says "proved", 1 when it does not, 2 when there is none.
    """
    certificate = _certificate(target, signature)
    click.echo(_json(certificate) if form == "json" else render_certificate(certificate))
    sys.exit(0 if certificate.proved else 1)


@command.command("verify")
@click.argument("target", metavar="FUNCTION")
@_SIGNATURE
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Also require the same verdict, machine code and grounds as this certificate's.",
)
def verify(target: str, signature: str | None, against: str | None) -> None:
    """Prove FUNCTION, and compare its loaded machine code with the proof.

    Exits with 0 when it is proved and verified, 1 when not, 2 when nothing could be decided.
    """
    verdict = _prove(target, signature)
    from alloccheck.verification import verify as verify_artifact

    found = verify_artifact(verdict.artifact)
    click.echo(str(found))
    ok = found.ok and verdict.report.ok
    if not verdict.report.ok:
        click.echo(f"not proved: {len(verdict.report.findings)} findings; run `alloccheck check`")
    if against is not None:
        difference = compare(_read(Path(against)), verdict.report.certificate)
        if difference.changes:
            click.echo(render_difference(difference))
            ok = False
        else:
            click.echo(f"the same as {against}")
    sys.exit(0 if ok else 1)


@command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_SIGNATURE
def diff(before: str, after: str, signature: str | None) -> None:
    """Say what changed from certificate A to certificate B, and whether the verdict moved.

    Each is a FILE or a FUNCTION, as for `show`. Exits with 0 when they are equal, 1 when not.
    """
    found = compare(_certificate(before, signature), _certificate(after, signature))
    click.echo(render_difference(found))
    sys.exit(1 if found.changes else 0)


def _json(certificate: Certificate) -> str:
    return json.dumps(certificate.to_json(), indent=2, ensure_ascii=False)


def _certificate(target: str, signature: str | None) -> Certificate:
    if Path(target).is_file() and not target.endswith(".py"):
        return _read(Path(target))
    certificate: Certificate = _prove(target, signature).report.certificate
    return certificate


def _read(file: Path) -> Certificate:
    """Read a certificate, also out of a report or a run with one report."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from None
    if isinstance(data, dict) and isinstance(data.get("reports"), list):
        if len(data["reports"]) != 1:
            raise click.UsageError(
                f"{file} holds {len(data['reports'])} reports; a certificate belongs to one"
            )
        data = data["reports"][0]
    if isinstance(data, dict) and "certificate" in data:
        data = data["certificate"]
    try:
        return Certificate.from_json(data)
    except UsageError as error:
        raise click.UsageError(f"{file}: {error}") from None


def _prove(target: str, signature: str | None) -> Verdict:
    try:
        config = load_config(Path.cwd())
        # What a module prints when it is imported is no part of the answer.
        with import_path(), contextlib.redirect_stdout(sys.stderr):
            found = discover([target], [signature] if signature else [], config, default_road())
            for problem in found.problems:
                raise UsageError(f"{problem.target}: {problem.message}")
            subject = _only(target, found.subjects)
            return _prove_subject(subject, config)
    except AllocCheckException as error:
        raise click.UsageError(str(error)) from None


def _prove_subject(subject: Subject, config: Any) -> Verdict:
    from alloccheck.check import explained
    from alloccheck.compile.target import make_job
    from alloccheck.policy import Policy

    policy = subject.function.policy if subject.decorated else None
    if policy is None:
        policy = Policy.of(config.guarantee, config.ignore_throw, config.first_call)
    # As `alloccheck check` asks: the same question must not have two answers.
    policy = replace(policy, contracts=(*user_contracts(config), *policy.contracts))
    options = {} if subject.decorated else dict(config.jit)
    return explained(make_job(subject.function, subject.signatures[0], options), policy)


def _only(target: str, subjects: list[Subject]) -> Subject:
    if len(subjects) != 1:
        raise UsageError(
            f"{target} names {len(subjects)} functions; a certificate belongs to one. "
            "Write module:function"
        )
    count = len(subjects[0].signatures)
    if count != 1:
        raise UsageError(
            f"{subjects[0].name} has {count} signatures; a certificate belongs to one. "
            "Choose it with --signature"
        )
    return subjects[0]

"""Certificates and their differences as text for people.

Knows the certificate's parts; nothing of proofs, files or terminals.
"""

from __future__ import annotations

from alloccheck.certificate import Certificate, Difference


def render_certificate(certificate: Certificate) -> str:
    """Write a certificate as text, every part of it.

    Parameters
    ----------
    certificate : Certificate
        What was proved.

    Returns
    -------
    str
        Lines without a final newline.
    """
    one = certificate
    verdict = "proved" if one.proved else "NOT proved"
    throwing = "raise paths left out" if one.ignore_throw else "raise paths included"
    lines = [
        f"{one.function}  {one.signature}",
        f"  {verdict} {one.guarantee} ({throwing}, entry {one.entry}, first call {one.first_call})",
        f"  machine code {one.digest}",
    ]
    lines += _part(
        "functions compiled in",
        [
            f"{source.function}  {_short(source.source_digest)} code {_short(source.code_digest)}"
            for source in one.sources
        ],
    )
    lines += _part(
        "captured values",
        [
            f"{value.name} of {value.function} = {value.note}  {_short(value.digest)}"
            for value in one.captures
        ],
    )
    lines += _part(
        "external symbols",
        [
            f"{external.symbol}  {external.evidence}: {external.reason} [{external.source}]"
            for external in one.externals
        ],
    )
    lines += _part("checked at entry", list(one.conditions))
    lines += _part("assumptions", [f"{name}: {reason}" for name, reason in one.assumptions])
    lines += _part("prepared", list(one.prepared))
    settings = []
    for name, value in one.configuration.items():
        if isinstance(value, dict):
            settings += [f"{name}.{key} = {inner}" for key, inner in value.items()]
        else:
            settings.append(f"{name} = {value}")
    return "\n".join(lines + _part("configuration", settings))


def render_difference(difference: Difference) -> str:
    """Write what changed between two certificates, the verdict first.

    Parameters
    ----------
    difference : Difference
        What `alloccheck.certificate.compare` found.

    Returns
    -------
    str
        Lines without a final newline.
    """
    words = {True: "proved", False: "not proved"}
    before, after = words[difference.before.proved], words[difference.after.proved]
    moved = f"{before} -> {after}" if difference.verdict_moved else f"unchanged ({after})"
    lines = [
        f"verdict: {moved}",
        f"machine code: {'the same' if difference.same_code else 'different'}",
    ]
    lines += [f"  {one}" for one in difference.changes if one.part not in ("proved", "digest")]
    return "\n".join(lines)


def _part(title: str, rows: list[str]) -> list[str]:
    return [f"  {title}: none"] if not rows else [f"  {title}:", *(f"    {row}" for row in rows)]


def _short(digest: str | None) -> str:
    return "no digest" if digest is None else digest[:12]

"""A report as HTML for notebooks: self-contained, every text escaped."""

from __future__ import annotations

from html import escape
from string import Template

from alloccheck.findings import Report
from alloccheck.report.excerpt import Excerpt, Group, confirmations, excerpt, groups, place, trace
from alloccheck.report.text import verdict_line

_REPORT = Template("""\
<div class="alloccheck" style="font-family: sans-serif">
<p style="font-weight: bold; color: $color">$verdict</p>
$findings$assumptions$notes$trial</div>
""")

_GROUP = Template("""\
<details open style="margin: 0.5em 0; border-left: 3px solid $color; padding-left: 0.7em">
<summary><code>$place</code>: <b title="$title">$code</b> $message</summary>
$excerpt<ul>$traces</ul>
<p>$reasons</p>
$confirmations<p style="color: #1a7f37">$help</p>
</details>
""")

_RED, _GREEN = "#b42318", "#1a7f37"


def render_html(report: Report) -> str:
    """Render a report as one HTML element.

    Parameters
    ----------
    report : Report
        What to show.

    Returns
    -------
    str
        HTML in which every text of the user's is escaped.

    Examples
    --------
    >>> from alloccheck.effects import Guarantee
    >>> "&lt;lambda&gt;" in render_html(Report("dsp:<lambda>", "dsp.py", 3, "none()",
    ...     Guarantee.NONALLOCATING, True, (), frozenset()))
    True
    """
    return _REPORT.substitute(
        color=_GREEN if report.ok else _RED,
        verdict=escape(verdict_line(report)[0]),
        findings="".join(_group(report, group) for group in groups(report.findings)),
        assumptions="".join(
            f"<p>{'assumed' if one.used else 'assumption never used'}: "
            f"<code>{escape(one.function)}</code> is free of {escape(', '.join(one.effects))}: "
            f"{escape(one.reason)}</p>\n"
            for one in report.assumptions
        ),
        notes="".join(f"<p>note: {escape(note)}</p>\n" for note in report.notes),
        trial=f"<p>run to confirm: {escape(str(report.trial))}</p>\n" if report.trial else "",
    )


def _group(report: Report, group: Group) -> str:
    finding = group.first
    reasons = dict.fromkeys(
        f"<code>{escape(one.symbol)}</code>: {escape(one.reason)} <small>{escape(one.source)}"
        "</small>"
        for one in group.findings
    )
    return _GROUP.substitute(
        color=_RED,
        place=escape(place(report, finding)),
        title=escape(finding.title),
        code=escape(finding.code),
        message=escape(finding.message),
        excerpt=_excerpt(excerpt(finding)),
        traces="".join(
            f"<li><code>{escape(' <- '.join(trace(report, one)))}</code></li>"
            for one in group.findings
        ),
        reasons="<br>".join(reasons),
        confirmations="".join(f"<p>{escape(said)}</p>\n" for said in confirmations(group)),
        help=escape(f"help: {finding.help}") if finding.help else "",
    )


def _excerpt(shown: Excerpt | None) -> str:
    if shown is None:
        return ""
    end = shown.start + shown.length
    before, marked, after = (
        escape(part)
        for part in (shown.text[: shown.start], shown.text[shown.start : end], shown.text[end:])
    )
    return f"<pre>{shown.number:5d} | {before}<mark>{marked}</mark>{after}</pre>\n"

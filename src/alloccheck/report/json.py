"""A report as data, in a versioned schema that `schema.json` and ``docs/json-schema.md`` describe.

Seconds are left out: the same question must give the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from alloccheck.findings import Finding, Report
from alloccheck.source import Frame

REPORT_SCHEMA = "alloccheck.report/1"
"""Name and version of one report's form."""
REPORTS_SCHEMA = "alloccheck.reports/1"
"""Name and version of the form of several."""


def to_json(report: Report) -> dict[str, Any]:
    """Turn a report into plain data: dicts, lists, strings, numbers, booleans, None.

    Parameters
    ----------
    report : Report
        What to write.

    Returns
    -------
    dict
        In the schema ``alloccheck.report/1``.

    Examples
    --------
    >>> from alloccheck.effects import Guarantee
    >>> to_json(Report("dsp:gain", "dsp.py", 3, "none(float64)",
    ...                Guarantee.NONALLOCATING, True, (), frozenset()))["ok"]
    True
    """
    return {
        "schema": REPORT_SCHEMA,
        "ok": report.ok,
        "function": report.function,
        "file": report.file,
        "line": report.line,
        "signature": report.signature,
        "guarantee": str(report.guarantee),
        "ignore_throw": report.ignore_throw,
        "effects": sorted(str(effect) for effect in report.effects),
        "findings": [_finding(finding) for finding in report.findings],
        "assumptions": [
            {
                "function": one.function,
                "effects": [str(effect) for effect in one.effects],
                "reason": one.reason,
                "used": one.used,
            }
            for one in report.assumptions
        ],
        "notes": list(report.notes),
        "certificate": _plain(report.certificate),
        **({} if report.trial is None else {"trial": _plain(report.trial)}),
    }


def reports_to_json(reports: Iterable[Report]) -> str:
    """Write several reports as one JSON text with sorted, stable formatting.

    Parameters
    ----------
    reports : iterable of Report
        What to write, in this order.

    Examples
    --------
    >>> print(reports_to_json([]))
    {
      "schema": "alloccheck.reports/1",
      "reports": []
    }
    """
    document = {"schema": REPORTS_SCHEMA, "reports": [to_json(report) for report in reports]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "title": finding.title,
        "effect": str(finding.effect),
        "path": str(finding.path),
        "occasion": str(finding.occasion),
        "symbol": finding.symbol,
        "message": finding.message,
        "type": finding.type,
        "expression": finding.expression,
        "size": finding.size,
        "location": _frame(finding.location) if finding.location else None,
        "backtrace": [_frame(frame) for frame in finding.backtrace],
        "reason": finding.reason,
        "source": finding.source,
        "help": finding.help,
        **({} if finding.confirmation is None else {"confirmation": _plain(finding.confirmation)}),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "file": frame.file,
        "line": frame.line,
        "column": frame.column,
        "function": frame.function,
        "inlined": frame.inlined,
    }


def _plain(value: Any) -> Any:
    """Turn a certificate, which decides its own form where it has one, into plain data."""
    own = getattr(value, "to_json", None)
    if callable(own):
        return _plain(own())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {one.name: _plain(getattr(value, one.name)) for one in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(one) for one in value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float) else str(value)

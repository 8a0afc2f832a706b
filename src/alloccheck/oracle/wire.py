"""Counts as JSON and back. Knows the data types of both sides; nothing of sockets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from alloccheck.oracle import encoding
from alloccheck.oracle.counts import (
    CallCounts,
    Category,
    Counts,
    Coverage,
    Event,
    Place,
    Tally,
)


def counts_to_json(
    calls: Sequence[CallCounts],
    *,
    function: str,
    signature: str,
    artifact: bool,
    digest: str | None,
    coverage: Coverage,
    address: int = 0,
) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Return a message's head and byte strings."""
    results = encoding.encode([call.result for call in calls])
    described = [dataclasses.asdict(dataclasses.replace(call, result=None)) for call in calls]
    head = {
        "function": function,
        "signature": signature,
        "artifact": artifact,
        "digest": digest,
        "coverage": dataclasses.asdict(coverage),
        "address": address,
        "calls": described,
        "results": results.description,
    }
    return head, results.blobs


def counts_from_json(head: dict[str, Any], blobs: tuple[bytes, ...]) -> Counts:
    """Return what `counts_to_json` described."""
    results = encoding.decode(encoding.Encoded(head["results"], blobs))
    return Counts(
        function=head["function"],
        signature=head["signature"],
        calls=tuple(_call(c, r) for c, r in zip(head["calls"], results, strict=True)),
        artifact=head["artifact"],
        digest=head["digest"],
        coverage=Coverage(**head["coverage"]),
        address=head["address"],
    )


def _call(described: dict[str, Any], result: Any) -> CallCounts:
    return CallCounts(
        **{
            **described,
            "tallies": _tallies(described["tallies"]),
            "other_threads": _tallies(described["other_threads"]),
            "events": tuple(_event(e) for e in described["events"]),
            "result": result,
        }
    )


def _tallies(described: Sequence[dict[str, Any]]) -> tuple[Tally, ...]:
    return tuple(Tally(t["name"], Category(t["category"]), t["count"]) for t in described)


def _event(described: dict[str, Any]) -> Event:
    site = described["site"]
    return Event(
        described["name"],
        Category(described["category"]),
        described["size"],
        Place(**described["caller"]),
        None if site is None else Place(**site),
    )

"""Tries to refute each proof about a package: runs the proved machine code under the counter.

``python -m benchmarks.corpus.confirm PACKAGE`` prints a JSON document. Arguments are those of the
driver's own first call from Python; for functions that are only called by compiled code they are
generated from the signature.
"""

from __future__ import annotations

import sys
from typing import Any

from alloccheck.audit.judge import judge
from alloccheck.confirm.names import caller_types, signature_text
from alloccheck.confirm.strategies import arguments
from alloccheck.confirm.trial import Plan, run
from alloccheck.effects import Guarantee
from alloccheck.errors import AllocCheckException
from alloccheck.oracle import Counts, Oracle, made_by
from benchmarks.corpus import recorded
from benchmarks.process import report_result

EXAMPLES = 20
COLD = 1800.0
"""Seconds for a question for which the measuring process must run the driver first."""


def _measure(oracle: Oracle, package: str, number: int, digest: str) -> dict[str, Any]:
    one = recorded.record(package)[number]
    name = recorded.name_of(one.compiled)
    made = made_by(recorded.subject, package, name)
    refuted: list[str] = []

    def seen(given: tuple[Any, ...], counts: Counts, call: Any) -> None:
        if call.outcome == "returned":
            alone = type(counts)(**{**_fields(counts), "calls": (call,)})
            refuted.extend(alone.refutations(Guarantee.NONALLOCATING))

    if one.arguments is not None:
        source, strategy = "driver", None
        given: Any = [
            tuple(
                made_by(recorded.argument, package, name, position)
                for position in range(len(one.arguments))
            )
        ]
    else:
        source, given = "generated", None
        try:
            strategy = arguments(caller_types(one.compiled.argument_types))
        except AllocCheckException as reason:
            return {"source": "none", "note": str(reason)}
    plan = Plan(made, signature_text(one.compiled.argument_types), "numba", digest)
    tally = run(oracle, plan, given, strategy, seen, examples=EXAMPLES, cold_timeout=COLD)
    return {
        "source": source,
        "inputs": tally.inputs,
        "returned": tally.returned,
        "raised": tally.raised,
        "crashed": tally.crashed,
        "late": tally.late,
        "note": tally.note,
        "refuted": refuted,
    }


def _fields(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in counts.__dataclass_fields__}


def main(package: str) -> None:
    found = []
    proved = []
    for number, one in enumerate(recorded.record(package)):
        row = judge(one.compiled, Guarantee.NONALLOCATING)
        entry = {
            "function": row.function,
            "signature": row.signature,
            "kind": row.kind,
            "verdict": row.verdict,
            "reason": row.reason,
        }
        found.append(entry)
        if row.verdict == "proved" and row.report is not None:
            proved.append((number, entry, row.report["certificate"]["digest"]))
    # Those with arguments of their own first: generated ones may crash the process.
    proved.sort(key=lambda each: recorded.record(package)[each[0]].arguments is None)
    with Oracle(timeout=COLD) as oracle:
        for number, entry, digest in proved:
            try:
                entry["counted"] = _measure(oracle, package, number, digest)
            except AllocCheckException as error:
                entry["counted"] = {"source": "none", "note": str(error).splitlines()[0]}
            print(entry["function"], entry["counted"], file=sys.stderr, flush=True)
    report_result({"functions": found})


if __name__ == "__main__":
    main(sys.argv[1])

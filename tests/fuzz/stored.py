"""Tries to pass off damaged and forged files: ``python -m tests.fuzz.stored 10000``.

One in four is forged: code or header changed under a checksum that fits again; the others are
damaged. Prints how each was refused, and fails when one was accepted. A crash ends the command.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from numba import types

from alloccheck import check_allocs
from alloccheck.compile.job import CompileJob
from alloccheck.errors import Unstorable
from alloccheck.policy import Policy
from alloccheck.storage import Storage
from alloccheck.store import ArtifactStore
from store_programs import wrongly_accepted


def subject(x, y):
    if x > y:
        raise ValueError("the wrong way round", x)
    return 2.0 * x + y


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz.stored", description=__doc__)
    parser.add_argument("count", type=int, help="how many files to try")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        dispatcher = check_allocs(store=folder)(subject)
        dispatcher(1.0, 2.0)
        ((arguments, stored),) = dispatcher.stored.items()
        assert stored.path is not None, stored
        store = ArtifactStore(Storage(Path(folder)))
        job = CompileJob(subject, dispatcher, arguments)
        key, _ = store.key(job, Policy())
        assert key == stored.path.stem and arguments == (types.float64, types.float64)
        content = stored.path.read_bytes()

        def read(data: bytes) -> str | None:
            stored.path.write_bytes(data)
            try:
                store.bring_back(key, job, Policy())
            except Unstorable as error:
                reasons[re.sub(r"(, found|:? ?'|[0-9]| object).*", "", str(error))[:70]] += 1
                return str(error)
            return None

        assert read(content) is None, "the file itself is not accepted"
        seeds = range(options.first, options.first + options.count)
        accepted = wrongly_accepted(content, read, seeds)
        assert read(content) is None, "the file itself is not accepted any more"
    for reason, count in reasons.most_common():
        print(f"{count:7d}  {reason!a}")
    print(f"{sum(reasons.values())} refused, {len(accepted)} wrongly accepted {accepted[:10]}")
    return bool(accepted)


if __name__ == "__main__":
    sys.exit(main())

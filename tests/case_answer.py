"""Prints a case's answer as JSON: run by the tests in a fresh interpreter, with nothing before it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import alloccheck
from harness import answer_of, load_case

if __name__ == "__main__":
    case = load_case(Path(sys.argv[1]))
    print(json.dumps(asdict(answer_of(case, case.ask(alloccheck.analyze)))))

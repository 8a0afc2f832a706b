"""What another process needs in order to run a case's checked code: its entry and its arguments.

Functions here are named by module and arguments that travel, so that a measuring process can
call them. Knows cases and the package's public face only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import alloccheck
from harness import load_case


def checked_entry(path: str) -> Any:
    """The entry of a case as the package hands it out: proved, and bound to what was proved."""
    case = load_case(Path(path))
    decorate = alloccheck.check_allocs(
        case.signature, guarantee=str(case.guarantee), **case.options
    )
    return decorate(getattr(case.entry, "py_func", case.entry))


def argument(path: str, index: int) -> Any:
    """One of a case's example arguments."""
    case = load_case(Path(path))
    assert case.arguments is not None
    return case.arguments()[index]

"""What another process needs in order to run a case's checked code: its entry and its arguments.

Functions here are named by module and arguments that travel, so that a measuring process can
call them. Knows cases and the package's public face only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import alloccheck
from harness import Case, load_case


def decorated(case: Case, decorate: Callable[[Any], Any]) -> Any:
    """The entry of a case under another decorator, also where the program itself calls it."""
    result = decorate(getattr(case.entry, "py_func", case.entry))
    for name, value in list(vars(case.module).items()):
        if value is case.entry:
            setattr(case.module, name, result)
    return result


@cache
def loaded(path: str) -> Case:
    """A case, loaded once, so that its arguments have the types that its entry was checked for."""
    return load_case(Path(path))


def checked_entry(path: str) -> Any:
    """The entry of a case as the package hands it out: proved, and bound to what was proved."""
    case = loaded(path)
    decorate = alloccheck.check_allocs(guarantee=str(case.guarantee), **case.options)
    entry = decorated(case, decorate)
    entry.compile(case.signature)
    return entry


def argument(path: str, index: int) -> Any:
    """One of a case's example arguments."""
    case = loaded(path)
    assert case.arguments is not None
    return case.arguments()[index]

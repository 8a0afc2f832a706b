"""System calls by number: their names and what each may do.

Knows the table in `syscalls.toml`; nothing of code. Numbers decide, because they are what reaches
the kernel; a number that is not in the table is unknown.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

from alloccheck.errors import ContractError
from alloccheck.program.machine.images import EM_AARCH64, EM_X86_64

_ARCHITECTURES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64"}


class SystemCallKind(StrEnum):
    """What a system call does to the caller."""

    ALLOCATE = "allocate"
    FREE = "free"
    BLOCK = "block"
    NONE = "none"
    DEATH = "death"
    """The process ends."""
    THREAD_END = "thread_end"
    """The calling thread ends; the process goes on."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KnownSystemCall:
    """Name and kind of a system call."""

    name: str
    kind: SystemCallKind


def classify(machine: int, number: int) -> KnownSystemCall:
    """Look a system call up.

    Parameters
    ----------
    machine : int
        ELF machine number.
    number : int
        System call number.

    Examples
    --------
    >>> classify(EM_X86_64, 9)
    KnownSystemCall(name='mmap', kind=<SystemCallKind.ALLOCATE: 'allocate'>)
    >>> classify(EM_AARCH64, 9999).kind
    <SystemCallKind.UNKNOWN: 'unknown'>
    """
    found = _table(machine).get(number)
    return found or KnownSystemCall(f"number {number}", SystemCallKind.UNKNOWN)


@lru_cache(maxsize=4)
def _table(machine: int) -> dict[int, KnownSystemCall]:
    text = files(__package__).joinpath("syscalls.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    kinds = {name: SystemCallKind(kind) for kind, names in data["kinds"].items() for name in names}
    numbers = data["numbers"].get(_ARCHITECTURES.get(machine, ""), {})
    unlisted = set(kinds) - {name for table in data["numbers"].values() for name in table}
    if unlisted:
        raise ContractError(f"syscalls.toml classifies calls without a number: {sorted(unlisted)}")
    return {
        number: KnownSystemCall(name, kinds.get(name, SystemCallKind.BLOCK))
        for name, number in numbers.items()
    }

"""Proof that compiled Python does not allocate, and that the code proved is the code that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alloccheck.assumptions import assume
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import (
    AllocCheckError,
    AllocCheckException,
    CompileError,
    ContractError,
    ProgramError,
    ProofRefuted,
    Refused,
    UsageError,
    VerificationError,
)

if TYPE_CHECKING:
    from alloccheck.check import analyze, check_call
    from alloccheck.compile.prepare import prepare_thread
    from alloccheck.decorators import check_allocs, hermetic, nonblocking
    from alloccheck.dispatcher import AllocCheckWarning, CheckedDispatcher
    from alloccheck.findings import Finding, Report

__version__ = "0.1.0"

__all__ = [
    "AllocCheckError",
    "AllocCheckException",
    "AllocCheckWarning",
    "CheckedDispatcher",
    "CompileError",
    "ContractError",
    "Effect",
    "Finding",
    "Guarantee",
    "Occasion",
    "Path",
    "ProgramError",
    "ProofRefuted",
    "Refused",
    "Report",
    "UsageError",
    "VerificationError",
    "analyze",
    "assume",
    "check_allocs",
    "check_call",
    "hermetic",
    "nonblocking",
    "prepare_thread",
]

_LAZY = {
    "analyze": "alloccheck.check",
    "check_call": "alloccheck.check",
    "check_allocs": "alloccheck.decorators",
    "hermetic": "alloccheck.decorators",
    "nonblocking": "alloccheck.decorators",
    "AllocCheckWarning": "alloccheck.dispatcher",
    "CheckedDispatcher": "alloccheck.dispatcher",
    "prepare_thread": "alloccheck.compile.prepare",
    "Finding": "alloccheck.findings",
    "Report": "alloccheck.findings",
}
"""Names whose modules import Numba; loaded when first used, so that the rest stays light."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'alloccheck' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

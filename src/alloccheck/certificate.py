"""The certificate of a proof: what was proved, about which machine code, and why it is believed."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alloccheck.effects import Guarantee

SCHEMA = "alloccheck.certificate/1"


@dataclass(frozen=True, slots=True)
class External:
    """An external symbol that the code reaches, with the evidence about it."""

    symbol: str
    evidence: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a proof says, in a form that outlives the process.

    Parameters
    ----------
    function, signature : str
        ``module:qualname`` and Numba's full signature.
    guarantee : Guarantee
        What was asked.
    ignore_throw : bool
        Whether paths that end by raising were left out.
    first_call : str
        How first-call set-up was treated: ``prepare``, ``forbid`` or ``allow``.
    proved : bool
        Whether the guarantee holds.
    digest : str
        SHA-256 of machine code, read-only data and relocation targets.
    source_digest : str or None
        SHA-256 of the function's source text, when it can be read.
    externals : tuple of External
        Every external symbol that the checked entry reaches.
    assumptions : tuple of (str, str)
        Function and the sentence that stands behind trusting it.
    prepared : tuple of str
        Symbols whose process-wide set-up was triggered and verified.
    configuration : dict
        Settings, CPU and versions.
    """

    function: str
    signature: str
    guarantee: Guarantee
    ignore_throw: bool
    first_call: str
    proved: bool
    digest: str
    source_digest: str | None
    externals: tuple[External, ...]
    assumptions: tuple[tuple[str, str], ...]
    prepared: tuple[str, ...]
    configuration: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data under the schema ``alloccheck.certificate/1``."""
        return {
            "schema": SCHEMA,
            "function": self.function,
            "signature": self.signature,
            "guarantee": str(self.guarantee),
            "ignore_throw": self.ignore_throw,
            "first_call": self.first_call,
            "proved": self.proved,
            "digest": self.digest,
            "source_digest": self.source_digest,
            "externals": [
                {
                    "symbol": one.symbol,
                    "evidence": one.evidence,
                    "reason": one.reason,
                    "source": one.source,
                }
                for one in self.externals
            ],
            "assumptions": [
                {"function": name, "reason": reason} for name, reason in self.assumptions
            ],
            "prepared": list(self.prepared),
            "configuration": self.configuration,
        }


def source_digest(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of a function's source text, or None where it cannot be read.

    Parameters
    ----------
    function : Callable
        A Python function.

    Examples
    --------
    >>> source_digest(eval("lambda x: x")) is None
    True
    """
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()

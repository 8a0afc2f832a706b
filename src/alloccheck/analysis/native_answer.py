"""The answer to what a native function may do: effects, witnesses, and what they rest on.

Plain data that can be written down and read again; knows nothing of how it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alloccheck.analysis.contracts import Contract, ContractEffect
from alloccheck.effects import Effect, Guarantee, Occasion, Path


@dataclass(frozen=True, slots=True, order=True)
class NativeAssumption:
    """Something that was trusted and not proved."""

    name: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class NativeWitness:
    """One reason why native code may have an effect.

    Parameters
    ----------
    effect, path, occasion
        See :mod:`alloccheck.effects`; `path` is DIVERGE for what happens while the process dies.
    symbol : str
        What is reached: a symbol, ``system call mmap``, or a description.
    reason, source : str
        Why that has the effect, and where to check.
    trail : tuple of str
        Functions from the entry down to the one with the call, as ``library!symbol``.
    site : str
        Address of the last instruction, ``library+0x1234``.
    """

    effect: Effect
    path: Path
    occasion: Occasion
    symbol: str
    reason: str
    source: str
    trail: tuple[str, ...]
    site: str


@dataclass(frozen=True, slots=True)
class LibraryEvidence:
    """Identity of a library whose code was read."""

    name: str
    path: str
    build_id: str | None
    code_digest: str
    """SHA-256 of the executable segments in memory."""


@dataclass(frozen=True, slots=True)
class NativeEvidence:
    """What an answer rests on."""

    functions: tuple[str, ...]
    libraries: tuple[LibraryEvidence, ...]
    slots: tuple[tuple[str, str], ...]
    """Pointers that were followed, and where they led."""
    assumptions: tuple[NativeAssumption, ...]


@dataclass(frozen=True, slots=True)
class NativeAnswer:
    """What a function of native code may do.

    Parameters
    ----------
    symbol : str
        ``library!symbol``.
    address : int
        Live address.
    effects : frozenset of Effect
        On every path but process death; empty means clean.
    witnesses : tuple of NativeWitness
        One for each effect, occasion and thing reached.
    deaths : tuple of str
        Functions through which the process may end: noted, not forbidden.
    evidence : NativeEvidence
    """

    symbol: str
    address: int
    effects: frozenset[Effect]
    witnesses: tuple[NativeWitness, ...]
    deaths: tuple[str, ...]
    evidence: NativeEvidence

    def effects_after(self, *, first_call: bool) -> frozenset[Effect]:
        """Return the effects; with `first_call`, without what happens at the first call only.

        What happens at the first call of each thread is never left out.
        """
        return frozenset(
            w.effect
            for w in self.witnesses
            if w.path is not Path.DIVERGE and not (first_call and w.occasion is Occasion.FIRST_CALL)
        )

    def satisfies(self, guarantee: Guarantee, *, first_call: bool = False) -> bool:
        """Return whether no effect is forbidden by a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
        first_call : bool, optional
            Whether the function was called before, so that the first call does not count.
        """
        return not self.effects_after(first_call=first_call) & guarantee.forbidden

    @property
    def contract(self) -> Contract:
        """The answer in the form of a contract for the symbol."""
        found = {
            ContractEffect(w.effect, w.occasion)
            for w in self.witnesses
            if w.path is not Path.DIVERGE
        }
        libraries = ", ".join(
            f"{item.name} {item.build_id or item.code_digest[:16]}"
            for item in self.evidence.libraries
        )
        return Contract(
            self.symbol,
            tuple(sorted(found, key=lambda e: (e.effect, e.occasion))),
            f"machine code read: {len(self.evidence.functions)} functions",
            libraries or "jitted code",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain data for JSON."""
        return {
            "symbol": self.symbol,
            "address": f"{self.address:#x}",
            "effects": sorted(self.effects),
            "witnesses": [
                {
                    "effect": w.effect,
                    "path": w.path,
                    "occasion": w.occasion,
                    "symbol": w.symbol,
                    "reason": w.reason,
                    "source": w.source,
                    "trail": list(w.trail),
                    "site": w.site,
                }
                for w in self.witnesses
            ],
            "deaths": list(self.deaths),
            "evidence": {
                "functions": list(self.evidence.functions),
                "libraries": [
                    {
                        "name": item.name,
                        "path": item.path,
                        "build_id": item.build_id,
                        "code_digest": item.code_digest,
                    }
                    for item in self.evidence.libraries
                ],
                "slots": [list(pair) for pair in self.evidence.slots],
                "assumptions": [
                    {"name": a.name, "subject": a.subject, "reason": a.reason}
                    for a in self.evidence.assumptions
                ],
            },
        }


def answer_from_json(data: Mapping[str, Any], address: int) -> NativeAnswer:
    """Rebuild an answer; the inverse of `NativeAnswer.to_json`.

    Parameters
    ----------
    data : mapping
        What `to_json` gave.
    address : int
        Where the function is in this process.

    Raises
    ------
    KeyError, TypeError, ValueError
        If the data does not have that form.
    """
    evidence = data["evidence"]
    return NativeAnswer(
        str(data["symbol"]),
        address,
        frozenset(map(Effect, data["effects"])),
        tuple(
            NativeWitness(
                Effect(one["effect"]),
                Path(one["path"]),
                Occasion(one["occasion"]),
                str(one["symbol"]),
                str(one["reason"]),
                str(one["source"]),
                tuple(map(str, one["trail"])),
                str(one["site"]),
            )
            for one in data["witnesses"]
        ),
        tuple(map(str, data["deaths"])),
        NativeEvidence(
            tuple(map(str, evidence["functions"])),
            tuple(
                LibraryEvidence(one["name"], one["path"], one["build_id"], one["code_digest"])
                for one in evidence["libraries"]
            ),
            tuple((str(slot), str(target)) for slot, target in evidence["slots"]),
            tuple(
                NativeAssumption(one["name"], one["subject"], one["reason"])
                for one in evidence["assumptions"]
            ),
        ),
    )

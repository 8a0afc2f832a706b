"""The answer to what a native function may do: effects, witnesses, and what they rest on.

Plain data that can be written down and read again; knows nothing of how it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
        See :mod:`alloccheck.effects`; `path` is DIVERGE for what happens while the process dies,
        and RAISE for what happens only when the call ends by unwinding or by a jump out.
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

    def effects_after(self, *, first_call: bool, ignore_throw: bool = False) -> frozenset[Effect]:
        """Return the effects; with `first_call`, without what happens at the first call only.

        What happens at the first call of each thread is never left out. With `ignore_throw`, what
        happens only when the call ends by unwinding is left out, but not that it may.
        """
        return frozenset(
            w.effect
            for w in self.witnesses
            if w.path is not Path.DIVERGE
            and not (first_call and w.occasion is Occasion.FIRST_CALL)
            and not (ignore_throw and w.path is Path.RAISE and w.effect is not Effect.RAISE)
        )

    def satisfies(
        self, guarantee: Guarantee, *, first_call: bool = False, ignore_throw: bool = True
    ) -> bool:
        """Return whether no effect is forbidden by a guarantee.

        Parameters
        ----------
        guarantee : Guarantee
        first_call : bool, optional
            Whether the function was called before, so that the first call does not count.
        ignore_throw : bool, optional
            Leave out what happens only when the call ends by unwinding.
        """
        found = self.effects_after(first_call=first_call, ignore_throw=ignore_throw)
        return not found & guarantee.forbidden

    @property
    def contract(self) -> Contract:
        """The answer in the form of a contract for the symbol."""
        found = {
            ContractEffect(w.effect, w.occasion, w.path)
            for w in self.witnesses
            if w.path is not Path.DIVERGE
        }
        found = {e for e in found if replace(e, path=Path.RETURN) not in found - {e}}
        libraries = ", ".join(
            f"{item.name} {item.build_id or item.code_digest[:16]}"
            for item in self.evidence.libraries
        )
        return Contract(
            self.symbol,
            tuple(sorted(found, key=lambda e: (e.effect, e.occasion, e.path))),
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

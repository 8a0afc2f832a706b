"""What is asked of a function, apart from its signature. Knows words and contracts, no compiler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError

if TYPE_CHECKING:
    from alloccheck.analysis.contracts import Contract

Entry = Literal["python", "c"]
FirstCall = Literal["prepare", "forbid", "allow"]
"""What to do about effects that only a first call can have."""


@dataclass(frozen=True)
class Policy:
    """What is asked of a function, apart from its signature.

    Parameters
    ----------
    guarantee : Guarantee
        Which effects are forbidden.
    ignore_throw : bool
        Leave out what happens only when the call as a whole ends by raising.
    first_call : {"prepare", "forbid", "allow"}
        How process-wide lazy set-up is treated.
    entry : {"python", "c"}
        Check the native function, or its C entry.
    contracts : tuple of Contract
        The user's own contracts for external symbols.
    """

    guarantee: Guarantee = Guarantee.NONALLOCATING
    ignore_throw: bool = True
    first_call: FirstCall = "prepare"
    entry: Entry = "python"
    contracts: tuple[Contract, ...] = ()

    @classmethod
    def of(
        cls,
        guarantee: str | Guarantee = Guarantee.NONALLOCATING,
        ignore_throw: bool = True,
        first_call: str = "prepare",
        entry: str = "python",
        contracts: Iterable[Contract] = (),
    ) -> Policy:
        """Validate words that users wrote.

        Raises
        ------
        UsageError
            Naming the word and the possible ones.

        Examples
        --------
        >>> Policy.of("nonblocking").guarantee
        <Guarantee.NONBLOCKING: 'nonblocking'>
        >>> Policy.of("nonalocating")
        Traceback (most recent call last):
            ...
        alloccheck.errors.UsageError: guarantee must be one of nonallocating, nonblocking, \
found 'nonalocating'
        """
        words: Mapping[str, tuple[object, tuple[str, ...]]] = {
            "guarantee": (guarantee, tuple(map(str, Guarantee))),
            "first_call": (first_call, ("prepare", "forbid", "allow")),
            "entry": (entry, ("python", "c")),
        }
        for name, (value, allowed) in words.items():
            if value not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}, found {value!r}")
        if not isinstance(ignore_throw, bool):
            raise UsageError(f"ignore_throw must be True or False, found {ignore_throw!r}")
        return cls(Guarantee(guarantee), ignore_throw, first_call, entry, tuple(contracts))  # type: ignore[arg-type]

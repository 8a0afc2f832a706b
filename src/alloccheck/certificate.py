"""The certificate of a proof: what was proved, about which machine code, and why it is believed.

Plain data with a schema of its own (``docs/certificates.md``), and the comparison of two of them.
Knows effects; nothing of compilers, memory or terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError

SCHEMA = "alloccheck.certificate/1"


@dataclass(frozen=True, slots=True)
class Source:
    """A function of the user's that is compiled into the code.

    `source_digest` is None where the text cannot be read; `code_digest` is that of the bytecode.
    """

    function: str
    source_digest: str | None
    code_digest: str


@dataclass(frozen=True, slots=True)
class Captured:
    """A global, module attribute or closure variable that was frozen into the code.

    `digest` is None where only identity can be compared; `note` says what the value is.
    """

    function: str
    name: str
    digest: str | None
    note: str


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
    entry : str
        Which way in was checked: ``python`` (the native function) or ``c`` (all C entries).
    proved : bool
        Whether the guarantee holds.
    digest : str
        SHA-256 of machine code, read-only data and relocation targets.
    sources : tuple of Source
        Every function of the user's that is compiled in, the root first.
    captures : tuple of Captured
        Every value that these took from around them.
    externals : tuple of External
        Every external symbol that the checked entry reaches.
    assumptions : tuple of (str, str)
        Function and the sentence that stands behind trusting it.
    prepared : tuple of str
        Symbols whose process-wide set-up was triggered and verified.
    configuration : dict
        Settings, CPU and versions.
    conditions : tuple of str
        What the code checks when it is entered, and raises where it does not hold.
    """

    function: str
    signature: str
    guarantee: Guarantee
    ignore_throw: bool
    first_call: str
    entry: str
    proved: bool
    digest: str
    sources: tuple[Source, ...]
    captures: tuple[Captured, ...]
    externals: tuple[External, ...]
    assumptions: tuple[tuple[str, str], ...]
    prepared: tuple[str, ...]
    configuration: dict[str, Any]
    conditions: tuple[str, ...] = ()

    @property
    def source_digest(self) -> str | None:
        """SHA-256 of the root function's source text, when it could be read."""
        return self.sources[0].source_digest if self.sources else None

    def to_json(self) -> dict[str, Any]:
        """Return plain data under the schema ``alloccheck.certificate/1``."""
        return {
            "schema": SCHEMA,
            "function": self.function,
            "signature": self.signature,
            "guarantee": str(self.guarantee),
            "ignore_throw": self.ignore_throw,
            "first_call": self.first_call,
            "entry": self.entry,
            "proved": self.proved,
            "digest": self.digest,
            "sources": [_plain(one) for one in self.sources],
            "captures": [_plain(one) for one in self.captures],
            "externals": [_plain(one) for one in self.externals],
            "assumptions": [
                {"function": name, "reason": reason} for name, reason in self.assumptions
            ],
            "prepared": list(self.prepared),
            "configuration": self.configuration,
            "conditions": list(self.conditions),
        }

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """Read what `to_json` wrote.

        Parameters
        ----------
        data : mapping
            Plain data, as :func:`json.load` returns it.

        Returns
        -------
        Certificate
            Equal to the one that was written.

        Raises
        ------
        UsageError
            When the data is no certificate of this schema; the message names the wrong part.

        Examples
        --------
        >>> Certificate.from_json({"schema": "something/9"})
        Traceback (most recent call last):
            ...
        alloccheck.errors.UsageError: not a certificate: schema must be \
'alloccheck.certificate/1', found 'something/9'
        """
        whole = _Reader("", data)
        if whole.data.get("schema") != SCHEMA:
            raise whole.wrong("schema", repr(SCHEMA), whole.data.get("schema"))
        unknown = whole.data.keys() - {one.name for one in fields(cls)} - {"schema"}
        if unknown:
            raise UsageError(f"not a certificate: unknown key {min(unknown)!r}")
        guarantee = whole.text("guarantee")
        if guarantee not in [str(one) for one in Guarantee]:
            raise whole.wrong("guarantee", "a guarantee", guarantee)
        return cls(
            function=whole.text("function"),
            signature=whole.text("signature"),
            guarantee=Guarantee(guarantee),
            ignore_throw=whole.of("ignore_throw", bool),
            first_call=whole.text("first_call"),
            entry=whole.text("entry"),
            proved=whole.of("proved", bool),
            digest=whole.text("digest"),
            sources=whole.each("sources", lambda one: Source(*one.parts(Source))),
            captures=whole.each("captures", lambda one: Captured(*one.parts(Captured))),
            externals=whole.each("externals", lambda one: External(*one.parts(External))),
            assumptions=whole.each(
                "assumptions", lambda one: (one.text("function"), one.text("reason"))
            ),
            prepared=tuple(map(str, whole.of("prepared", list))),
            configuration=whole.of("configuration", dict),
            conditions=tuple(map(str, whole.of("conditions", list))),
        )


def _plain(record: Any) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(record)}


_OPTIONAL = {"source_digest", "digest"}
"""Keys of records whose value may be null."""


class _Reader:
    """Reads one JSON object and says where it is wrong."""

    def __init__(self, where: str, data: Any) -> None:
        self._where = where
        if not isinstance(data, Mapping):
            raise UsageError(f"not a certificate: {where or 'it'} must be an object")
        self.data = data

    def wrong(self, key: str, expected: str, found: object) -> UsageError:
        return UsageError(
            f"not a certificate: {self._where}{key} must be {expected}, found {found!r}"
        )

    def of(self, key: str, type_: type) -> Any:
        found = self.data.get(key)
        if not isinstance(found, type_):
            raise self.wrong(key, f"a {type_.__name__}", found)
        return found

    def text(self, key: str) -> str:
        return str(self.of(key, str))

    def parts(self, record: type) -> Iterator[Any]:
        for one in fields(record):
            empty = one.name in _OPTIONAL and self.data.get(one.name, "") is None
            yield None if empty else self.text(one.name)

    def each(self, key: str, read: Callable[[_Reader], Any]) -> tuple[Any, ...]:
        return tuple(read(_Reader(f"{key}[{i}].", one)) for i, one in enumerate(self.of(key, list)))


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two certificates.

    Parameters
    ----------
    part : str
        Which part of a certificate, for example ``configuration.versions.numba``.
    before, after : str or None
        Its value in the one and in the other; None where it has none.
    """

    part: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        before = "absent" if self.before is None else self.before
        after = "absent" if self.after is None else self.after
        return f"{self.part}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two certificates.

    Parameters
    ----------
    before, after : Certificate
        The two.
    changes : tuple of Change
        In the order of their parts; the verdict, if it moved, first.
    """

    before: Certificate
    after: Certificate
    changes: tuple[Change, ...]

    @property
    def verdict_moved(self) -> bool:
        """Whether one is proved and the other is not."""
        return self.before.proved != self.after.proved

    @property
    def same_code(self) -> bool:
        """Whether both speak of the same machine code."""
        return self.before.digest == self.after.digest


def compare(before: Certificate, after: Certificate) -> Difference:
    """Say what changed from one certificate to another.

    Parameters
    ----------
    before, after : Certificate
        For example of two Numba versions, two machines, or two settings.

    Returns
    -------
    Difference
        Without changes when they are equal.
    """
    old, new = _flat(before), _flat(after)
    names = [*old, *(one for one in new if one not in old)]
    found = (
        Change(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )
    return Difference(
        before, after, tuple(sorted(found, key=lambda one: (one.part != "proved", one.part)))
    )


def _flat(certificate: Certificate) -> dict[str, str]:
    """Return every part of a certificate under a name of its own."""
    flat: dict[str, str] = {}
    data = certificate.to_json()
    for name, value in data.items():
        if not isinstance(value, list | dict):
            flat[name] = str(value)
    for one in certificate.sources:
        flat[f"source of {one.function}"] = one.source_digest or one.code_digest
    for captured in certificate.captures:
        digest = f" ({captured.digest[:12]})" if captured.digest else ""
        flat[f"captured {captured.name} of {captured.function}"] = captured.note + digest
    for external in certificate.externals:
        flat[f"external {external.symbol}"] = f"{external.evidence}: {external.reason}"
    for function, reason in certificate.assumptions:
        flat[f"assumption about {function}"] = reason
    for symbol in certificate.prepared:
        flat[f"prepared {symbol}"] = "yes"
    for name, value in certificate.configuration.items():
        if isinstance(value, dict):
            flat.update({f"configuration.{name}.{key}": str(one) for key, one in value.items()})
        else:
            flat[f"configuration.{name}"] = str(value)
    return flat

"""Is what runs still what was checked? Compares an artifact with memory, symbols and sources.

Knows artifacts; nothing of decorators or terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from alloccheck.compile.image import differences
from alloccheck.compile.job import Configuration
from alloccheck.compile.loaded import Artifact
from alloccheck.compile.objectfile import ObjectFile
from alloccheck.compile.provenance import changes

# isort: split
import llvmlite.binding as ll


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is no longer as it was checked.

    Parameters
    ----------
    kind : str
        ``code``, ``data``, ``relocation``, ``slot``: memory differs; ``symbol``: an external name
        leads elsewhere now; ``captured``: a function or captured value changed; ``setting``: a
        new proof would be made under another configuration; ``digest``: the object kept for
        comparison is not the one that was certified.
    subject : str
        What changed.
    message : str
        One sentence.
    """

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison found.

    Parameters
    ----------
    function, signature, digest : str
        Which artifact.
    faults : tuple of Fault
        Empty when everything is as it was checked.
    code_bytes, relocations, externals, captures : int
        How much was compared.
    """

    function: str
    signature: str
    digest: str
    faults: tuple[Fault, ...]
    code_bytes: int
    relocations: int
    externals: int
    captures: int

    @property
    def ok(self) -> bool:
        """Whether everything is as it was checked."""
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        head = f"{self.function} {self.signature}"
        if self.ok:
            return (
                f"{head}: verified: {self.code_bytes} bytes of code, {self.relocations} "
                f"relocations, {self.externals} external symbols, {self.captures} captured values"
            )
        lines = [f"{head}: NOT what was checked"]
        lines += [f"  {one.kind}: {one.message}" for one in self.faults]
        return "\n".join(lines)


def verify(artifact: Artifact) -> Verification:
    """Compare an artifact with what was checked.

    Parameters
    ----------
    artifact : Artifact
        Loaded machine code.

    Returns
    -------
    Verification
        Each difference is named.

    Raises
    ------
    ProgramError
        When the kept object has a relocation that cannot be read.

    Notes
    -----
    The comparison is of the moment: nothing keeps code in the same process from changing memory
    between it and a call.
    """
    object_file = artifact.object_file()
    function = artifact.job.function
    signature = artifact.signature
    located = artifact.image.sections
    return Verification(
        function=f"{function.__module__}:{function.__qualname__}",
        signature=f"{signature.return_type}({', '.join(map(str, signature.args))})",
        digest=artifact.digest,
        faults=tuple(_faults(artifact, object_file)),
        code_bytes=object_file.code_size(),
        relocations=sum(one.section in located for one in object_file.relocations),
        externals=len(artifact.externals),
        captures=len(artifact.captures),
    )


def _faults(artifact: Artifact, object_file: ObjectFile) -> Iterator[Fault]:
    if object_file.digest != artifact.digest:
        yield Fault(
            "digest",
            artifact.symbol,
            f"the kept object has digest {object_file.digest}, certified was {artifact.digest}",
        )
    for name in _unlocated(artifact, object_file):
        yield Fault("code", name, f"it is not known where section {name} was loaded")
    for found in differences(object_file, artifact.image, artifact.externals, ll.address_of_symbol):
        yield Fault(found.kind, found.subject, found.message)
    for change in changes(artifact.sources, artifact.captures):
        yield Fault("captured", change.subject, change.message)
    for sentence in artifact.configuration.changed_to(Configuration.current()):
        yield Fault("setting", sentence.split()[0], f"since the proof, {sentence} now")


def _unlocated(artifact: Artifact, object_file: ObjectFile) -> Iterator[str]:
    for section in object_file.sections:
        if section.executable and section.data and section.name not in artifact.image.sections:
            yield section.name

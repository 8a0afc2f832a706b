"""The artifact store: proved artifacts that survive the process.

A question has a key that is computed without compiling (`compile/question.py`). What is found under
it is brought back (`compile/portable.py`) and judged again as far as it depends on this process:
its symbols, the machine code that evidence was read from, first-call set-up. Anything odd is a
reason for a fresh proof, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from alloccheck.certificate import Certificate
from alloccheck.compile.job import CompileJob, Configuration
from alloccheck.compile.loaded import Artifact
from alloccheck.compile.portable import Portable, pack, unpack
from alloccheck.compile.question import FORMAT, key_of
from alloccheck.container import Container, from_bytes, to_bytes
from alloccheck.effects import Effect
from alloccheck.errors import Unstorable
from alloccheck.findings import Assumption, Report
from alloccheck.policy import Policy
from alloccheck.storage import Storage, Stored

if TYPE_CHECKING:
    from alloccheck.compile.artifact import Built

_READ_FROM_CODE = "machine code"
"""How a certificate's evidence begins where it was read from the code of a library."""


class ArtifactStore:
    """Finds and keeps the artifacts of questions.

    Parameters
    ----------
    storage : Storage
        Where the files are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def answer(
        self,
        job: CompileJob,
        policy: Policy | None,
        prove: Callable[[], tuple[Built, Report | None]],
    ) -> tuple[Artifact, Report | None, Stored]:
        """Return a proved artifact: the stored one, or a fresh one, which is then stored.

        Parameters
        ----------
        job : CompileJob
            The question.
        policy : Policy or None
            What is asked; None to compile only.
        prove : callable
            Compiles and judges; what it raises is raised.

        Returns
        -------
        artifact : Artifact
        report : Report or None
        stored : Stored
            What happened.
        """
        key, reason = self.key(job, policy)
        if key is not None:
            try:
                artifact, report = self.bring_back(key, job, policy)
            except Unstorable as error:
                reason = str(error)
            else:
                return artifact, report, Stored("loaded", path=self._storage.path(key))
        built, report = prove()
        try:
            if key is None:
                raise Unstorable(reason)
            self._save(key, job, policy, built, report)
        except Unstorable as error:
            return built.artifact, report, Stored("not stored", str(error))
        return built.artifact, report, Stored("written", reason, self._storage.path(key))

    def key(self, job: CompileJob, policy: Policy | None) -> tuple[str | None, str]:
        """Return a question's key; or None, and why it has none."""
        try:
            return key_of(job, Configuration.current(), _asked(policy)), ""
        except Unstorable as error:
            return None, str(error)

    # --- bringing back --------------------------------------------------------------------------

    def bring_back(
        self, key: str, job: CompileJob, policy: Policy | None
    ) -> tuple[Artifact, Report | None]:
        """Load what is stored under a key.

        Parameters
        ----------
        key : str
            The question's, as `key_of` computes it.
        job, policy
            The question.

        Returns
        -------
        artifact : Artifact
        report : Report or None

        Raises
        ------
        Unstorable
            When there is nothing, or anything about it is odd.
        """
        data = self._storage.read(key)
        if data is None:
            raise Unstorable("there was none")
        try:
            return self._load(key, data, job, policy)
        except Unstorable:
            raise
        except Exception as error:
            # Whatever a file makes any reader stumble over: it is not what we wrote.
            raise Unstorable(f"damaged: {type(error).__name__}: {error}") from error

    def _load(
        self, key: str, data: bytes, job: CompileJob, policy: Policy | None
    ) -> tuple[Artifact, Report | None]:
        container = from_bytes(data)
        record = container.record
        if record["format"] != FORMAT or record["key"] != key:
            raise Unstorable("it answers another question")
        if container.parts.keys() != {"object", "listing"}:
            raise Unstorable("damaged: the parts are not those of an artifact")
        configuration = Configuration.current()
        if record["configuration"] != configuration.to_json():
            raise Unstorable("it was made under another configuration")
        portable = Portable(
            record["artifact"], container.parts["object"], container.parts["listing"]
        )
        report = None if policy is None else _report(job, policy, record)
        artifact = unpack(job, configuration, portable)
        if policy is not None:
            assert report is not None
            _check_again(artifact, policy, report.certificate, record)
        return artifact, report

    # --- keeping --------------------------------------------------------------------------------

    def _save(
        self,
        key: str,
        job: CompileJob,
        policy: Policy | None,
        built: Built,
        report: Report | None,
    ) -> None:
        if report is not None and not report.ok:
            raise Unstorable("the guarantee was not proved")
        again, reason = self.key(job, policy)
        if again != key:
            raise Unstorable(reason or "what it depends on changed while it was compiled")
        if Configuration.current() != built.artifact.configuration:
            raise Unstorable("the configuration changed while it was compiled")
        portable = pack(built)
        record: dict[str, Any] = {
            "format": FORMAT,
            "key": key,
            "configuration": built.artifact.configuration.to_json(),
            "artifact": portable.record,
        }
        if report is not None and policy is not None:
            record["certificate"] = report.certificate.to_json()
            record["report"] = _plain(report)
            record["read"] = _read_from_code(built.artifact, policy, report.certificate)
        parts = {"object": portable.object_code, "listing": portable.listing}
        self._storage.write(key, to_bytes(Container(record, parts)))


def _asked(policy: Policy | None) -> str:
    """Return a policy as text that differs whenever a proof could."""
    if policy is None:
        return "hermetic"
    contracts = [repr(sorted(asdict(one).items())) for one in policy.contracts]
    words = (policy.guarantee, policy.ignore_throw, policy.first_call, policy.entry)
    return json.dumps([list(map(str, words)), contracts])


# --- reports --------------------------------------------------------------------------------------


def _plain(report: Report) -> dict[str, Any]:
    return {
        "file": report.file,
        "line": report.line,
        "effects": sorted(map(str, report.effects)),
        "assumptions": [
            [one.function, sorted(map(str, one.effects)), one.reason, one.used]
            for one in report.assumptions
        ],
        "notes": list(report.notes),
    }


def _report(job: CompileJob, policy: Policy, record: dict[str, Any]) -> Report:
    """Read a report back; it must be a proof of exactly what is asked."""
    certificate = Certificate.from_json(record["certificate"])
    asked = (policy.guarantee, policy.ignore_throw, policy.first_call, policy.entry)
    proved = (
        certificate.guarantee,
        certificate.ignore_throw,
        certificate.first_call,
        certificate.entry,
    )
    if not certificate.proved or asked != proved:
        raise Unstorable("its certificate does not prove what is asked")
    if certificate.digest != record["artifact"]["digest"]:
        raise Unstorable("its certificate is that of other machine code")
    if certificate.configuration != record["configuration"]:
        raise Unstorable("its certificate is of another configuration")
    function = f"{job.function.__module__}:{job.function.__qualname__}"
    if certificate.function != function:
        raise Unstorable("its certificate is that of another function")
    kept = record["report"]
    code = job.function.__code__
    if (kept["file"], kept["line"]) != (code.co_filename, code.co_firstlineno):
        raise Unstorable("its report is about another place")
    return Report(
        function=function,
        file=kept["file"],
        line=kept["line"],
        signature=certificate.signature,
        guarantee=policy.guarantee,
        ignore_throw=policy.ignore_throw,
        findings=(),
        effects=frozenset(map(Effect, kept["effects"])),
        assumptions=tuple(
            Assumption(name, tuple(map(Effect, effects)), reason, used)
            for name, effects, reason, used in kept["assumptions"]
        ),
        notes=tuple(map(str, kept["notes"])),
        certificate=certificate,
        timings={},
    )


# --- what depends on the process ------------------------------------------------------------------


def _check_again(
    artifact: Artifact, policy: Policy, certificate: Certificate, record: dict[str, Any]
) -> None:
    """Judge again what a proof says about this process: libraries' code, and first-call set-up."""
    returned, arguments = artifact.signature.return_type, artifact.signature.args
    if certificate.signature != f"{returned}({', '.join(map(str, arguments))})":
        raise Unstorable("its certificate is of another signature")
    if record["read"] != _read_from_code(artifact, policy, certificate):
        raise Unstorable("the machine code of a library that it calls is another one")
    if certificate.prepared:
        from alloccheck.compile.prepare import prepare

        missing = set(certificate.prepared) - prepare(certificate.prepared)
        if missing:
            raise Unstorable(f"{', '.join(sorted(missing))} could not be set up in this process")


def _read_from_code(
    artifact: Artifact, policy: Policy, certificate: Certificate
) -> dict[str, list[str]]:
    """Return what the machine code of reached functions says that no table names."""
    symbols = [
        one.symbol for one in certificate.externals if one.evidence.startswith(_READ_FROM_CODE)
    ]
    if not symbols:
        return {}
    from alloccheck.analysis.contracts import contract_lookup
    from alloccheck.native_evidence import NativeEvidence

    evidence = NativeEvidence(contract_lookup(policy.contracts), artifact.externals)
    found: dict[str, list[str]] = {}
    for symbol in symbols:
        contract = evidence.lookup(symbol)
        if contract is None:
            raise Unstorable(f"nothing is known about {symbol} in this process")
        found[symbol] = [repr(sorted(asdict(contract).items())), *map(repr, evidence.assumptions())]
    return found

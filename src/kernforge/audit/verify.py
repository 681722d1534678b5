# SPDX-License-Identifier: Apache-2.0
"""Verify published or built variants: signature, digest, provenance statement, trust policy.

The order is the loader's: the signature of the metadata's bytes, then the metadata, then the files.
A failed check does not stop the others, so that a report is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Digest, Metadata
from kernforge.audit.about import KernelLocation
from kernforge.builder import provenance
from kernforge.errors import IntegrityError, KernforgeError, TrustError
from kernforge.system.digest import sha256
from kernforge.system.environment import Environment
from kernforge.system.tables import counted
from kernforge.trust import admission, signature
from kernforge.trust.policy import COMMUNITY, Admit, Signer, Subject, matching_rules


class Result(StrEnum):
    """The result for a variant; the names are those of ``kernels.verify.VerificationResult``."""

    SUCCESS = "Success"
    UNSIGNED = "SignatureBundleMissing"
    BAD_BUNDLE = "SignatureBundleInvalid"
    NOT_VERIFIED = "SignatureVerificationFailure"
    NO_METADATA = "MetadataMissing"
    BAD_METADATA = "MetadataInvalid"
    NO_DIGEST = "DigestMissing"
    CHANGED = "DigestVerificationFailure"
    BAD_STATEMENT = "StatementInvalid"
    OTHER = "OtherKernel"
    REVOKED = "Revoked"
    REFUSED = "PolicyRefuses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of a variant."""

    result: Result
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The verification of one variant.

    Attributes:
        problems: in the order of checking.
        signer: name of the accepted signer; None if no accepted signature was found.
        files: number of files that the digest verifies; None if it does not.
        statement: whether the provenance statement is about exactly these files; None if there is
            no statement.
        source: repository and commit of the sources, as in the statement.
        refusal: why the trust policy of this machine refuses to load the variant; empty if it
            allows it.
    """

    variant: str
    problems: tuple[Problem, ...]
    signer: str | None = None
    files: int | None = None
    statement: bool | None = None
    source: str | None = None
    refusal: str = ""

    @property
    def result(self) -> Result:
        """The first problem, or success."""
        return self.problems[0].result if self.problems else Result.SUCCESS


def asked_signers(
    subject: Subject, given: Sequence[Signer], environment: Environment
) -> tuple[Signer, ...]:
    """The accepted signers: those given, else those of the policy, else the hub's community."""
    if given:
        return tuple(given)
    rules = matching_rules(admission.read_policies(environment), subject)
    named = [s for rule in rules if rule.admit is Admit.SIGNED for s in rule.signers]
    return tuple(dict.fromkeys(named)) or (COMMUNITY,)


def verify_variant(
    location: KernelLocation, signers: Sequence[Signer], environment: Environment
) -> Verified:
    """Verify a variant on this machine's disk.

    Args:
        signers: the accepted signers; none takes those of the policy.

    Raises:
        UsageError: the package that verifies signatures is not installed.
        TrustError: the trust policy is invalid.
    """
    path = location.path
    data = _bytes(path / FILE)
    if data is None:
        missing = Problem(result=Result.NO_METADATA, reason=f"{path / FILE} is missing")
        return Verified(variant=path.name, problems=(missing,), refusal=missing.reason)
    bundle = _bytes(path / SIGNATURE)
    signer, problems = _signature(
        data, bundle, asked_signers(location.subject, signers, environment), environment
    )
    digest, more = _digest(data, location)
    problems += more
    problems += _revoked(data, environment)
    proven, source = None, None
    if digest is not None and provenance.FILE in digest.files:
        proven, source, more = _statement(path, digest)
        problems += more
    refusal = _refusal(location, data, bundle, environment)
    if digest is not None and signer is not None:
        problems += _other(location, data)
    rules = matching_rules(admission.read_policies(environment), location.subject)
    by_name = any(rule.admit is Admit.NEVER for rule in rules)
    # Signers that are given take the place of the policy's.
    if refusal and (by_name or (not signers and not problems)):
        problems.append(Problem(result=Result.REFUSED, reason=refusal))
    return Verified(
        variant=path.name,
        problems=tuple(problems),
        signer=signer,
        files=None if digest is None else len(digest.files),
        statement=proven,
        source=source,
        refusal=refusal,
    )


def _signature(
    data: bytes, bundle: bytes | None, signers: Sequence[Signer], environment: Environment
) -> tuple[str | None, list[Problem]]:
    """Name of the accepted signer, or the problem with the signature."""
    if bundle is None:
        return None, [Problem(result=Result.UNSIGNED, reason=f"there is no {SIGNATURE}")]
    revoked = admission.revoked_by(admission.read_policies(environment))
    kind = Result.BAD_BUNDLE
    try:
        signature.is_key_bundle(bundle)
        kind = Result.NOT_VERIFIED
        return signature.verify(data, bundle, signers, revoked).name, []
    except (IntegrityError, TrustError) as error:
        return None, [Problem(result=kind, reason=error.message)]


def _revoked(data: bytes, environment: Environment) -> list[Problem]:
    """The problem with a document that a policy revokes, whoever signed it."""
    entries = admission.revoked_by(admission.read_policies(environment))
    found = [entry for entry in entries if entry.document == sha256(data)]
    return [Problem(result=Result.REVOKED, reason=str(entry)) for entry in found]


def _digest(data: bytes, location: KernelLocation) -> tuple[Digest | None, list[Problem]]:
    """The digest if the files match it, or the problem with it."""
    where = location.path / FILE
    kind = Result.BAD_METADATA
    try:
        digest = Metadata.from_json(data, source=str(where)).digest
        if digest is None:
            return None, [Problem(result=Result.NO_DIGEST, reason=f"{where} has no digest")]
        kind = Result.CHANGED
        verify_tree(location.path, digest, within=location.link_root)
    except IntegrityError as error:
        return None, [Problem(result=kind, reason=error.message)]
    return digest, []


def _statement(path: Path, digest: Digest) -> tuple[bool, str | None, list[Problem]]:
    """Whether the statement is about these files, their source in it, and problems with it."""
    where = path / provenance.FILE
    try:
        text = where.read_text()
        about = provenance.subjects(text, source=str(where))
        origin = provenance.read(text, source=str(where)).origin
    except (KernforgeError, UnicodeDecodeError) as error:
        return False, None, [Problem(result=Result.BAD_STATEMENT, reason=str(error))]
    here = {name: value for name, value in digest.files.items() if name != provenance.FILE}
    if about != here:
        names = sorted(n for n in {*about, *here} if about.get(n) != here.get(n))
        reason = f"{where} is not about this build: {', '.join(names)}"
        return False, None, [Problem(result=Result.BAD_STATEMENT, reason=reason)]
    if origin.git is None:
        return True, origin.url, []
    dirty = ", with changes" if origin.git.dirty else ""
    return True, f"{origin.url or 'unnamed repository'}@{origin.git.commit}{dirty}", []


def _refusal(
    location: KernelLocation, data: bytes, bundle: bytes | None, environment: Environment
) -> str:
    """Why the policy refuses to load a variant; empty if it allows it.

    Who verifies a kernel asks for it, and the hub need not be asked about its owner.
    """
    try:
        case = admission.Case(location.subject, environment, trust_remote_code=True)
        case.admit(data, lambda: bundle)
    except (TrustError, IntegrityError) as error:
        return error.message
    return ""


def _other(location: KernelLocation, data: bytes) -> list[Problem]:
    """The problem with a document that is signed, and of another kernel or version."""
    try:
        metadata = Metadata.from_json(data, source=str(location.path / FILE))
        admission.refuse_other_document(location.subject, metadata)
    except TrustError as error:
        return [Problem(result=Result.OTHER, reason=error.message)]
    return []


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def refuse(verdicts: Sequence[Verified], *, unsigned: bool, undigested: bool) -> None:
    """Raise an error if a variant has a problem that is not allowed.

    Args:
        unsigned: whether a variant without a signature is allowed.
        undigested: whether a variant without a digest is allowed.

    Raises:
        IntegrityError: files of a variant differ from its digest.
        TrustError: a variant has no signature, or that of another signer.
    """
    allowed = {Result.UNSIGNED} if unsigned else set()
    allowed |= {Result.NO_DIGEST} if undigested else set()
    wrong = {
        verdict.variant: results
        for verdict in verdicts
        if (results := [p.result for p in verdict.problems if p.result not in allowed])
    }
    if not wrong:
        return
    of_trust = {Result.OTHER, Result.REVOKED, Result.REFUSED}
    of_signers = {Result.UNSIGNED, Result.NOT_VERIFIED} | of_trust
    only_signers = all(result in of_signers for results in wrong.values() for result in results)
    kind: type[KernforgeError] = TrustError if only_signers else IntegrityError
    raise kind(
        f"{len(wrong)} of {counted(len(verdicts), 'variant')} could not be verified: "
        + ", ".join(f"{name} ({results[0]})" for name, results in wrong.items()),
        hint="see the report for the reason of each"
        + ("; --key FILE.pub or a trust policy names whom you accept" if only_signers else ""),
    )


def as_document(verdicts: Sequence[Verified]) -> list[dict[str, object]]:
    """The report as JSON values for programs."""
    return [
        {
            "variant": verdict.variant,
            "result": verdict.result.value,
            "problems": [{"result": p.result.value, "reason": p.reason} for p in verdict.problems],
            "signer": verdict.signer,
            "files": verdict.files,
            "statement": verdict.statement,
            "source": verdict.source,
            "admitted": not verdict.refusal,
            "refusal": verdict.refusal,
        }
        for verdict in verdicts
    ]


def as_text(verdicts: Sequence[Verified]) -> str:
    """The report as text for people."""
    statement = {None: "no statement", True: "statement agrees", False: "statement disagrees"}
    lines = []
    for verdict in verdicts:
        signer = f"signed by {verdict.signer}" if verdict.signer else "no proven signer"
        files = (
            "files not proven"
            if verdict.files is None
            else f"{counted(verdict.files, 'file')} as built"
        )
        mark = "❌" if verdict.problems else "✅"
        lines.append(f"{mark} {verdict.variant}: {signer}; {files}; {statement[verdict.statement]}")
        lines += [f"   built from {verdict.source}"] if verdict.source else []
        lines += [f"   {p.result}: {p.reason}" for p in verdict.problems]
        lines += [f"   would not load here: {verdict.refusal}"] if verdict.refusal else []
    return "\n".join(lines)

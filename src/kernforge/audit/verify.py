# SPDX-License-Identifier: Apache-2.0
"""Verify published or built variants: signature, digest, provenance statement, trust policy.

The order is the loader's: the signature of the metadata's bytes, then the metadata, then the files.
A failed check does not stop the others, so that a report is complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from kernforge.artifact.integrity import read_file, verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.audit.describe import VariantLocation
from kernforge.builder import provenance
from kernforge.errors import IntegrityError, KernforgeError, TrustError
from kernforge.system.digest import sha256
from kernforge.system.environment import Environment
from kernforge.system.tables import counted
from kernforge.trust import admission, signature
from kernforge.trust.policy import COMMUNITY, Admit, KeySigner, Signer, fingerprint, matching_rules


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
    REFUSED = "PolicyRefuses"


_OF_SIGNERS = {Result.UNSIGNED, Result.NOT_VERIFIED, Result.OTHER, Result.REFUSED}


@dataclass(slots=True)
class Verified:
    """The verification of one variant.

    Attributes:
        problems: the reason of each failed check, in the order of checking.
        signer: name of the accepted signer; None if no accepted signature was verified.
        fingerprint: of the key of the accepted signature; empty for an identity.
        files: number of files that the digest verifies; None if it does not.
        statement: whether the provenance statement describes exactly these files; None without a
            statement.
        source: repository and commit of the sources, as in the statement.
        refusal: why the trust policy here refuses to load the variant; empty if it allows it.
    """

    variant: str
    problems: dict[Result, str] = field(default_factory=dict)
    signer: str | None = None
    fingerprint: str = ""
    files: int | None = None
    statement: bool | None = None
    source: str | None = None
    refusal: str = ""

    @property
    def result(self) -> Result:
        """The first problem, or success."""
        return next(iter(self.problems), Result.SUCCESS)

    def accept(self, signer: Signer) -> None:
        """Record the signer of an accepted signature."""
        self.signer = signer.name
        self.fingerprint = fingerprint(signer.key) if isinstance(signer, KeySigner) else ""

    @contextlib.contextmanager
    def noting(self, result: Result) -> Iterator[None]:
        """Record an error as a problem and go on, so that the report is complete."""
        try:
            yield
        except (IntegrityError, TrustError) as error:
            self.problems[result] = error.message


def verify_variant(
    location: VariantLocation, signers: Sequence[Signer], environment: Environment
) -> Verified:
    """Verify a variant on this machine's disk.

    Args:
        signers: the accepted signers; none takes those of the policy, else the hub's community.
    """
    path = location.path
    verified = Verified(path.name)
    problems = verified.problems
    data = bundle = None
    with verified.noting(Result.BAD_METADATA):
        data = _bytes(path / FILE, location.link_root)
        with verified.noting(Result.BAD_BUNDLE):
            bundle = _bytes(path / SIGNATURE, location.link_root)
    if data is None:
        if not problems:
            problems[Result.NO_METADATA] = f"{path / FILE} is missing"
        verified.refusal = problems[verified.result]
        return verified
    policies = admission.read_policies(environment)
    rules = matching_rules(policies, location.subject, sha256(data))
    of_policy = [s for rule in rules if rule.admit is Admit.SIGNED for s in rule.signers]
    accepted = signers or tuple(dict.fromkeys(of_policy)) or (COMMUNITY,)

    if bundle is None and not problems:
        problems[Result.UNSIGNED] = f"there is no {SIGNATURE}"
    elif bundle is not None:
        with verified.noting(Result.BAD_BUNDLE):
            signature.is_key_bundle(bundle)
            with verified.noting(Result.NOT_VERIFIED):
                verified.accept(signature.verify(data, bundle, accepted))
    metadata = digest = None
    with verified.noting(Result.BAD_METADATA):
        metadata = Metadata.from_json(data, source=str(path / FILE))
        digest = metadata.digest
        if digest is None:
            problems[Result.NO_DIGEST] = f"{path / FILE} has no digest"
    if digest is not None:
        with verified.noting(Result.CHANGED):
            verify_tree(path, digest, within=location.link_root)
            verified.files = len(digest.files)
    if digest is not None and verified.files is not None and provenance.FILE in digest.files:
        verified.statement = False
        with verified.noting(Result.BAD_STATEMENT):
            statement = path / provenance.FILE
            verified.source = _source(statement, location.link_root, digest.files)
            verified.statement = True
    if verified.files is not None and verified.signer is not None:
        with verified.noting(Result.OTHER):
            admission.refuse_other_document(location.subject, metadata)
    verified.refusal = _refusal(location, data, bundle, environment)
    by_name = any(rule.admit is Admit.NEVER for rule in rules)
    # The signers of the caller replace those of the policy.
    if verified.refusal and (by_name or not (signers or problems)):
        problems[Result.REFUSED] = verified.refusal
    return verified


def _source(where: Path, root: Path, files: Mapping[str, str]) -> str | None:
    """The source that a provenance statement names, if its subjects are these files."""
    try:
        text = read_file(where, within=root).decode()
        statement = provenance.read(text, source=str(where))
        about, origin = statement.subjects, statement.origin
    except (KernforgeError, UnicodeDecodeError) as error:
        raise IntegrityError(str(error)) from error
    here = {name: value for name, value in files.items() if name != provenance.FILE}
    if about != here:
        names = sorted(n for n in {*about, *here} if about.get(n) != here.get(n))
        raise IntegrityError(f"{where} describes another build: {', '.join(names)} differ")
    if origin.git is None:
        return origin.url
    dirty = ", with changes" if origin.git.dirty else ""
    return f"{origin.url or 'unnamed repository'}@{origin.git.commit}{dirty}"


def _refusal(
    location: VariantLocation, data: bytes, bundle: bytes | None, environment: Environment
) -> str:
    """Why the policy refuses to load a variant; empty if it allows it.

    The caller asks for this kernel, so its owner need not be a trusted publisher of the hub.
    """
    try:
        case = admission.Case(location.subject, environment, trust_remote_code=True)
        case.admit(data, lambda: bundle)
    except (TrustError, IntegrityError) as error:
        return error.message
    return ""


def _bytes(path: Path, root: Path) -> bytes | None:
    try:
        return read_file(path, within=root)
    except FileNotFoundError:
        return None


def refuse(verdicts: Sequence[Verified], *, unsigned: bool, undigested: bool) -> None:
    """Raise an error if a variant has a problem that is not allowed."""
    allowed = {Result.UNSIGNED: unsigned, Result.NO_DIGEST: undigested}
    wrong = {
        verdict.variant: results
        for verdict in verdicts
        if (results := [result for result in verdict.problems if not allowed.get(result)])
    }
    if not wrong:
        return
    message = f"{len(wrong)} of {counted(len(verdicts), 'variant')} could not be verified: "
    message += ", ".join(f"{name} ({results[0]})" for name, results in wrong.items())
    found = {result for results in wrong.values() for result in results}
    if Result.OTHER in found:
        hint = "another kernel or version lies under this name: possible substitution or rollback; "
        raise TrustError(message, hint=f"{hint}do not use it, and inform its publisher")
    if found <= _OF_SIGNERS:
        hint = "accept a signer: `kernforge verify --key FILE.pub`, or a rule of a trust policy"
        raise TrustError(message, hint=hint)
    raise IntegrityError(message, hint="get or build the variant again; its report says why")


def as_document(verdicts: Sequence[Verified]) -> list[dict[str, object]]:
    """The report as JSON values."""
    return [
        {**asdict(verdict), "result": verdict.result, "admitted": not verdict.refusal}
        for verdict in verdicts
    ]


def as_text(verdicts: Sequence[Verified]) -> str:
    """The report as text."""
    statement = {None: "no statement", True: "statement agrees", False: "statement disagrees"}
    lines = []
    for verdict in verdicts:
        signer = f"signed by {verdict.signer}" if verdict.signer else "no accepted signature"
        signer += f" with the key {verdict.fingerprint}" if verdict.fingerprint else ""
        files = f"{counted(verdict.files or 0, 'file')} as built"
        files = "files not verified" if verdict.files is None else files
        mark = "❌" if verdict.problems else "✅"
        lines.append(f"{mark} {verdict.variant}: {signer}; {files}; {statement[verdict.statement]}")
        lines += [f"   built from {verdict.source}"] if verdict.source else []
        lines += [f"   {result}: {reason}" for result, reason in verdict.problems.items()]
        lines += [f"   would not load here: {verdict.refusal}"] if verdict.refusal else []
    return "\n".join(lines)

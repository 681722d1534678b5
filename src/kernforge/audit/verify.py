# SPDX-License-Identifier: Apache-2.0
"""Say of published or built variants all that can be proven: signature, digest, statement, policy.

The order is the loader's: the signature over the bytes of the document, then the document, then
the files. What fails does not stop the rest, so that a report is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.build import provenance
from kernforge.errors import IntegrityError, KernforgeError, TrustError
from kernforge.trust import admission, signature
from kernforge.trust.policy import COMMUNITY, Admit, Signer, Subject, speaking

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernforge.artifact.metadata import Digest
    from kernforge.audit.about import Place
    from kernforge.system.environment import Environment


class Result(StrEnum):
    """What came of a variant; the names are those of ``kernels.verify.VerificationResult``."""

    SUCCESS = "Success"
    UNSIGNED = "SignatureBundleMissing"
    BAD_BUNDLE = "SignatureBundleInvalid"
    NOT_VERIFIED = "SignatureVerificationFailure"
    NO_METADATA = "MetadataMissing"
    BAD_METADATA = "MetadataInvalid"
    NO_DIGEST = "DigestMissing"
    CHANGED = "DigestVerificationFailure"
    BAD_STATEMENT = "StatementInvalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a variant."""

    result: Result
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What is proven of one variant.

    Attributes:
        variant: its name.
        problems: what is wrong, in the order of checking.
        signer: who signed, of those that were asked for; None when nobody is proven to have.
        files: how many files the digest proves; None where it does not.
        statement: whether there is a statement about exactly these files; None without one.
        source: what the statement says that it was built from: repository and commit.
        refusal: why the trust policy here would not load it without a word of the caller; empty
            when it would.
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
    subject: Subject,
    given: Sequence[Signer],
    environment: Environment,
) -> tuple[Signer, ...]:
    """Who may have signed: those given, else those of the policy, else the hub's community."""
    if given:
        return tuple(given)
    rules = speaking(admission.read_policies(environment), subject)
    named = [s for rule in rules if rule.admit is Admit.SIGNED for s in rule.signers]
    return tuple(dict.fromkeys(named)) or (COMMUNITY,)


def verify_variant(
    place: Place,
    signers: Sequence[Signer],
    environment: Environment,
) -> Verified:
    """Verify a variant that is on this disk.

    Args:
        place: where it is.
        signers: who may have signed; none means those of the policy.
        environment: names the trust policies.

    Raises:
        UsageError: the package that verifies signatures is not installed.
        TrustError: the policy itself is wrong.
    """
    path = place.path
    data = _bytes(path / FILE)
    if data is None:
        missing = Problem(result=Result.NO_METADATA, reason=f"{path / FILE} is missing")
        return Verified(variant=path.name, problems=(missing,), refusal=missing.reason)
    bundle = _bytes(path / SIGNATURE)
    signer, problems = _signature(data, bundle, asked_signers(place.subject, signers, environment))
    digest, wrong = _digest(data, place)
    problems += wrong
    proven, source = None, None
    if digest is not None and provenance.FILE in digest.files:
        proven, source, wrong = _statement(path, digest)
        problems += wrong
    return Verified(
        variant=path.name,
        problems=tuple(problems),
        signer=signer,
        files=None if digest is None else len(digest.files),
        statement=proven,
        source=source,
        refusal=_refusal(place, data, bundle, environment),
    )


def _signature(
    data: bytes, bundle: bytes | None, signers: Sequence[Signer]
) -> tuple[str | None, list[Problem]]:
    """Who signed, or why nobody is proven to have."""
    if bundle is None:
        return None, [Problem(result=Result.UNSIGNED, reason=f"there is no {SIGNATURE}")]
    kind = Result.BAD_BUNDLE
    try:
        signature.is_key_bundle(bundle)
        kind = Result.NOT_VERIFIED
        return signature.verify(data, bundle, signers).name, []
    except (IntegrityError, TrustError) as error:
        return None, [Problem(result=kind, reason=error.message)]


def _digest(data: bytes, place: Place) -> tuple[Digest | None, list[Problem]]:
    """The digest, if the files are what it promises."""
    where = place.path / FILE
    kind = Result.BAD_METADATA
    try:
        digest = Metadata.from_json(data, source=str(where)).digest
        if digest is None:
            return None, [Problem(result=Result.NO_DIGEST, reason=f"{where} has no digest")]
        kind = Result.CHANGED
        verify_tree(place.path, digest, within=place.fence)
    except IntegrityError as error:
        return None, [Problem(result=kind, reason=error.message)]
    return digest, []


def _statement(path: Path, digest: Digest) -> tuple[bool, str | None, list[Problem]]:
    """Whether the statement is about these files, and what it says of their source."""
    where = path / provenance.FILE
    try:
        text = where.read_text()
        about = provenance.subjects(text, source=str(where))
        origin = provenance.read(text, source=str(where)).origin
    except (KernforgeError, UnicodeDecodeError) as error:
        return False, None, [Problem(result=Result.BAD_STATEMENT, reason=str(error))]
    here = {name: found for name, found in digest.files.items() if name != provenance.FILE}
    if about != here:
        names = sorted(n for n in {*about, *here} if about.get(n) != here.get(n))
        reason = f"{where} is not about this build: {', '.join(names)}"
        return False, None, [Problem(result=Result.BAD_STATEMENT, reason=reason)]
    if origin.git is None:
        return True, origin.url, []
    dirty = ", with changes" if origin.git.dirty else ""
    return True, f"{origin.url or 'unnamed repository'}@{origin.git.commit}{dirty}", []


def _refusal(
    place: Place,
    data: bytes,
    bundle: bytes | None,
    environment: Environment,
) -> str:
    """Why the policy would not load it; empty when it would."""
    try:
        admission.admit(
            place.subject,
            data,
            signature=lambda: bundle,
            vouches=lambda _owner: place.vouched,
            environment=environment,
        )
    except (TrustError, IntegrityError) as error:
        return error.message
    return ""


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def refuse(found: Sequence[Verified], *, unsigned: bool, undigested: bool) -> None:
    """Raise when something is wrong.

    Args:
        found: what is proven.
        unsigned: whether a variant without a signature is good enough.
        undigested: whether a variant without a digest is good enough.

    Raises:
        IntegrityError: bytes of a variant differ from what was promised.
        TrustError: a variant is not signed, or by others.
    """
    fine = {Result.UNSIGNED} if unsigned else set()
    fine |= {Result.NO_DIGEST} if undigested else set()
    wrong = {
        one.variant: left
        for one in found
        if (left := [p.result for p in one.problems if p.result not in fine])
    }
    if not wrong:
        return
    of_signers = {Result.UNSIGNED, Result.NOT_VERIFIED}
    only_signers = all(result in of_signers for left in wrong.values() for result in left)
    kind: type[KernforgeError] = TrustError if only_signers else IntegrityError
    raise kind(
        f"{len(wrong)} of {len(found)} variants are not verified: "
        + ", ".join(f"{name} ({left[0]})" for name, left in wrong.items()),
        hint="the report says why for each",
    )


def as_document(found: Sequence[Verified]) -> list[dict[str, object]]:
    """The report for programs."""
    return [
        {
            "variant": one.variant,
            "result": one.result.value,
            "problems": [{"result": p.result.value, "reason": p.reason} for p in one.problems],
            "signer": one.signer,
            "files": one.files,
            "statement": one.statement,
            "source": one.source,
            "admitted": not one.refusal,
            "refusal": one.refusal,
        }
        for one in found
    ]


def as_text(found: Sequence[Verified]) -> str:
    """The report for people."""
    statement = {None: "no statement", True: "statement agrees", False: "statement disagrees"}
    lines = []
    for one in found:
        signer = f"signed by {one.signer}" if one.signer else "no proven signer"
        files = "files not proven" if one.files is None else f"{one.files} files as built"
        mark = "❌" if one.problems else "✅"
        lines.append(f"{mark} {one.variant}: {signer}; {files}; {statement[one.statement]}")
        lines += [f"   built from {one.source}"] if one.source else []
        lines += [f"   {p.result}: {p.reason}" for p in one.problems]
        lines += [f"   would not load here: {one.refusal}"] if one.refusal else []
    return "\n".join(lines)

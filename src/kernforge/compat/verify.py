# SPDX-License-Identifier: Apache-2.0
"""``kernels.verify``: the signature and the digest of a variant, in the shapes of the client.

``kernforge verify`` says more: it also verifies the provenance statement and asks the trust policy.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from kernforge.artifact.metadata import FILE, SIGNATURE
from kernforge.compat import loading
from kernforge.compat.metadata import Digest, DigestValidationError, DigestViolation, Metadata
from kernforge.compat.variants import get_variants_local
from kernforge.errors import IntegrityError, RequestError, TrustError
from kernforge.trust import policy, signature


class GitHubWorkflowPolicy:
    """Accepts what a workflow of a GitHub repository signed.

    Args:
        repo_id: ``owner/name`` of the repository.
        signer_uris: the workflows, as
            ``https://github.com/<owner>/<name>/.github/workflows/<workflow>.yaml@<ref>``.

    Raises:
        RequestError: no workflow is given.
    """

    def __init__(self, *, repo_id: str, signer_uris: list[str]) -> None:
        if not signer_uris:
            raise RequestError("At least one signer URI must be provided")
        self.repo_id = repo_id
        self.signer_uris = signer_uris

    def verify(self, cert: Any) -> None:
        """Refuse a certificate of another signer."""
        source = f"https://github.com/{self.repo_id}"
        signature.workflow_rule(policy.COMMUNITY.issuer, source, self.signer_uris).verify(cert)


DEFAULT_POLICIES: list[Any] = [
    GitHubWorkflowPolicy(
        repo_id="huggingface/kernels-community", signer_uris=list(policy.COMMUNITY.identities)
    )
]
"""Who may sign where the caller gives no policies: the hub's community kernels."""


@dataclass
class _Plain:
    pass


@dataclass
class _Reason:
    reason: str


@dataclass
class _Violations:
    violations: list[DigestViolation]


def _result(name: str, base: type) -> Any:
    qualified = f"VerificationResult.{name}"
    return type(name, (base,), {"__module__": "kernels.verify", "__qualname__": qualified})


class VerificationResult:
    """What a verification found: one of these."""

    DigestMissing: ClassVar[Any] = _result("DigestMissing", _Plain)
    DigestVerificationFailure: ClassVar[Any] = _result("DigestVerificationFailure", _Violations)
    MetadataInvalid: ClassVar[Any] = _result("MetadataInvalid", _Reason)
    MetadataMissing: ClassVar[Any] = _result("MetadataMissing", _Plain)
    SignatureBundleInvalid: ClassVar[Any] = _result("SignatureBundleInvalid", _Reason)
    SignatureBundleMissing: ClassVar[Any] = _result("SignatureBundleMissing", _Plain)
    SignatureVerificationFailure: ClassVar[Any] = _result("SignatureVerificationFailure", _Reason)
    Success: ClassVar[Any] = _result("Success", _Plain)
    Any: TypeAlias = object


def verify_variant(variant_path: Path, policies: list[Any] | None = None) -> object:
    """Verify that a variant's document is signed, and that its files are those of its digest.

    The signature is verified before the document is parsed, and without a network: by the root of
    trust that the ``sigstore`` package brings.

    Args:
        policies: who may have signed, as rules of ``sigstore.verify.policy``; None takes
            ``DEFAULT_POLICIES``.

    Returns:
        One of ``VerificationResult``.

    Raises:
        UsageError: the ``sigstore`` package is not installed.
    """
    bundle = variant_path / SIGNATURE
    if not bundle.is_file():
        return VerificationResult.SignatureBundleMissing()
    if not (variant_path / FILE).is_file():
        return VerificationResult.MetadataMissing()
    data = (variant_path / FILE).read_bytes()
    accepted = DEFAULT_POLICIES if policies is None else policies
    try:
        signature.verify_by_policies(data, bundle.read_bytes(), accepted)
    except IntegrityError as error:
        return VerificationResult.SignatureBundleInvalid(error.message)
    except TrustError as error:
        return VerificationResult.SignatureVerificationFailure(error.message)
    try:
        digest = Metadata.from_bytes(data).digest
    except IntegrityError as error:
        return VerificationResult.MetadataInvalid(f"Cannot parse metadata: {error.message}")
    if digest is None:
        return VerificationResult.DigestMissing()
    try:
        digest.validate(Digest.hash_variant(digest.algorithm, variant_path))
    except DigestValidationError as error:
        return VerificationResult.DigestVerificationFailure(error.violations)
    return VerificationResult.Success()


_WORDS = {
    "SignatureBundleMissing": "cannot verify kernel integrity, signature not found",
    "SignatureBundleInvalid": "cannot verify kernel integrity, invalid signature bundle:",
    "MetadataInvalid": "cannot verify kernel integrity, invalid metadata:",
    "MetadataMissing": "cannot verify kernel integrity, metadata does not have a digest",
    "DigestMissing": "cannot verify kernel integrity, metadata does not have a digest",
    "DigestVerificationFailure": "kernel integrity check failed",
    "SignatureVerificationFailure": "metadata signature verification failed:",
}


def verify_signature(args: Any) -> None:
    """Fetch a published kernel and verify its variants.

    ``args`` has ``repo_id``, ``version``, ``all_variants``, ``filter_unsigned`` and
    ``filter_no_digest``.
    """
    if args.all_variants:
        root = loading.install_kernel_all_variants(args.repo_id, version=args.version)
        paths = [root / variant.variant_str for variant in get_variants_local(root)]
    else:
        paths = [loading.install_kernel(args.repo_id, version=args.version, trust_remote_code=True)]
    skipped = {"SignatureBundleMissing"} if args.filter_unsigned else set()
    skipped |= {"MetadataMissing", "DigestMissing"} if args.filter_no_digest else set()
    failed = False
    for path in paths:
        found = verify_variant(path)
        name = type(found).__name__
        if name in skipped:
            continue
        if name == "Success":
            sys.stdout.write(f"✅ {path.name}: kernel metadata is correctly signed\n")
            continue
        failed = True
        lines = [getattr(found, "reason", None), *getattr(found, "violations", ())]
        text = "\n".join([f"❌ {path.name}: {_WORDS[name]}", *(str(x) for x in lines if x)])
        sys.stdout.write(f"{text}\n")
    if failed:
        raise SystemExit(1)

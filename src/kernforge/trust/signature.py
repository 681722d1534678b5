# SPDX-License-Identifier: Apache-2.0
"""Signatures of ``metadata.json``, whose digest covers every file of a variant.

A signature is the file ``metadata.json.sigstore`` next to the document, a Sigstore bundle (v0.3,
JSON) of one of two kinds. With a certificate, as the hub's own kernels have it: the signer is an
identity, certified by Fulcio and logged in Rekor; the ``sigstore`` package makes and verifies it.
With a public key, for sites without a network: ``verificationMaterial.publicKey.hint`` is the
base64 SHA-256 of the key's SubjectPublicKeyInfo, there is no log entry, and
``messageSignature.signature`` is the plain Ed25519 signature (RFC 8032) of the document's bytes.

Both kinds have the same file name, because it is the one that the hub's digest leaves out: the
hub's verifier refuses a variant with a file of another name.
"""

from __future__ import annotations

import base64
import contextlib
import functools
from typing import TYPE_CHECKING, Any

from kernforge.artifact.metadata import FILE as METADATA, SIGNATURE as FILE
from kernforge.errors import IntegrityError, TrustError, UsageError
from kernforge.system import untrusted
from kernforge.trust.policy import (
    Claims,
    IdentitySigner,
    KeySigner,
    Signer,
    claims_match,
    fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cryptography.x509 import Certificate

_MOST_BYTES = 1 << 20  # a bundle is 3 to 10 kB; a larger file is not parsed
# Fulcio's identifiers of a certificate's claims, from its page oid-info.md.
_ISSUER_V1, _ISSUER, _SOURCE = (f"1.3.6.1.4.1.57264.1.{n}" for n in (1, 8, 12))
_HINT = "download the kernel again, or have it signed again; no kernel code ran"


def verify(document: bytes, bundle: bytes, signers: Sequence[Signer]) -> Signer:
    """Verify a signature and return its signer.

    Args:
        document: the bytes of ``metadata.json``; they are not parsed.

    Raises:
        IntegrityError: the bundle is malformed, or of other bytes.
        TrustError: another signer signed.
    """
    material, content = _read_bundle(bundle)
    if "publicKey" in material:
        return _verify_key(document, material["publicKey"], content, signers)
    return _verify_identity(document, bundle, signers)


def is_key_bundle(bundle: bytes) -> bool:
    """Whether a signature is of a key, not of an identity."""
    return "publicKey" in _read_bundle(bundle)[0]


def named_signer(bundle: bytes) -> str:
    """The fingerprint of the key or the identity that a signature names, unverified."""
    try:
        material = untrusted.parse_json(bundle)["verificationMaterial"]
        if "publicKey" in material:
            return f"the key {material['publicKey']['hint'][:80]}"
        from cryptography import x509  # noqa: PLC0415 - of the extra `trust`

        der = base64.b64decode(material["certificate"]["rawBytes"])
        extensions = x509.load_der_x509_certificate(der).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return ", ".join(str(name.value) for name in names)[:300]
    except Exception:  # noqa: BLE001 - untrusted bytes in a parser of another package
        return "an identity that cannot be read here"


def _read_bundle(bundle: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verification material and message signature of a bundle."""
    try:
        if len(bundle) > _MOST_BYTES:
            raise ValueError(f"it has {len(bundle)} bytes")  # noqa: TRY301 - one way out
        document = untrusted.parse_json(bundle)
        material = document["verificationMaterial"]
        content = document.get("messageSignature") or {}
        if not isinstance(material, dict) or not isinstance(content, dict):
            raise TypeError("its parts are not objects")  # noqa: TRY301 - as above
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{FILE} is not a Sigstore bundle: {error}", hint=_HINT) from None
    return material, content


def _verify_key(
    document: bytes, material: object, content: dict[str, Any], signers: Sequence[Signer]
) -> Signer:
    hint = material.get("hint") if isinstance(material, dict) else None
    keys = [s for s in signers if isinstance(s, KeySigner) and fingerprint(s.key) == hint]
    if not keys:
        raise TrustError(
            f"{METADATA} is signed with the key {hint!r}, which is not one of {_listing(signers)}",
            hint="if you trust the key, add it to the policy as a signer",
        )
    with needs("cryptography"):
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - 15 ms
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    try:
        signature = base64.b64decode(content["signature"], validate=True)
        ed25519.Ed25519PublicKey.from_public_bytes(keys[0].key).verify(signature, document)
    except (InvalidSignature, KeyError, TypeError, ValueError):
        raise IntegrityError(
            f"the signature of {METADATA} does not fit its bytes, or is not of the key "
            f"{keys[0].name!r}",
            hint=_HINT,
        ) from None
    return keys[0]


def _verify_identity(document: bytes, bundle: bytes, signers: Sequence[Signer]) -> Signer:
    """Verify a bundle of the public Sigstore instance; no network is used."""
    identities = [s for s in signers if isinstance(s, IdentitySigner)]
    if not identities:
        raise TrustError(
            f"{METADATA} is signed with a Sigstore identity, which none of the signers is: "
            f"{_listing(signers)}",
            hint="if you trust the signer, add the identity to the policy as a signer",
        )
    claims = _verified_claims(document, bundle)
    for signer in identities:
        if claims_match(signer, claims):
            return signer
    raise TrustError(
        f"{METADATA} is signed by {' and '.join(claims.identities)} (issuer {claims.issuer}, "
        f"source {claims.source_repository}), which is not one of {_listing(signers)}",
        hint="if you trust the signer, add the identity to the policy as a signer",
    )


def _verified_claims(document: bytes, bundle: bytes) -> Claims:
    """The proven claims of a Sigstore bundle about the signer of a document."""
    verifier = _verifier()
    from sigstore.models import Bundle  # noqa: PLC0415 - 0.3 s

    recorder = _Recorder()
    try:
        verifier.verify_artifact(document, Bundle.from_json(bundle), recorder)
    except Exception as error:  # untrusted bytes, in parsers of other packages
        raise IntegrityError(
            f"the Sigstore signature of {METADATA} is not valid: {error}", hint=_HINT
        ) from error
    return recorder.claims


class _Recorder:
    """A policy for the verifier that accepts every certificate and keeps its claims."""

    claims: Claims

    def verify(self, cert: Certificate) -> None:
        self.claims = _claims(cert)


def _claims(certificate: Certificate) -> Claims:
    from cryptography import x509  # noqa: PLC0415 - sigstore has it loaded
    from cryptography.hazmat import asn1  # noqa: PLC0415 - likewise

    values = {
        e.oid.dotted_string: e.value.value
        for e in certificate.extensions
        if isinstance(e.value, x509.UnrecognizedExtension)
    }
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    kinds = (x509.RFC822Name, x509.UniformResourceIdentifier)
    issuer, source = (
        asn1.decode_der(str, v) if (v := values.get(o)) else None for o in (_ISSUER, _SOURCE)
    )
    return Claims(
        issuer=issuer or values.get(_ISSUER_V1, b"").decode(),
        identities=tuple(name.value for name in names if isinstance(name, kinds)),
        source_repository=source,
    )


@functools.cache
def _verifier() -> Any:
    """The verifier with the root of trust that the ``sigstore`` package last knew."""
    with needs("sigstore"):
        import logging  # noqa: PLC0415 - slow, and sigstore loads it

        from sigstore.verify import Verifier  # noqa: PLC0415 - 0.3 s
    # It warns that it reads its root of trust from the disk, which is intended.
    logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)
    return Verifier.production(offline=True)


def sign_with_identity(documents: Iterable[bytes], token: str | None) -> list[bytes]:
    """Sign with a Sigstore identity: a certificate of Fulcio, an entry in Rekor.

    Args:
        token: an OpenID Connect identity token; None takes that of the current CI job.

    Returns:
        The bytes of each signature file.
    """
    with needs("sigstore"):
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415 - 0.3 s
        from sigstore.oidc import IdentityError, IdentityToken, detect_credential  # noqa: PLC0415
        from sigstore.sign import SigningContext  # noqa: PLC0415
    try:
        credential = token or detect_credential()
        identity = IdentityToken(credential) if credential else None
    except IdentityError as error:
        raise UsageError(
            f"the identity token cannot be used: {error}", hint="get a fresh one"
        ) from error
    if identity is None:
        raise UsageError(
            "there is no identity to sign with",
            hint="run this in a CI job that may request an identity token, give one with "
            "--identity-token, or sign with a key: --key FILE",
        )
    try:
        config = ClientTrustConfig.production()
        with SigningContext.from_trust_config(config).signer(identity) as signer:
            return [signer.sign_artifact(document).to_json().encode() for document in documents]
    except Exception as error:  # errors of requests, TUF, Fulcio and Rekor have no common base
        raise TrustError(
            f"Sigstore did not sign: {error}",
            hint="check that its instance can be reached; nothing was written",
        ) from error


@contextlib.contextmanager
def needs(package: str) -> Iterator[None]:
    """Imports of a package of the extra ``trust``; a UsageError if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"signatures need {error.name}, which is not installed",
            hint=f"pip install 'kernforge[trust]' (for {package})",
        ) from error


def _listing(signers: Sequence[Signer]) -> str:
    return ", ".join(signer.name for signer in signers) or "no signers"

# SPDX-License-Identifier: Apache-2.0
"""Sign built variants, and make keys."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.errors import IntegrityError, UsageError
from kernforge.system import files
from kernforge.trust import signature
from kernforge.trust.policy import ED25519_DER, fingerprint


class Key:
    """An Ed25519 private key.

    Args:
        private: the key of ``cryptography``; None makes a new one.
    """

    def __init__(self, private: Any = None) -> None:
        if private is None:
            with signature.needs("cryptography"):
                from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - slow
            private = ed25519.Ed25519PrivateKey.generate()
        self.private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @property
    def public_text(self) -> str:
        """The public key on one line, as ``public-key`` of a policy."""
        return base64.b64encode(ED25519_DER + self.public).decode()

    def sign(self, documents: Sequence[bytes]) -> list[bytes]:
        """The bytes of each document's signature file; the same input gives the same bytes."""
        return [self._bundle(document) for document in documents]

    def _bundle(self, document: bytes) -> bytes:
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": fingerprint(self.public)}},
            "messageSignature": {
                "messageDigest": {
                    "algorithm": "SHA2_256",
                    "digest": base64.b64encode(hashlib.sha256(document).digest()).decode(),
                },
                "signature": base64.b64encode(self.private.sign(document)).decode(),
            },
        }
        return json.dumps(bundle, indent=1).encode()


def open_key(path: Path, passphrase: Callable[[], str]) -> Key:
    """Read a key file.

    Args:
        passphrase: returns its passphrase; called only where the file has one.

    Raises:
        UsageError: the file is missing, holds no private key, or the passphrase is wrong.
    """
    with signature.needs("cryptography"):
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    try:
        pem = path.read_bytes()
        secret = passphrase().encode() if b"BEGIN ENCRYPTED PRIVATE KEY" in pem else None
        key = serialization.load_pem_private_key(pem, secret)
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise TypeError("it is not an Ed25519 key")  # noqa: TRY301 - one error for all
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"the key {path} cannot be read: {error}",
            hint="give the private key of kernforge sign --new-key, the file without .pub, and "
            "its passphrase",
        ) from error
    return Key(key)


def make_key(path: Path, passphrase: str) -> tuple[Path, str]:
    """Make a key, and write it to ``path`` (readable by its owner alone) and ``path`` + ``.pub``.

    Args:
        path: the private key's file; it must not exist.
        passphrase: encrypts the file; empty leaves it unencrypted.

    Returns:
        The public key's file, and its text for a policy. Both files are PEM, which ``openssl``
        reads too.

    Raises:
        UsageError: a file exists already.
    """
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if file.exists():
            raise UsageError(
                f"{file} exists already", hint="a key is never overwritten: take another name"
            )
    key = Key()
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - slow

    locked: form.KeySerializationEncryption = form.NoEncryption()
    if passphrase:
        locked = form.BestAvailableEncryption(passphrase.encode())
    private_pem = key.private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked)
    public_pem = key.private.public_key().public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
    files.write_atomic(path, private_pem, mode=0o600)
    files.write_atomic(public, public_pem)
    return public, key.public_text


def sign(
    directories: Sequence[Path], make: Callable[[Sequence[bytes]], Sequence[bytes]]
) -> list[Path]:
    """Sign variants; all are signed or none.

    Args:
        make: returns the signature of each document.

    Returns:
        The signature files. A key makes the same signature each time.

    Raises:
        IntegrityError: a variant differs from its digest, or has none.
        UsageError: a variant has the signature of an identity, which is logged in public.
    """
    documents = [_document(directory) for directory in directories]
    for path in (directory / SIGNATURE for directory in directories):
        if path.exists() and not signature.is_key_bundle(path.read_bytes()):
            raise UsageError(
                f"{path} is the signature of an identity, which is logged in public",
                hint="delete that file to sign again",
            )
    bundles = make(documents)
    for directory, bundle in zip(directories, bundles, strict=True):
        files.write_atomic(directory / SIGNATURE, bundle)
    return [directory / SIGNATURE for directory in directories]


def _document(directory: Path) -> bytes:
    document = (directory / FILE).read_bytes()
    digest = Metadata.from_json(document, source=str(directory / FILE)).digest
    if digest is None:
        raise IntegrityError(
            f"{directory / FILE} has no digest, so a signature would not cover the files",
            hint="build the kernel with kernforge",
        )
    verify_tree(directory, digest)
    return document

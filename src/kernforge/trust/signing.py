# SPDX-License-Identifier: Apache-2.0
"""Ed25519 keys: make them, sign built variants, and trust the builders of a shared store.

A builder signs the kind and the key of an entry with the digest of its content, so that an object
is valid in its own place only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.artifact.integrity import read_file, verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.errors import IntegrityError, TrustError, UsageError
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.trust import signature
from kernforge.trust.policy import ED25519_DER, KeySigner, fingerprint, public_key


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

    @property
    def fingerprint(self) -> str:
        """The name of the key in signatures, in `kernforge info` and `kernforge verify`."""
        return fingerprint(self.public)

    def sign(self, documents: Sequence[bytes]) -> list[bytes]:
        """The bytes of each document's signature file; the same input gives the same bytes."""
        return [self._bundle(document) for document in documents]

    def _bundle(self, document: bytes) -> bytes:
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": self.fingerprint}},
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


def make_key(path: Path, passphrase: str) -> tuple[Path, Key]:
    """Make a key, and write it to ``path`` (readable by its owner alone) and ``path`` + ``.pub``.

    Args:
        passphrase: encrypts the file; empty leaves it unencrypted.

    Returns:
        The public key's file, and the key. Both files are PEM, which ``openssl``
        reads too.
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
    return public, key


def sign(
    directories: Sequence[Path], make: Callable[[Sequence[bytes]], Sequence[bytes]]
) -> list[Path]:
    """Sign variants; all are signed or none.

    Args:
        make: returns the signature of each document.

    Returns:
        The signature files. A key makes the same signature each time.
    """
    documents = [_document(directory) for directory in directories]
    for path in (directory / SIGNATURE for directory in directories):
        if path.exists() and not signature.is_key_bundle(read_file(path, within=path.parent)):
            raise UsageError(
                f"{path} is the signature of an identity, which is logged in public",
                hint="delete that file to sign again",
            )
    bundles = make(documents)
    for directory, bundle in zip(directories, bundles, strict=True):
        files.write_atomic(directory / SIGNATURE, bundle)
    return [directory / SIGNATURE for directory in directories]


def _document(directory: Path) -> bytes:
    document = read_file(directory / FILE, within=directory)
    digest = Metadata.from_json(document, source=str(directory / FILE)).digest
    if digest is None:
        raise IntegrityError(
            f"{directory / FILE} has no digest, so a signature would not cover the files",
            hint="build the kernel with kernforge",
        )
    verify_tree(directory, digest)
    return document


ALL_WRITERS = "all-writers"
"""Value of ``KERNFORGE_STORE_TRUST``: every writer of the shared store is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builders:
    """The trusted builders of a shared store.

    Attributes:
        key: signs the results of this machine; None for a machine that only reads.
        everyone: whether every writer is trusted, so that unsigned objects are valid.
    """

    keys: tuple[KeySigner, ...] = ()
    key: Key | None = None
    everyone: bool = False

    @property
    def writes(self) -> bool:
        """Whether this machine puts results into the store."""
        return self.everyone or self.key is not None

    def seal(self, message: bytes) -> bytes:
        """The signature of a message; empty without a key."""
        return self.key.sign([message])[0] if self.key else b""

    def check(self, message: bytes, seal: bytes) -> None:
        """Refuse a message without the signature of a trusted builder."""
        if self.everyone:
            return
        if not seal:
            raise IntegrityError("it is not signed by a builder")
        try:
            signature.verify(message, seal, self.keys)
        except TrustError as error:
            raise IntegrityError("it is signed with a key that is not a builder's") from error
        except IntegrityError as error:
            raise IntegrityError("its signature is of something else") from error


def read_builders(environment: Environment) -> Builders:
    """The trusted builders in the environment."""
    trust, list_file = environment.kernforge_store_trust, environment.kernforge_store_builders
    if trust not in {None, "", ALL_WRITERS}:
        raise UsageError(
            f"KERNFORGE_STORE_TRUST is {trust!r}", hint=f"set it to {ALL_WRITERS!r}, or unset it"
        )
    if not trust and not list_file:
        raise UsageError(
            "the shared store has no trusted builders",
            hint="name a file with the builders' public keys in KERNFORGE_STORE_BUILDERS (make "
            "keys with `kernforge sign --new-key`), or set "
            f"KERNFORGE_STORE_TRUST={ALL_WRITERS} if you trust every writer",
        )
    key_file = environment.kernforge_store_sign_key
    passphrase = environment.kernforge_sign_passphrase or ""
    return Builders(
        keys=_listed(Path(list_file)) if list_file else (),
        key=open_key(Path(key_file), lambda: passphrase) if key_file else None,
        everyone=trust == ALL_WRITERS,
    )


_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----(.*?)-----END PUBLIC KEY-----", re.DOTALL)


def _on_one_line(pem: re.Match[str]) -> str:
    return "".join(pem[1].split()) + "\n" * pem[0].count("\n")


def _listed(path: Path) -> tuple[KeySigner, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"KERNFORGE_STORE_BUILDERS names {path}, which cannot be read: {error}",
            hint="write one public key on each line, as `kernforge sign --new-key` prints it, or "
            "name its file .pub",
        ) from error
    signers = []
    # A file .pub is one too, and so are several of them one after the other.
    for number, line in enumerate(_PEM.sub(_on_one_line, text).splitlines(), 1):
        if listed := line.partition("#")[0].strip():
            where = f"{path}:{number}"
            signers.append(KeySigner(name=where, key=public_key(listed, where)))
    return tuple(signers)

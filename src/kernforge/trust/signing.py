# SPDX-License-Identifier: Apache-2.0
"""Sign built variants, and make keys for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.errors import IntegrityError, UsageError
from kernforge.system import files
from kernforge.trust import signature
from kernforge.trust.policy import KeySigner, key_text, public_key

_ENCRYPTED = b"BEGIN ENCRYPTED PRIVATE KEY"
_PUBLIC = b"BEGIN PUBLIC KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The content of a key file."""

    pem: bytes
    passphrase: bytes | None

    @property
    def signer(self) -> KeySigner:
        """Who verifies what this key signs."""
        return KeySigner(name="this key", key=signature.public_of(self.pem, self.passphrase))

    def sign(self, documents: Sequence[bytes]) -> list[bytes]:
        """The bytes of each document's signature file."""
        return [signature.sign_with_key(d, self.pem, self.passphrase) for d in documents]


def open_key(path: Path, passphrase: Callable[[], str]) -> Key:
    """Read a key file.

    Args:
        passphrase: returns its passphrase; called only where the file has one.

    Raises:
        UsageError: there is no such file, or it holds no private key that the passphrase opens.
    """
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be read: {error.strerror}",
            hint="make one: kernforge sign --new-key",
        ) from error
    if _PUBLIC in pem:
        raise UsageError(
            f"{path} is a public key, and signing needs the private one",
            hint="name the file without .pub: kernforge sign --new-key writes both",
        )
    key = Key(pem=pem, passphrase=passphrase().encode() if _ENCRYPTED in pem else None)
    try:
        signature.public_of(key.pem, key.passphrase)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
    return key


def make_key(path: Path, passphrase: str) -> tuple[Path, str]:
    """Make a key, and write it as ``path`` (for its owner alone) and ``path`` with ``.pub``.

    Args:
        path: the private key's file; it must not exist.
        passphrase: encrypts the file; empty leaves it unencrypted.

    Returns:
        The public key's file, and its text for a policy.

    Raises:
        UsageError: a file exists already.
    """
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if file.exists():
            raise UsageError(
                f"{file} exists already", hint="a key is never overwritten: take another name"
            )
    private_pem, public_pem = signature.new_key(passphrase.encode() or None)
    files.write_atomic(path, private_pem, mode=0o600)
    files.write_atomic(public, public_pem)
    return public, public_text(public_pem)


def public_text(pem: bytes) -> str:
    """A public key on one line, as ``public-key`` of a policy."""
    public_key(pem.decode(), "the key")
    return key_text(pem.decode())


def sign(
    directories: Sequence[Path],
    make: Callable[[Sequence[bytes]], Sequence[bytes]],
) -> list[Path]:
    """Sign variants; all are signed or none.

    Args:
        make: returns the signature of each document.

    Returns:
        The signature files. A key makes the same signature each time.

    Raises:
        IntegrityError: a variant is not what was built, or has no digest.
        UsageError: a variant has a signature of an identity, which cannot be repeated.
    """
    documents = [_document(directory) for directory in directories]
    for directory in directories:
        _refuse_loss(directory / SIGNATURE)
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


def _refuse_loss(path: Path) -> None:
    if path.exists() and not signature.is_key_bundle(path.read_bytes()):
        raise UsageError(
            f"{path} is the signature of an identity, which is logged and cannot be repeated",
            hint="remove the file to sign again",
        )

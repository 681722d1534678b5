# SPDX-License-Identifier: Apache-2.0
"""Sign built variants, and make keys to sign with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.errors import IntegrityError, UsageError
from kernforge.system import files
from kernforge.trust import signature
from kernforge.trust.policy import public_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_ENCRYPTED = b"BEGIN ENCRYPTED PRIVATE KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key file, opened.

    Attributes:
        pem: its bytes.
        passphrase: None when it has none.
    """

    pem: bytes
    passphrase: bytes | None

    def sign(self, documents: Sequence[bytes]) -> list[bytes]:
        """The signature of each document; see ``signature.sign_with_key``."""
        return [signature.sign_with_key(d, self.pem, self.passphrase) for d in documents]


def open_key(path: Path, passphrase: Callable[[], str]) -> Key:
    """Read a key file; the passphrase is asked for only where there is one.

    Raises:
        UsageError: there is no such file.
    """
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be read: {error.strerror}", hint="make one: kernforge keygen"
        ) from error
    return Key(pem=pem, passphrase=passphrase().encode() if _ENCRYPTED in pem else None)


def make_key(path: Path, passphrase: str) -> tuple[Path, str]:
    """Make a key, and write it as ``path`` (for its owner alone) and ``path`` with ``.pub``.

    Args:
        path: the private key's file; it must not exist.
        passphrase: to lock it with; empty leaves it open.

    Returns:
        The public key's file, and its text as a policy takes it.

    Raises:
        UsageError: a file is there already.
    """
    public = path.with_name(f"{path.name}.pub")
    for there in (path, public):
        if there.exists():
            raise UsageError(
                f"{there} is there already", hint="a key is never overwritten: take another name"
            )
    private_pem, public_pem = signature.new_key(passphrase.encode() or None)
    files.write_atomic(path, private_pem, mode=0o600)
    files.write_atomic(public, public_pem)
    return public, public_text(public_pem)


def public_text(pem: bytes) -> str:
    """A public key on one line, as ``public-key`` of a policy."""
    public_key(pem.decode(), "the key")
    return "".join(pem.decode().split("-----")[2].split())


def sign(
    directories: Sequence[Path],
    make: Callable[[Sequence[bytes]], Sequence[bytes]],
    *,
    replace: bool = False,
) -> list[Path]:
    """Sign variants that are what was built; all are signed or none.

    Args:
        directories: the variants.
        make: signs documents.
        replace: whether a signature by an identity may be overwritten.

    Returns:
        The signature files. One that a key makes is the same each time.

    Raises:
        IntegrityError: a variant is not what was built, or has no digest.
        UsageError: a variant has a signature that nobody could make again.
    """
    documents = [_document(directory) for directory in directories]
    for directory in directories:
        if not replace:
            _refuse_loss(directory / SIGNATURE)
    made = make(documents)
    for directory, bundle in zip(directories, made, strict=True):
        files.write_atomic(directory / SIGNATURE, bundle)
    return [directory / SIGNATURE for directory in directories]


def _document(directory: Path) -> bytes:
    document = (directory / FILE).read_bytes()
    digest = Metadata.from_json(document, source=str(directory / FILE)).digest
    if digest is None:
        raise IntegrityError(
            f"{directory / FILE} has no digest, so a signature would say nothing of the files",
            hint="build the kernel with kernforge",
        )
    verify_tree(directory, digest)
    return document


def _refuse_loss(path: Path) -> None:
    if path.exists() and not signature.is_key_bundle(path.read_bytes()):
        raise UsageError(
            f"{path} is the signature of an identity, which is logged and cannot be made again",
            hint="pass --replace to overwrite it",
        )

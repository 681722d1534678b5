# SPDX-License-Identifier: Apache-2.0
"""Trusted builders of a shared store: an allow-list of Ed25519 keys.

A builder signs the kind and the key of an entry with the digest of its content, so that an object
is valid in its own place only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import IntegrityError, TrustError, UsageError
from kernforge.system.environment import Environment
from kernforge.trust import signature, signing
from kernforge.trust.policy import KeySigner, public_key
from kernforge.trust.signing import Key

ALL_WRITERS = "all-writers"
"""Value of ``KERNFORGE_STORE_TRUST``: every writer of the shared store is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builders:
    """The trusted builders of a shared store.

    Attributes:
        keys: their public keys.
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
        """Refuse a message without the signature of a trusted builder.

        Raises:
            IntegrityError: the signature is missing, of other bytes, or of an unknown key.
        """
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
    """The trusted builders in the environment.

    Raises:
        UsageError: no variable names any, or a file cannot be read.
        TrustError: a line of the list is not a key.
    """
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
        key=signing.open_key(Path(key_file), lambda: passphrase) if key_file else None,
        everyone=trust == ALL_WRITERS,
    )


def _listed(path: Path) -> tuple[KeySigner, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"KERNFORGE_STORE_BUILDERS names {path}, which cannot be read: {error}",
            hint="write one public key on each line, as `kernforge sign --new-key` prints it",
        ) from error
    signers = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            where = f"{path}:{number}"
            signers.append(KeySigner(name=where, key=public_key(text, where)))
    return tuple(signers)

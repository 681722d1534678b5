# SPDX-License-Identifier: Apache-2.0
"""Write into a trust policy what counts no more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kernforge.errors import TrustError, UsageError
from kernforge.system import files
from kernforge.trust.policy import PROJECT, SHA256, Policy, key_text, public_key, read

if TYPE_CHECKING:
    from pathlib import Path


def revoke(
    path: Path,
    *,
    key: str | None = None,
    identity: str | None = None,
    document: str | None = None,
    reason: str = "",
) -> bool:
    """Add an entry to a policy, which is made where there is none; returns whether it is new.

    Args:
        path: the policy.
        key: text of a public key; or
        identity: a pattern for the identity of a certificate; or
        document: hex SHA-256 of a ``metadata.json``.
        reason: text of the refusal.

    Raises:
        UsageError: the policy cannot be read, or what is to be revoked is not such a thing.
        TrustError: the policy has a mistake.
        StorageError: it cannot be written.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name another file") from None
    before = _read(text, path)
    if key is not None:
        try:
            public_key(key, "the key to revoke")
        except TrustError:
            raise UsageError(
                "the key to revoke is not an Ed25519 public key",
                hint="give the .pub file that kernforge keygen made, or the text in it",
            ) from None
    if document is not None and not SHA256.fullmatch(document):
        raise UsageError(
            f"{document!r} is not the hash of a metadata.json",
            hint="give its 64 hex digits: `document` in what `kernforge audit-log --json` prints",
        )
    if identity is not None and not identity.strip():
        raise UsageError("the identity to revoke is empty", hint="give that of a certificate")
    named = {
        "public-key": None if key is None else key_text(key),
        "identity": identity,
        "document": document,
        "reason": reason or None,
    }
    table = "tool.kernforge.trust.revoked" if path.name == PROJECT else "revoked"
    given = {name: value for name, value in named.items() if value is not None}
    # A TOML string has no halves of surrogate pairs, which JSON writes for an emoji in ASCII.
    lines = [f"{name} = {json.dumps(given[name], ensure_ascii=False)}\n" for name in given]
    added = "".join([f"[[{table}]]\n", *lines])
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    new = _read(f"{text}{gap}{added}", path).revoked[-1]
    if any(
        (e.key, e.identity, e.document) == (new.key, new.identity, new.document)
        for e in before.revoked
    ):
        return False
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    files.make_dir(path.parent)
    files.write_atomic(path, f"{text}{gap}{added}", mode=mode)
    return True


def _read(text: str, path: Path) -> Policy:
    return read(text.encode(), str(path)) or Policy(source=str(path), rules=())

# SPDX-License-Identifier: Apache-2.0
"""Write into a trust policy what counts no more."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import TrustError, UsageError
from kernforge.system import files
from kernforge.trust.policy import parse, public_key

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.trust.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is revoked: exactly one of the first three.

    Attributes:
        key: text of a public key.
        identity: a pattern for the identity of a certificate.
        document: hex SHA-256 of a ``metadata.json``.
        reason: text of the refusal.
    """

    key: str | None = None
    identity: str | None = None
    document: str | None = None
    reason: str = ""

    def lines(self) -> dict[str, str]:
        """The keys of the entry in a policy."""
        key = None
        if self.key is not None:
            public_key(self.key, "the key to revoke")
            body = self.key.split("-----")
            key = "".join((body[2] if len(body) > 1 else self.key).split())
        named = {
            "public-key": key,
            "identity": self.identity,
            "document": self.document,
            "reason": self.reason or None,
        }
        return {name: value for name, value in named.items() if value is not None}


def revoke(path: Path, entry: Entry) -> bool:
    """Add an entry to a policy, which is made where there is none; returns whether it is new.

    Raises:
        UsageError: the policy cannot be read.
        TrustError: it has a mistake, or the entry is not one.
        StorageError: it cannot be written.
    """
    nested = path.name == "pyproject.toml"
    try:
        text = path.read_text()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name another file") from None
    before = _read(text, path, nested=nested)
    table = "tool.kernforge.trust.revoked" if nested else "revoked"
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.lines().items()]
    added = f"[[{table}]]\n" + "\n".join(lines) + "\n"
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    after = _read(f"{text}{gap}{added}", path, nested=nested)
    new = after.revoked[-1]
    if any(
        (e.key, e.identity, e.document) == (new.key, new.identity, new.document)
        for e in before.revoked
    ):
        return False
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    files.make_dir(path.parent)
    files.write_atomic(path, f"{text}{gap}{added}", mode=mode)
    return True


def _read(text: str, path: Path, *, nested: bool) -> Policy:
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise TrustError(f"{path} is not TOML: {error}", hint="fix it first") from None
    if nested:
        document = document.get("tool", {}).get("kernforge", {}).get("trust", {})
    return parse(document, str(path))

# SPDX-License-Identifier: Apache-2.0
"""Write into a trust policy what counts no more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.system import files
from kernforge.trust.policy import PROJECT, Policy, key_text, public_key, read

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is revoked: exactly one of the first three.

    Attributes:
        key: text of a public key.
    """

    key: str | None = None
    identity: str | None = None
    document: str | None = None
    reason: str = ""

    def lines(self) -> dict[str, str]:
        """The keys of the entry in a policy."""
        if self.key is not None:
            public_key(self.key, "the key to revoke")
        named = {
            "public-key": None if self.key is None else key_text(self.key),
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
    try:
        text = path.read_text()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name another file") from None
    before = _read(text, path)
    table = "tool.kernforge.trust.revoked" if path.name == PROJECT else "revoked"
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.lines().items()]
    added = f"[[{table}]]\n" + "\n".join(lines) + "\n"
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

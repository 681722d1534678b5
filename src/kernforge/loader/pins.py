# SPDX-License-Identifier: Apache-2.0
"""``kernforge-kernels.lock``: what the format of ``kernels.lock`` cannot hold.

The hub's client reads commits alone, and trusts a registry about the content of a commit. This
second file, which that client ignores, has for each locked kernel the requirement, the release,
and the SHA-256 of every variant's ``metadata.json``, whose digest in turn covers every file. With
it the loader notices when a registry changes the content of a commit::

    {"format": 1, "kernels": [
        {"dependency": {"repo-id": "owner/name", "version": 1}, "asked": ">=1.2,<2",
         "release": "1.4.2", "commit": "<hex>", "metadata": {"<variant>": "<hex SHA-256>"}}]}

``asked`` is null for a kernel that only other kernels require, ``release`` for one without a tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernforge import untrusted
from kernforge.artifact.metadata import KernelDepend
from kernforge.errors import RequestError

FILE = "kernforge-kernels.lock"
FORMAT = 1
_HINT = "lock the project again: kernforge lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One locked kernel.

    Attributes:
        depend: its requirement in ``kernels.lock``.
        commit: 40 or 64 lower-case hex digits.
        asked: the project's requirement; None where only other kernels require it.
        release: the version, as in ``1.4.2``; None for a commit without a tag.
        metadata: hex SHA-256 of ``metadata.json`` of each variant.
    """

    depend: KernelDepend
    commit: str
    asked: str | None
    release: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The whole file; ``to_json`` is the inverse of ``from_json``."""

    kernels: tuple[Pin, ...]

    @classmethod
    def from_json(cls, data: bytes | str, *, source: str = FILE) -> Pins:
        """Read the file.

        Raises:
            RequestError: it is not such a file, or has a newer format.
        """
        try:
            document = untrusted.parse_json(data)
            if document["format"] != FORMAT:
                raise RequestError(
                    f"{source} has format {document['format']!r}, this kernforge knows {FORMAT}",
                    hint="use the kernforge version that wrote it, or lock the project again",
                )
            return cls(kernels=tuple(_read_pin(entry) for entry in document["kernels"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, RequestError):
                raise
            reason = f"{type(error).__name__} {error}"
            raise RequestError(f"{source} cannot be read: {reason}", hint=_HINT) from None

    def to_json(self) -> str:
        """Text of the file, with a newline at the end."""
        kernels = [
            {
                "dependency": depend_json(pin.depend),
                "asked": pin.asked,
                "release": pin.release,
                "commit": pin.commit,
                "metadata": dict(sorted(pin.metadata.items())),
            }
            for pin in self.kernels
        ]
        return json.dumps({"format": FORMAT, "kernels": kernels}, indent=2) + "\n"

    def expected(self, repo_id: str, commit: str, variant: str) -> str | None:
        """Hex SHA-256 of a variant's ``metadata.json`` when it was locked; None for another commit.

        Raises:
            RequestError: the commit is locked but had no such variant then.
        """
        for pin in self.kernels:
            if (pin.depend.repo_id, pin.commit) == (repo_id, commit):
                if variant in pin.metadata:
                    return pin.metadata[variant]
                raise RequestError(
                    f"{repo_id} at commit {commit} had no variant {variant} when it was locked",
                    hint="if the new variant may be trusted, lock again: "
                    f"kernforge lock --upgrade {repo_id}",
                )
        return None

    def direct(self, repo_id: str) -> KernelDepend | None:
        """The project's own requirement of a kernel, as in ``kernels.lock``; None without one."""
        named = (p.depend for p in self.kernels if p.asked is not None)
        return next((depend for depend in named if depend.repo_id == repo_id), None)


def depend_json(depend: KernelDepend) -> dict[str, Any]:
    """A dependency as ``kernels.lock`` has it."""
    if depend.version is not None:
        return {"repo-id": depend.repo_id, "version": depend.version}
    return {"repo-id": depend.repo_id, "revision": depend.revision}


def _read_pin(entry: dict[str, Any]) -> Pin:
    named = entry["dependency"]
    version, revision = named.get("version"), named.get("revision")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise TypeError(f"{version!r} is not a version")
    depend = KernelDepend(
        repo_id=_text(named["repo-id"]),
        version=version,
        revision=None if revision is None else _text(revision),
    )
    return Pin(
        depend=depend,
        commit=_text(entry["commit"]),
        asked=None if entry["asked"] is None else _text(entry["asked"]),
        release=None if entry["release"] is None else _text(entry["release"]),
        metadata={name: _text(digest) for name, digest in entry["metadata"].items()},
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value

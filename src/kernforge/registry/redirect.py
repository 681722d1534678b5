# SPDX-License-Identifier: Apache-2.0
"""``kernel-status.toml``: the new name of a kernel that has moved.

The format is the hub's: ``kind = "redirect"``, ``destination = "owner/name"`` and, if it is not
``main``, a ``revision`` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernforge import untrusted
from kernforge.errors import RegistryError
from kernforge.registry.base import Registry

FILE = "kernel-status.toml"
NAME_IT = "see that this is right, and name {} itself"
_HINT = "ask the kernel's publisher to fix it, or name another version or revision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """The new name of a kernel: a repo id, and a branch, tag or commit there."""

    repo_id: str
    revision: str = "main"


def find_redirect(registry: Registry, repo_id: str, commit: str) -> Redirect | None:
    """The redirect that a commit of a kernel holds; None where it holds none.

    Raises:
        RegistryError: it cannot be read, or is not a redirect.
    """
    document = registry.small_file(repo_id, commit, FILE)
    return None if document is None else parse(document, source=f"{repo_id}/{FILE}")


def refuse_moved(registry: Registry, repo_id: str, commit: str, *, hint: str) -> None:
    """Refuse a commit that holds a redirect; ``{}`` in the hint stands for the new repo id.

    Raises:
        RegistryError: the kernel moved, or the redirect cannot be read.
    """
    moved = find_redirect(registry, repo_id, commit)
    if moved is not None:
        raise RegistryError(
            f"kernel {repo_id} moved to {moved.repo_id} (revision {moved.revision})",
            hint=hint.format(moved.repo_id),
        )


def parse(data: bytes, *, source: str = FILE) -> Redirect:
    """Read the document.

    Raises:
        RegistryError: it cannot be read, or is not a redirect.
    """
    try:
        table = untrusted.parse_toml(data)
    except ValueError as error:
        raise RegistryError(f"{source} is not TOML: {error}", hint=_HINT) from None
    return of_table(table, source=source)


def of_table(table: Mapping[str, Any], *, source: str = FILE) -> Redirect:
    """The redirect in a parsed document; errors are those of ``parse``."""
    kind, destination = table.get("kind"), table.get("destination")
    revision = table.get("revision", "main")
    if kind != "redirect":
        raise RegistryError(f"{source} is of kind {kind!r}, not 'redirect'", hint=_HINT)
    if not (isinstance(destination, str) and destination and isinstance(revision, str)):
        raise RegistryError(f"{source} does not name the kernel's new repository", hint=_HINT)
    return Redirect(repo_id=destination, revision=revision)

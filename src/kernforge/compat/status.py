# SPDX-License-Identifier: Apache-2.0
"""``kernel-status.toml`` in the shapes that the client gives it; it says where a kernel went."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kernforge import documents
from kernforge.compat import hub
from kernforge.errors import RegistryError, RequestError
from kernforge.registry import redirect

log = logging.getLogger("kernels.status")


@dataclass
class Redirect:
    """The new name of a kernel."""

    kind: str
    destination: str
    revision: str

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Redirect:
        """The redirect in a parsed document."""
        if data.get("kind") != "redirect":
            raise RequestError("kernel-status.toml kind must be 'redirect' for Redirect")
        if not data.get("destination"):
            raise RequestError("kernel-status.toml must contain a 'destination' field")
        try:
            found = redirect.of_table(data)
        except RegistryError as error:
            raise RequestError(error.message, hint=error.hint) from None
        return Redirect("redirect", found.repo_id, found.revision)


KernelStatusKind: TypeAlias = Redirect


class KernelStatus:
    """Reads the document."""

    @staticmethod
    def from_toml(content: str) -> Redirect:
        """Parse it."""
        table = documents.parse_toml(content.encode())
        kind = table.get("kind")
        if not kind:
            raise RequestError("kernel-status.toml must contain a 'kind' field")
        if kind != "redirect":
            raise RequestError(f"Unknown kernel status kind: {kind!r}")
        return Redirect.from_dict(table)

    @staticmethod
    def check_status(api: Any, repo_id: str, revision: str) -> Redirect | None:
        """Read that of a kernel; None where it has none."""
        try:
            path = api.hf_hub_download(
                repo_id=repo_id,
                repo_type="kernel",
                filename=redirect.FILE,
                revision=revision,
            )
        except hub.absent_errors():
            return None
        return KernelStatus.from_toml(Path(path).read_text())


def resolve_status(api: Any, repo_id: str, revision: str) -> tuple[str, str]:
    """The repository and revision where a kernel is now."""
    status = KernelStatus.check_status(api, repo_id, revision)
    if status is None:
        return repo_id, revision
    log.warning("'%s' redirected to '%s'", repo_id, status.destination)
    return status.destination, status.revision

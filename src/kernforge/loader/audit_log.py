# SPDX-License-Identifier: Apache-2.0
"""What this user's processes loaded: when, from where, and who signed it.

One line of JSON for each kernel that a process imported, in ``loads.jsonl`` of the user's records.
The file is for this user and who may read their files: a kernel runs with the same rights and could
change it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kernforge.errors import StorageError
from kernforge.system import files

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.loader.search import Node
    from kernforge.system.environment import Environment

_MOST_BYTES = 16 << 20
"""A larger log becomes ``loads.1.jsonl``, and a new one begins."""


def log_file(environment: Environment) -> Path:
    """The file of the log, whether it exists or not."""
    return environment.records / "loads.jsonl"


def record(node: Node, environment: Environment) -> None:
    """Add a kernel that is imported now; nothing happens where the log cannot be written."""
    digest = node.metadata.digest
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "kernel": node.repo_info.repo_id if node.repo_info else node.metadata.name,
        "version": node.admission.release or str(node.metadata.version),
        "registry": node.admission.registry,
        "commit": node.repo_info.revision if node.repo_info else None,
        "variant": node.path.name,
        "path": str(node.path),
        "document": node.admission.document,
        "verified": digest is not None,
        "signers": list(node.admission.signers),
        "rules": list(node.admission.rules),
        "program": sys.argv[0] if sys.argv else "",
        "process": os.getpid(),
    }
    with contextlib.suppress(StorageError, OSError):
        path = log_file(environment)
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            files.rename(path, path.with_name("loads.1.jsonl"))
        if not path.exists():
            files.touch(path)
            path.chmod(0o600)
        files.append(path, json.dumps(entry) + "\n")


def read(environment: Environment) -> list[dict[str, Any]]:
    """The entries, oldest first; a line that a crash cut is left out."""
    entries = []
    path = log_file(environment)
    for file in (path.with_name("loads.1.jsonl"), path):
        with contextlib.suppress(FileNotFoundError):
            for line in file.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict):
                        entries.append(entry)
    return entries

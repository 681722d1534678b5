# SPDX-License-Identifier: Apache-2.0
"""``kernforge cache``: the contents of the store."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system.console import Console
from kernforge.system.tables import counted, size, table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Show the contents of the store, after a change of it if one is wanted."""
    environment = arguments.environment
    store, limit = Store(environment.store), eviction.limit(environment)
    removed = None
    if arguments.trim is not None:
        removed = eviction.trim(store, arguments.trim)
    kinds = eviction.survey(store)
    total = sum(kind.size for kind in kinds)
    document = {
        "location": str(store.root),
        "limit": limit,
        "size": total,
        "shelves": {kind.name: asdict(kind) for kind in kinds},
    }
    lines = [f"{store.root}: {size(total) or '0 MB'} of {size(limit)}"]
    if removed is not None:
        freed = sum(entry.size for entry in removed)
        document["removed"] = {"entries": len(removed), "size": freed}
        entries = counted(len(removed), "entry", "entries")
        lines.append(f"removed {entries}, {size(freed) or '0 MB'}")
    rows = [
        (kind.name, str(kind.entries), size(kind.size) or "0 MB", _when(kind.oldest))
        for kind in kinds
    ]
    lines.append(table(rows, head=("kind", "entries", "size", "oldest use")))
    console.result(document, "\n".join(lines))


def _when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""

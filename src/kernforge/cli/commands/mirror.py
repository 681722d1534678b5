# SPDX-License-Identifier: Apache-2.0
"""``kernforge mirror``: copy published versions between any two registries."""

from __future__ import annotations

import argparse
import dataclasses

from kernforge.cli import options
from kernforge.publish import mirror
from kernforge.publish.mirror import Mirrored
from kernforge.registry.api import open_registry
from kernforge.registry.names import Request, request
from kernforge.system.console import Console
from kernforge.system.tables import size


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Copy the named versions, or all."""
    source = open_registry(arguments.source, arguments.environment)
    target = open_registry(arguments.target, arguments.environment)
    wanted: list[tuple[str, Request | None]] = [_parse(text) for text in arguments.kernels]
    if not wanted:
        listed, left_out = mirror.kernels(source)
        wanted = [(repo_id, None) for repo_id in listed]
        for repo_id, reason in left_out.items():
            console.note(f"{repo_id} is left out: {reason}")
    done: list[Mirrored] = []
    for repo_id, versions in wanted:
        for each in mirror.mirror(source, target, repo_id, versions):
            state = "copied" if each.copied else "there already:"
            amount = f"{each.files} files, {size(each.bytes) or '0 MB'}"
            console.note(f"{state} {repo_id} {each.reference} ({amount})")
            done.append(each)
    copied = [each for each in done if each.copied]
    amount = size(sum(each.bytes for each in copied)) or "0 MB"
    console.result(
        {
            "source": source.url,
            "target": target.url,
            "versions": [dataclasses.asdict(each) for each in done],
        },
        f"copied {len(copied)} of {len(done)} versions ({amount}) to {target.url}; "
        f"{len(done) - len(copied)} were there",
    )


def _parse(text: str) -> tuple[str, Request | None]:
    """``owner/name`` or ``owner/name@VERSION``."""
    repo_id, at, what = text.partition("@")
    return repo_id, request(repo_id, *options.version_of(what)) if at else None

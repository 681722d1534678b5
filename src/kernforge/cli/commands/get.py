# SPDX-License-Identifier: Apache-2.0
"""``kernforge get``: fetch kernels for this or another machine, and copy them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernforge.application import download
from kernforge.application.download import Selection
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.loader import lock
from kernforge.loader.host import probe
from kernforge.loader.search import Node, Search
from kernforge.registry.api import Answer
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import Request, is_repo_id, request
from kernforge.system import files, own_files
from kernforge.system.console import Console
from kernforge.system.tables import size, table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Fetch the selected variants of kernels and of their dependencies."""
    search, wanted = _wanted(arguments)
    out: Path | None = arguments.to
    selection = _selection(arguments)
    if out is not None and out.suffix == ".tar":
        home = arguments.environment.home
        own_files.refuse(out, home)
        with files.staging(out.absolute().parent) as staged:
            fetched = _fetch(search, wanted, selection, staged, console)
            download.write_tar(staged, out)
        own_files.remember(out, home)
    else:
        fetched = _fetch(search, wanted, selection, out, console)
    kernels: list[dict[str, Any]] = [
        {
            "repo_id": answer.repo_id,
            "commit": answer.commit,
            "variant": variant.path.name,
            "bytes": download.size(variant),
            "path": None if out else str(variant.path),
        }
        for answer, variant in fetched
    ]
    text = "\n".join(str(variant.path) for _, variant in fetched)
    if out:
        rows = [
            (k["repo_id"], k["commit"][:12], k["variant"], size(k["bytes"]) or "0 MB")
            for k in kernels
        ]
        text = f"{table(rows, head=('kernel', 'commit', 'variant', 'size'))}\n{out}"
    console.result({"to": str(out) if out else None, "kernels": kernels}, text)


def _wanted(arguments: argparse.Namespace) -> tuple[Search, tuple[Request, ...]]:
    """The registry to fetch from, and the kernels."""
    what, environment = arguments.what, arguments.environment
    version, revision = options.version_of(arguments.version)
    store = options.registry(arguments)
    trusted: bool = arguments.trust_remote_code
    directory = Path(what)
    if directory.is_dir() and not arguments.version:
        locks = lock.read(directory / lock.FILE)
        locked = Search(store, None, environment, trusted, locks=locks)
        return locked, download.asked_kernels(locks)
    if not is_repo_id(what):
        raise UsageError(
            f"there is no directory {what}, and a kernel is named like owner/name",
            hint="name a project with a lock, or a kernel: owner/name --version 1",
        )
    if not arguments.version:
        raise UsageError(
            f"no version of {what} was given",
            hint=f"give --version 1; `kernforge info {what} --versions` lists the versions",
        )
    return Search(store, None, environment, trusted), (request(what, version, revision),)


def _fetch(
    search: Search,
    wanted: tuple[Request, ...],
    selection: Selection,
    to: Path | None,
    console: Console,
) -> list[tuple[Answer, Node]]:
    """Fetch variants, and copy each one as soon as it is fetched."""
    target = None if to is None else DirectoryRegistry(to.absolute())
    fetched = []
    for answer, variant in download.fetch(search, wanted, selection):
        new = target is None or download.copy(answer, variant, target)
        console.note(
            f"{'verified' if new else 'there already:'} {answer.repo_id} {variant.path.name}"
        )
        fetched.append((answer, variant))
    return fetched


def _selection(arguments: argparse.Namespace) -> Selection:
    if arguments.variant:
        return Selection(names=tuple(arguments.variant))
    if arguments.platform:
        return Selection(hosts=tuple(map(download.parse_platform, arguments.platform)))
    return Selection(hosts=(probe(arguments.backend),))

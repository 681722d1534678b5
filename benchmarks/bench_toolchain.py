# SPDX-License-Identifier: Apache-2.0
"""Bytes of the download for each toolchain, beside the sizes of the whole wheels.

    python benchmarks/bench_toolchain.py

Reads the package index over the network, into a fresh store for each line; indexes on this
machine's disk are left out, so that the figures are those of a new user.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from results import RESULTS, describe, write

from kernforge.project import targets
from kernforge.store.local import Store
from kernforge.system.console import Console
from kernforge.toolchain import resolver
from kernforge.toolchain.index.http import Transport
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import Tree
from kernforge.toolchain.provision import Toolchains

MB = 1e6


def fresh(home: Path) -> tuple[Index, Wheels, Toolchains]:
    """An index of http addresses alone, and a store with nothing in it."""
    config = Index.from_environment(os.environ).config
    remote = tuple(url for url in config.index_urls if url.startswith("http"))
    config = replace(config, index_urls=remote, find_links=())
    index = Index(config, Transport(config))
    wheels = Wheels(lambda: index, home / "downloads", Console(quiet=True))
    return index, wheels, Toolchains(Store(home / "store"), wheels)


def row(tree: Tree) -> list[str]:
    """Lock and fetch a torch's headers, or a CUDA toolkit, into an empty store."""
    with tempfile.TemporaryDirectory() as home:
        index, wheels, toolchains = fresh(Path(home))
        locked = resolver.make([tree], wheels, cpu="x86_64", compilers={}).tree(tree.name)
        toolchains.path(locked)
        fetched = index.transport.received
        if tree.kind == "cuda":
            return [f"CUDA {locked.release} compiler", f"{fetched / MB:.0f} MB", "-", "-"]
        (wheel,) = locked.wheels
        url = index.find(wheel.file, wheel.sha256).url
        with index.transport.body(url, start=-1) as body:
            whole = body.total
        sizes = [f"{fetched / MB:.1f} MB", f"{whole / MB:.0f} MB", f"{whole / fetched:.0f}x"]
        return [f"torch {locked.release} headers", *sizes]


def main() -> None:
    """Measure every torch and every toolkit, and write the result."""
    trees = [Tree("torch", str(series)) for series in targets.torch_releases()]
    trees += [Tree("cuda", str(version)) for version in targets.TOOLKITS]
    write(
        RESULTS / "toolchain.json",
        describe("kernforge"),
        title="Download for a toolchain",
        head=["what", "kernforge downloads", "whole wheel", "ratio"],
        rows=[row(tree) for tree in trees],
        note="Index pages and requests for the lock are included. By "
        "`benchmarks/bench_toolchain.py`.",
    )


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What a toolchain costs from nothing: bytes, requests and seconds, beside the wheels' own sizes.

    python benchmarks/bench_toolchain.py

Reads the package index over the network, into a fresh store for each line; indexes on this
machine's disk are left out, so that the figures are what a stranger would see.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from results import RESULTS, describe, write

from kernforge.project import targets
from kernforge.store.local import Store
from kernforge.toolchain import resolver
from kernforge.toolchain.index.http import Transport
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import Tree
from kernforge.toolchain.provision import Toolchains

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1e6


class Silent:
    """Progress that says nothing."""

    def fetching(self, _what: str, _total: int | None) -> Callable[[int], None]:  # noqa: D102
        return lambda _count: None

    def note(self, _text: str) -> None:  # noqa: D102
        return


def fresh(home: Path) -> tuple[Index, Wheels, Toolchains]:
    """An index of http addresses alone, and a store with nothing in it."""
    config = Index.from_environment(os.environ).config
    remote = tuple(url for url in config.index_urls if url.startswith("http"))
    config = replace(config, index_urls=remote, find_links=())
    index = Index(config, Transport(config))
    wheels = Wheels(lambda: index, home / "downloads", Silent())
    return index, wheels, Toolchains(Store(home / "store"), wheels)


def measure_torch(series: str) -> dict[str, object]:
    """Lock and fetch the headers of one torch release."""
    with tempfile.TemporaryDirectory() as home:
        index, wheels, toolchains = fresh(Path(home))
        start = time.monotonic()
        wanted = Tree("torch", series)
        locked = resolver.make([wanted], wheels, cpu="x86_64", compilers={}).tree(wanted.name)
        tree = toolchains.path(locked)
        seconds = time.monotonic() - start
        (wheel,) = locked.wheels
        url = index.find(wheel.file, wheel.sha256).url
        return {
            "torch": locked.release,
            "wheel_bytes": index.transport.body(url, start=-1).total,
            "fetched_bytes": index.transport.received,
            "headers": sum(1 for path in tree.rglob("*") if path.is_file()),
            "seconds": round(seconds, 1),
        }


def measure_toolkit(version: str) -> dict[str, object]:
    """Lock and fetch one CUDA toolkit."""
    with tempfile.TemporaryDirectory() as home:
        index, wheels, toolchains = fresh(Path(home))
        start = time.monotonic()
        wanted = Tree("cuda", version)
        locked = resolver.make([wanted], wheels, cpu="x86_64", compilers={}).tree(wanted.name)
        toolchains.path(locked)
        return {
            "cuda": locked.release,
            "fetched_bytes": index.transport.received,
            "seconds": round(time.monotonic() - start, 1),
        }


def main() -> None:
    """Measure every torch and every toolkit, and write the result."""
    torches = [measure_torch(str(v)) for v in targets.torch_releases()]
    toolkits = [measure_toolkit(str(v)) for v in targets.TOOLKITS]
    rows = [
        [
            f"torch {t['torch']} headers",
            f"{t['fetched_bytes'] / MB:.1f} MB",
            f"{t['wheel_bytes'] / MB:.0f} MB",
            f"{t['wheel_bytes'] / t['fetched_bytes']:.0f}x",
        ]
        for t in torches
    ]
    rows += [
        [f"CUDA {t['cuda']} compiler", f"{t['fetched_bytes'] / MB:.0f} MB", "-", "-"]
        for t in toolkits
    ]
    write(
        RESULTS / "toolchain.json",
        describe("kernforge"),
        title="Download for a toolchain",
        head=["what", "kernforge downloads", "whole wheel", "ratio"],
        rows=rows,
        note="Index pages and requests for the lock are included. By "
        "`benchmarks/bench_toolchain.py`.",
    )


if __name__ == "__main__":
    main()

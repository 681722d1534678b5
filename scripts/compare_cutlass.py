# SPDX-License-Identifier: Apache-2.0
"""Compare the CUTLASS headers in wheels with the releases' own, and keep the result.

    python scripts/compare_cutlass.py CLONE -o benchmarks/results/cutlass-wheels.json

The clone, which may be bare, is one of CUTLASS with its tags.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from kernforge.toolchain import header_libraries, wheel_pins
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable

# What is not taken: it calls itself by a release and is another state.
OTHERS = (("4.0.0", "sgl-kernel", "0.2.7"),)


class Quiet:
    """Listens to downloads and says nothing of them."""

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:  # noqa: ARG002
        """A download begins."""
        return lambda count: None  # noqa: ARG005

    def note(self, text: str) -> None:
        """Print what must be known."""
        print(text)


def of_release(git: Path, release: str) -> dict[str, str]:
    """Git's hash of each header of a release, by path below include."""
    below = [prefix.rstrip("/") for prefix in header_libraries.HEADERS]
    argv = ["git", "-C", git, "ls-tree", "-r", f"v{release}", *below]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        meta, _, path = line.partition("\t")
        prefix = next(p for p in header_libraries.HEADERS if path.startswith(p))
        found[path.removeprefix(prefix)] = meta.split()[2]
    return found


def of_wheel(wheels: Wheels, project: str, version: str) -> tuple[str, dict[str, str]]:
    """The wheel's file name, and the same hash of each header in it."""
    wheel = wheel_pins.matching(wheels, project, SpecifierSet(f"=={version}"), "x86_64")
    archive = wheels.parts(wheel.file, wheel.sha256)
    wanted = [name for name in archive.names() if header_libraries.below_wheel(name)]
    return wheel.file, {
        str(header_libraries.below_wheel(name)): hashlib.sha1(
            b"blob %d\0" % len(data) + data, usedforsecurity=False
        ).hexdigest()
        for name, data in archive.fetch(wanted)
    }


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("git", type=Path, help="a clone of CUTLASS with its tags")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    taken = [(c.release, c.project, c.version) for c in header_libraries.CARRIED.values()]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        wheels = Wheels(Index.lazily(os.environ), Path(place), Quiet())
        for release, project, version in (*taken, *OTHERS):
            own = of_release(options.git, release)
            file, found = of_wheel(wheels, project, version)
            changed = sorted(path for path in own.keys() & found.keys() if own[path] != found[path])
            rows.append(
                {
                    "release": release,
                    "wheel": file,
                    "taken": (release, project, version) in taken,
                    "headers of the release": len(own),
                    "the same": len(own.keys() & found.keys()) - len(changed),
                    "changed": changed,
                    "not in the wheel": len(own.keys() - found.keys()),
                    "not in the release": len(found.keys() - own.keys()),
                }
            )
            print(file, rows[-1]["the same"], len(changed), flush=True)
    options.out.write_text(json.dumps({"cutlass": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

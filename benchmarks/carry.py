# SPDX-License-Identifier: Apache-2.0
"""Pack what the build benchmarks need for a machine without a network.

    python benchmarks/carry.py .carry
    # there:
    pip install --no-index --find-links .carry/wheels -r .carry/requirements.txt
    mkdir home && tar -xJf .carry/store.tar.xz -C home

The archive holds the headers of every torch that kernforge knows, each file once however many
releases have it, and the ``kernforge.lock`` that names them. A CUDA toolkit is too large to carry:
the benchmarks take the one of that machine with ``--cuda-home``.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from kernforge.build import locking, workspace
from kernforge.project import api as project
from kernforge.system.environment import Environment
from kernforge.toolchain import lockfile, resolver
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.releases import torch_releases

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "kernels" / "img2gray"
NINJA = "ninja"  # what cpp_extension starts


def requirements() -> list[str]:
    """What a build imports, as pyproject.toml says it, and what torch's own loader starts."""
    project_table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project_table["dependencies"], *project_table["optional-dependencies"]["build"], NINJA]


class Quiet:
    """Nobody watches the downloads."""

    def fetching(self, _what: str, _total: int | None):  # noqa: ANN201 - a callback
        """Count nothing."""
        return lambda _count: None

    def note(self, text: str) -> None:
        """Say it."""
        print(text, file=sys.stderr)


def torch_headers() -> tuple[lockfile.Lock, list[Path]]:
    """A lock of every torch, and the trees of their headers in the store."""
    bench = workspace.open_workspace(project.read_project(KERNEL), Quiet(), Environment.read())
    series = frozenset(str(v) for v in torch_releases())
    wanted = resolver.Needs(cuda=frozenset(), torch=series)
    compiler = locking.locked_compiler(bench)
    found = resolver.make(wanted, bench.wheels, cpu=bench.cpu, compiler=compiler)
    toolchains = Toolchains(bench.store, bench.wheels, bench.local_parts)
    return found, [toolchains.torch_headers(one.wheel) for one in found.torch.values()]


def pack(archive: Path, trees: list[Path], locked: lockfile.Lock) -> None:
    """Write the trees and the lock, equal files as hard links."""
    root = Environment.read().home
    seen: dict[str, str] = {}
    text = archive.parent / lockfile.FILE_NAME
    text.write_text(locked.to_json())
    with tarfile.open(archive, "w:xz", preset=6) as out:
        out.add(text, lockfile.FILE_NAME)
        for path in (path for tree in trees for path in sorted(tree.rglob("*"))):
            info = out.gettarinfo(path, str(path.relative_to(root)))
            if not info.isreg():
                out.addfile(info)
                continue
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest in seen:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, seen[digest], 0
                out.addfile(info)
                continue
            seen[digest] = info.name
            info.type = tarfile.REGTYPE
            with path.open("rb") as stream:
                out.addfile(info, stream)


def main() -> None:
    """Pack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", default="3.12", help="the Python of the other machine")
    arguments = parser.parse_args()
    wheels = arguments.directory / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "pip", "download", "-qq", "--only-binary=:all:"]
    argv += ["--python-version", arguments.python, "--dest", str(wheels), *requirements()]
    subprocess.run(argv, check=True)
    (arguments.directory / "requirements.txt").write_text("\n".join(requirements()) + "\n")
    locked, trees = torch_headers()
    pack(arguments.directory / "store.tar.xz", trees, locked)
    size = sum(path.stat().st_size for path in arguments.directory.rglob("*") if path.is_file())
    print(f"{arguments.directory}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

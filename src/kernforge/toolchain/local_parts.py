# SPDX-License-Identifier: Apache-2.0
"""What the user provides to a toolchain in addition to the package index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import header_libraries, installed
from kernforge.toolchain.header_libraries import HeaderFiles
from kernforge.toolchain.installed import CudaHome, TorchHome
from kernforge.toolchain.lockfile import LockedTree, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPartsOptions:
    """Where the parts of a toolchain are that the user provides.

    Attributes:
        depends: path of each header library that a manifest may depend on; the empty name
            stands for every CUTLASS.
        torch_home: directory of an installed torch, whose headers stand in for any release's.
    """

    cuda_home: Path | None = None
    depends: Mapping[str, Path] = field(default_factory=dict)
    torch_home: Path | None = None


NO_LOCAL_PARTS = LocalPartsOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """Toolkits and headers that the user provides.

    Attributes:
        headers: header libraries by the name in ``depends``.
        torch: an installed torch whose headers stand in for any release's.
    """

    cuda_home: CudaHome | None = None
    headers: Mapping[str, HeaderFiles] = field(default_factory=dict)
    torch: TorchHome | None = None

    def home_of(self, version: str) -> CudaHome | None:
        """The installed toolkit if it is of this version, as ``"12.8"``."""
        home = self.cuda_home
        return home if home and home.version == Version2.parse(version) else None

    def locked(self, tree: Tree) -> LockedTree | None:
        """What the user provides in the place of a tree's wheels, as a lock records it."""
        release = digest = ""
        if tree.cpu:
            return None
        if tree.kind == "python":
            return installed.identify_python()
        if tree.kind == "cuda" and (home := self.home_of(tree.version)):
            release, digest = home.release, home.digest
        elif tree.kind == "torch" and self.torch:
            release, digest = self.torch.release, self.torch.digest
        elif headers := self.headers.get(tree.name):
            release, digest = headers.release, headers.digest
        else:
            return None
        return LockedTree(kind=tree.kind, version=tree.version, release=release, digest=digest)

    def unused_note(self, versions: Collection[str]) -> str:
        """What to say of an installed toolkit that is of none of these versions; else empty."""
        home = self.cuda_home
        if not home or not versions or str(home.version) in versions:
            return ""
        wanted = ", ".join(sorted(versions))
        return f"{home.path} is CUDA {home.version}: it is not used for CUDA {wanted}"


def find_local_parts(
    options: LocalPartsOptions, cutlass: str, environment: Environment
) -> LocalParts:
    """Look at what the user names.

    Args:
        cutlass: the CUTLASS that the project depends on; empty without one.

    Raises:
        UsageError: something is not there or not what it should be.
    """
    home, torch = options.cuda_home, options.torch_home
    records = environment.home / "store" / "compilers"
    path = (options.depends.get(cutlass) or options.depends.get("")) if cutlass else None
    return LocalParts(
        cuda_home=installed.identify_cuda(home, environment.variables, run) if home else None,
        headers={cutlass: header_libraries.read(path)} if path else {},
        torch=installed.identify_torch(torch, records) if torch else None,
    )

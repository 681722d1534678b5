# SPDX-License-Identifier: Apache-2.0
"""What the user provides to a toolchain in addition to the package index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import header_libraries, installed
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.lockfile import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPartsOptions:
    """Where the parts of a toolchain are that the user provides.

    Attributes:
        cutlass: directory or archive of CUTLASS, of any release.
        torch_home: directory of an installed torch, whose headers stand in for any release's.
    """

    cuda_home: Path | None = None
    cutlass: Path | None = None
    torch_home: Path | None = None

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """What the environment names, for builds of the user's own projects."""
        cuda, cutlass = environment.kernforge_cuda_home, environment.cutlass_src_dir
        return cls(
            cuda_home=Path(cuda) if cuda else None, cutlass=Path(cutlass) if cutlass else None
        )


NO_LOCAL_PARTS = LocalPartsOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """Trees that the user provides, by kind."""

    trees: Mapping[str, LocalTree] = field(default_factory=dict)

    @property
    def cuda(self) -> LocalTree | None:
        """The installed toolkit."""
        return self.trees.get("cuda")

    def of(self, tree: Tree) -> LocalTree | None:
        """What the user has in the place of a tree's wheels."""
        if tree.cpu:
            return None
        if tree.kind == "python":
            return LocalTree(locked=installed.identify_python(), path=installed.python_headers())
        here = self.trees.get(tree.kind)
        if here is None or here.locked.version not in {"", tree.version}:
            return None
        return replace(here, locked=replace(here.locked, version=tree.version))

    def unused_note(self, versions: Collection[str]) -> str:
        """What to say of an installed toolkit that is of none of these versions; else empty."""
        home = self.cuda
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
    trees = {}
    if options.cuda_home:
        trees["cuda"] = installed.identify_cuda(options.cuda_home, environment.variables, run)
    if options.torch_home:
        records = environment.home / "store" / "compilers"
        trees["torch"] = installed.identify_torch(options.torch_home, records)
    if cutlass and options.cutlass:
        trees[cutlass] = header_libraries.identify(cutlass, options.cutlass)
    return LocalParts(trees=trees)

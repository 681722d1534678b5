# SPDX-License-Identifier: Apache-2.0
"""What the user provides to a toolchain in addition to the package index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar

from kernforge.errors import KernforgeError, NetworkError, UnavailableError
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import header_libraries, installed
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.lockfile import Tree

_T = TypeVar("_T")
_log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """Trees that the user provides, by kind; none by default."""

    trees: Mapping[str, LocalTree] = field(default_factory=dict)

    @classmethod
    def named(cls, environment: Environment, cutlass: str = "") -> Self:
        """What the environment names, for builds of the user's own projects.

        Args:
            cutlass: the CUTLASS that the project depends on; empty without one.
        """
        toolkit, checkout = environment.kernforge_cuda_home, environment.cutlass_src_dir
        parts = cls.installed(environment, cuda_home=Path(toolkit) if toolkit else None)
        if not cutlass or not checkout:
            return parts
        tree = header_libraries.identify(cutlass, Path(checkout))
        return replace(parts, trees={**parts.trees, cutlass: tree})

    @classmethod
    def installed(
        cls,
        environment: Environment,
        *,
        cuda_home: Path | None = None,
        torch_home: Path | None = None,
    ) -> Self:
        """What is installed on this machine: a toolkit, and a torch for any release's headers."""
        trees = {}
        if cuda_home:
            trees["cuda"] = installed.identify_cuda(cuda_home, environment.variables, run)
        if torch_home:
            trees["torch"] = installed.identify_torch(torch_home, environment.compilers)
        return cls(trees=trees)

    @property
    def cuda(self) -> LocalTree | None:
        """The installed toolkit."""
        return self.trees.get("cuda")

    def of(self, tree: Tree) -> LocalTree | None:
        """What the user has in the place of a tree's wheels."""
        if tree.cpu:
            return None
        if tree.kind == "python" and "python" not in self.trees:
            return LocalTree(locked=installed.identify_python(), path=installed.python_headers())
        here = self.trees.get(tree.kind)
        if here is None or here.locked.version not in {"", tree.version}:
            return None
        return replace(here, locked=replace(here.locked, version=tree.version))

    def or_installed(
        self, make: Callable[[LocalParts], _T], installed: Callable[[KernforgeError], LocalParts]
    ) -> _T:
        """What is made with these, else with what is installed on this machine.

        Args:
            make: may ask an index for the other parts.
            installed: called if no index can give them; returns what is installed, or raises.
        """
        try:
            return make(self)
        except (NetworkError, UnavailableError) as error:
            parts = installed(error)
            _log.warning(
                "%s; this machine's own torch and compilers are used instead", error.message
            )
        return make(parts)

    def unused_note(self, versions: Collection[str]) -> str:
        """What to say of an installed toolkit that is of none of these versions; else empty."""
        home = self.cuda
        if not home or not versions or str(home.version) in versions:
            return ""
        wanted = ", ".join(sorted(versions))
        return f"{home.path} is CUDA {home.version}: it is not used for CUDA {wanted}"

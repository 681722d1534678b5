# SPDX-License-Identifier: Apache-2.0
"""The toolchain's trees that a plan reads, as real paths on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernforge.builder.execute import results, sandbox
from kernforge.builder.plan.graph import Plan
from kernforge.builder.workspace import Workspace
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import host_compiler
from kernforge.toolchain.lockfile import Lock
from kernforge.toolchain.provision import STORE_KIND, Toolchains


def fetch_trees(workspace: Workspace, plan: Plan, lock: Lock) -> dict[str, str]:
    """Bring the toolchain trees that a plan will read into the store.

    What has its result already, here or in the shared store, needs no compiler: a plan of which
    nothing must be run fetches nothing.

    Returns:
        The real path of each tree.

    Raises:
        IntegrityError: something is not what the lock says.
        NetworkError: something is lacking and no index can be reached.
        ToolchainError: no index has it, or Python's headers are wanted and not installed.
    """
    left = results.pull(plan, workspace.store)
    return tree_paths(workspace, {name for action in left for name in action.trees}, lock)


def tree_paths(workspace: Workspace, names: Iterable[str], lock: Lock) -> dict[str, str]:
    """Bring these trees into the store; raises what ``fetch_trees`` does.

    Returns:
        The real path of each tree.
    """
    toolchains = Toolchains(workspace.store, workspace.wheels, workspace.local_parts)
    found = {name: _real(_tree(name, workspace, toolchains, lock)) for name in sorted(names)}
    for path in found.values():
        # Line tables hold the time of every header; a tree that the store made is ours to set.
        if Path(path).is_relative_to((workspace.store.root / STORE_KIND).resolve()):
            files.set_times(Path(path), sandbox.EPOCH)
    return found


def _real(path: str) -> str:
    """A tree's real path: compilers follow links and write what they find into ``__FILE__``."""
    return os.path.realpath(path) if Path(path).is_dir() else path


def _tree(name: str, workspace: Workspace, toolchains: Toolchains, lock: Lock) -> str:
    if name == "cxx":
        return workspace.compiler.program(workspace.store.root / "compilers")
    if name in lock.compilers:
        cpu = name.partition("-cxx")[0]
        return host_compiler.find_cross(cpu, workspace.search_path, run).path
    return str(toolchains.path(lock.tree(name)))

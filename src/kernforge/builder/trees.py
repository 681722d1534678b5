# SPDX-License-Identifier: Apache-2.0
"""The toolchain's trees that a plan reads, as real paths on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.builder.execute import results, sandbox
from kernforge.builder.plan.graph import Plan
from kernforge.builder.workspace import Workspace
from kernforge.errors import ToolchainError
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, installed, tree_names
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock, LockedCross
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
    kind, _, rest = name.partition("-")
    if kind in lock.cross:
        return _cross_tree(rest, workspace, toolchains, lock.cross[kind], kind)
    if kind == "cxx":
        return workspace.compiler.program(workspace.store.root / "compilers")
    if kind == "python":
        return str(installed.python_headers())
    if kind == "torch" and name in lock.headers:
        return _installed_torch(name, workspace.local_parts, lock)
    if kind == "torch":
        return str(toolchains.torch_headers(lock.torch[rest].wheel))
    if name in lock.headers:
        return str(toolchains.headers(name, lock.headers[name]))
    version, _, library = rest.partition("-")
    toolkit = lock.cuda[version]
    if not library:
        return str(toolchains.toolkit(toolkit))
    wheel = next(
        w
        for w in toolkit.libraries
        if tree_names.library_root(Version2.parse(version), w.file.partition("-")[0]) == name
    )
    return str(toolchains.library_headers(wheel))


def _cross_tree(
    name: str, workspace: Workspace, toolchains: Toolchains, cross: LockedCross, cpu: str
) -> str:
    """A tree for another processor."""
    kind, _, version = name.partition("-")
    if kind == "cxx":
        return host_compiler.find_cross(cpu, workspace.search_path, run).path
    if kind == "torch":
        return str(toolchains.torch_headers(cross.torch[version].wheel))
    return str(toolchains.static_runtime(cross.runtime[version]))


def _installed_torch(name: str, local_parts: LocalParts, lock: Lock) -> str:
    """The installed torch whose headers a lock names.

    Raises:
        ToolchainError: it is not here.
    """
    there = lock.headers[name]
    if local_parts.torch is None or local_parts.torch.digest != there.digest:
        raise ToolchainError(
            f"the lock names the headers of an installed torch {there.release}, which is not here",
            hint="lock the toolchain again: kernforge lock-toolchain",
        )
    return str(local_parts.torch.path)

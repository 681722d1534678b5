# SPDX-License-Identifier: Apache-2.0
"""``kernforge lock``: the kernels of an application, or the toolchain of a kernel project."""

from __future__ import annotations

import argparse

from kernforge.application import project_lock
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.system.console import Console
from kernforge.system.tables import table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Write the lock, or check it."""
    if (arguments.project / "build.toml").is_file():
        _lock_toolchain(arguments, console)
        return
    if arguments.cuda or arguments.torch:
        raise UsageError(
            f"--cuda and --torch are for a kernel project; {arguments.project} has no build.toml",
            hint="remove --cuda and --torch",
        )
    application = project_lock.read(arguments.project)
    if arguments.check:
        project_lock.check(application)
        console.result({"current": True}, "the lock is up to date")
        return
    upgrade = arguments.upgrade
    pins = project_lock.lock(
        application, options.registry(arguments), upgrade=() if upgrade is None else upgrade or None
    )
    if not application.package:
        console.note(
            "note: setuptools installs the lock with the application if [build-system] requires "
            'kernforge; for another backend set [tool.kernforge.lock] package = "src/app"'
        )
    kernels = [
        {
            "repo_id": pin.depend.repo_id,
            "version": pin.depend.version,
            "revision": pin.depend.revision,
            "asked": pin.asked,
            "release": pin.release,
            "commit": pin.commit,
            "variants": sorted(pin.metadata),
        }
        for pin in pins
    ]
    rows = [(p.depend.repo_id, p.release or p.depend.revision or "", p.commit[:12]) for p in pins]
    text = table(rows, head=("kernel", "version", "commit"))
    console.result({"kernels": kernels, "package": application.package}, text)


def _lock_toolchain(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.builder.workspace import Mode, ensure_lock, needs  # noqa: PLC0415 - applications need none of it
    from kernforge.project import targets  # noqa: PLC0415
    from kernforge.toolchain.lockfile import Tree  # noqa: PLC0415

    if arguments.check or arguments.upgrade:
        raise UsageError(
            f"{arguments.project} is a kernel project: --check and names of kernels are for "
            "applications",
            hint="use --upgrade without names, or check the lock with `kernforge build --locked`",
        )
    workspace = options.workspace(arguments, console)
    more = [Tree("cuda", version) for version in arguments.cuda]
    more += [Tree("torch", version) for version in arguments.torch]
    wanted = needs(workspace, targets.choose(workspace.candidates, [])).union(more)
    mode: Mode = "write" if arguments.upgrade is None else "upgrade"
    locked, _ = ensure_lock(workspace, wanted, mode)
    lines = [
        f"  {tree}: {tree.release}"
        + (f", front end of {tree.front_end.release}" if tree.front_end else "")
        for tree in sorted(locked.trees.values())
    ]
    lines += [f"  {name}: {each.identity}" for name, each in sorted(locked.compilers.items())]
    path = str(workspace.project.root / "kernforge.lock")
    console.result({"lock": path}, "\n".join([path, *lines]))

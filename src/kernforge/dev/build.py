# SPDX-License-Identifier: Apache-2.0
"""The build of a round of ``kernforge dev``: of an edit of device code, that code alone.

nvcc compiles it and not NVRTC: what NVRTC makes is looked at in the background, where tests run and
times are taken.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, TypeAlias

from kernforge.binary import kernel_usage
from kernforge.build import workspace as build_workspace
from kernforge.build.api import BuildRequest
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import CheckError
from kernforge.jit import make
from kernforge.jit.device import nvcc_stages
from kernforge.jit.device.project import replace_edited
from kernforge.loader import host
from kernforge.project import targets as project_targets
from kernforge.testing import project_tests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.build.plan.graph import Plan
    from kernforge.build.workspace import Workspace
    from kernforge.dev.control import RoundEvents
    from kernforge.dev.session import DevOptions
    from kernforge.jit.device.units import DeviceSession
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.store.local import Store
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.local_parts import LocalParts, LocalPartsOptions


Kept: TypeAlias = dict[tuple[str | None, ...], tuple["Compiler", "LocalParts"]]
"""What a session has found of the machine, for a manifest, ``CXX`` and ``PATH``."""


def open_workspace(
    project: Project, events: RoundEvents, options: LocalPartsOptions, kept: Kept
) -> Workspace:
    """Look at the machine, what it lends and the project's files.

    The compiler and an installed torch are looked at once: that takes longer than a link. A library
    that a project depends on may be edited as the project is.

    Args:
        project: the project.
        events: listens to downloads.
        options: what the user provides to the toolchain.
        kept: what was found before.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user provides is not there or not what it should be.
    """
    key = (project.manifest.content, os.environ.get("CXX"), os.environ.get("PATH"))
    cxx, local_parts = kept.get(key, (None, None))
    workspace = build_workspace.open_workspace(
        project,
        events,
        options,
        cxx=cxx,
        local_parts=None if options.depends else local_parts,
    )
    kept[key] = (workspace.compiler, workspace.local_parts)
    return workspace


def request(
    workspace: Workspace, options: DevOptions, events: RoundEvents, session: DeviceSession
) -> BuildRequest:
    """What a round builds.

    Args:
        workspace: the project.
        options: what the session of ``dev`` is asked for.
        events: listens.
        session: what remembers the objects of earlier rounds.

    Raises:
        NoVariantError: the project has no variant for this process.
        UsageError: a pattern names no variant.
    """
    targets = _targets(workspace, options.variants)
    return BuildRequest(
        targets=targets,
        events=events,
        only=options.arch or _capability(targets),
        sandbox=options.sandbox,
        jobs=options.jobs,
        runner=nvcc_stages.run_stages,
        edited=functools.partial(replace_edited, session, nvrtc=False),
        trim_every_s=make.TRIM_EVERY_S,
    )


def _targets(workspace: Workspace, patterns: Sequence[str]) -> tuple[Target, ...]:
    if patterns:
        return project_targets.choose(workspace.candidates, patterns)
    every = [candidate.name for candidate in workspace.candidates if candidate.target]
    # The last is the GPU's if there is one: one build an edit, for what this process runs on.
    fit = project_tests.chosen(every, project_tests.fitting(every))[-1:]
    return project_targets.choose(workspace.candidates, fit)


def _capability(targets: Sequence[Target]) -> tuple[str, ...]:
    """This machine's GPU, if something is built for one."""
    if not any(target.cuda for target in targets):
        return ()
    here = host.with_device(host.probe()).capability
    return (str(here),) if here else ()


def kernels(plan: Plan, store: Store) -> tuple[tuple[kernel_usage.Kernel, ...], str]:
    """What the device code of a plan's objects takes, and why some of it cannot be read."""
    found: dict[tuple[str, str], kernel_usage.Kernel] = {}
    unread = ""
    for action in plan.actions:
        tree = store.path(STORE_KIND, action.key)
        for output in action.outputs:
            if output.endswith(".o") and (tree / output).is_file():
                try:
                    read = kernel_usage.read((tree / output).read_bytes())
                except CheckError as error:
                    unread = f"{action.title}: {error.message}"
                    continue
                for kernel in read:
                    found.setdefault((kernel.use.symbol, kernel.arch), kernel)
    return tuple(found.values()), unread

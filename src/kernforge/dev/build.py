# SPDX-License-Identifier: Apache-2.0
"""Build of a round of ``kernforge dev``, which compiles only device code after an edit of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernforge.binary import kernel_usage
from kernforge.builder.api import BuildRequest
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.execute.sandbox import Mode
from kernforge.builder.plan.graph import Plan
from kernforge.builder.workspace import Workspace
from kernforge.dev.control import RoundEvents
from kernforge.errors import CheckError
from kernforge.extension.device import nvcc_stages
from kernforge.extension.device.swap import replace_edited
from kernforge.extension.device.units import DeviceSession
from kernforge.loader import host
from kernforge.project import targets as project_targets
from kernforge.project.targets import Target
from kernforge.store.local import Store
from kernforge.system import machine
from kernforge.system.environment import Environment
from kernforge.testing import project_tests
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS, LocalPartsOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """Options of a session.

    Attributes:
        place: directory for the builds and figures of the project.
        variants: names or patterns; empty for the best variant for this process.
        arch: compute capabilities to compile for; empty for this machine's GPU.
        workloads: workloads to measure; empty for the first one.
    """

    root: Path
    place: Path
    environment: Environment
    variants: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    local_parts: LocalPartsOptions = NO_LOCAL_PARTS
    sandbox: Mode = "auto"
    jobs: int = field(default_factory=machine.cores)
    test: bool = True
    bench: bool = True
    pytest: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


def request(
    workspace: Workspace, options: DevOptions, events: RoundEvents, session: DeviceSession
) -> BuildRequest:
    """The request for a round's build.

    Raises:
        NoVariantError: the project has no variant for this process.
        UsageError: a pattern matches no variant.
    """
    targets = _targets(workspace, options.variants)
    return BuildRequest(
        targets=targets,
        events=events,
        only=options.arch or _capability(targets),
        sandbox=options.sandbox,
        jobs=options.jobs,
        runner=nvcc_stages.run_stages,
        edited=functools.partial(replace_edited, session),
    )


def _targets(workspace: Workspace, patterns: Sequence[str]) -> tuple[Target, ...]:
    if patterns:
        return project_targets.choose(workspace.candidates, patterns)
    names = [candidate.name for candidate in workspace.candidates if candidate.target]
    # The last one is that of the GPU if there is one: one build for an edit, for this process.
    suitable = project_tests.chosen(names, project_tests.fitting(names))[-1:]
    return project_targets.choose(workspace.candidates, suitable)


def _capability(targets: Sequence[Target]) -> tuple[str, ...]:
    """Compute capability of this machine's GPU, if a target is for CUDA."""
    if not any(target.cuda for target in targets):
        return ()
    here = host.with_device(host.probe()).capability
    return (str(here),) if here else ()


def kernels(plan: Plan, store: Store) -> tuple[tuple[kernel_usage.Kernel, ...], str]:
    """Kernels of a plan's objects with their resources, and why some cannot be read."""
    kernels_: dict[tuple[str, str], kernel_usage.Kernel] = {}
    unread = ""
    for action in plan.actions:
        tree = store.path(STORE_KIND, action.key)
        for output in action.outputs:
            if output.endswith(".o") and (tree / output).is_file():
                try:
                    usages = kernel_usage.read((tree / output).read_bytes())
                except CheckError as error:
                    unread = f"{action.title}: {error.message}"
                    continue
                for kernel in usages:
                    kernels_.setdefault((kernel.use.symbol, kernel.arch), kernel)
    return tuple(kernels_.values()), unread

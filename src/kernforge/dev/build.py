# SPDX-License-Identifier: Apache-2.0
"""The build of a round of ``kernforge dev``: of an edit of device code, that code alone.

nvcc compiles it and not NVRTC: what NVRTC makes is looked at in the background, where tests run and
times are taken.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kernforge.build import steps, trees, workspace
from kernforge.build.execute import executor
from kernforge.dev.control import StoppingCrew
from kernforge.jit.device import nvcc_stages, project, swap

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.build.execute.outcome import Outcome
    from kernforge.build.execute.sandbox import Sandbox
    from kernforge.build.plan.graph import Plan
    from kernforge.build.workspace import Bench
    from kernforge.dev.control import Stop, Teller
    from kernforge.project.api import Project
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.local_parts import Brought, Own
    from kernforge.toolchain.lockfile import Lock


Kept: TypeAlias = dict[tuple[str | None, ...], tuple["Compiler", "Own"]]
"""What a session has found of the machine, for a manifest, ``CXX`` and ``PATH``."""


def set_up(one: Project, teller: Teller, brought: Brought, kept: Kept) -> Bench:
    """Look at the machine, what it lends and the project's files.

    The compiler and an installed torch are looked at once: that takes longer than a link. A library
    that a project depends on may be edited as the project is.

    Args:
        one: the project.
        teller: is told of downloads.
        brought: what the user brings to the toolchain.
        kept: what was found before.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user brings is not there or not what it should be.
    """
    key = (one.manifest.content, os.environ.get("CXX"), os.environ.get("PATH"))
    cxx, mine = kept.get(key, (None, None))
    bench = workspace.set_up(one, teller, brought, cxx=cxx, mine=None if brought.depends else mine)
    kept[key] = (bench.compiler, bench.own)
    return bench


def make(
    bench: Bench,
    plan: Plan,
    locked: Lock,
    *,
    isolation: Sandbox,
    jobs: int,
    out: Path,
    teller: Teller,
    stop: Stop,
) -> tuple[Plan, Outcome]:
    """Build what was planned, for a round.

    Args:
        bench: the project.
        plan: what to build.
        locked: the toolchain.
        isolation: how actions are kept to their inputs.
        jobs: threads of all compilers together.
        out: directory that will hold a directory for each variant.
        teller: is told what happens.
        stop: may end it.

    Returns:
        The plan that was run, in which new device code may lie in an earlier object, and what came
        of it.

    Raises:
        StoppedError: the round was ended.
    """
    paths = trees.fetch(bench, plan, locked)
    workshop = steps.make_workshop(bench, paths, jobs=jobs, isolation=isolation)
    workshop = replace(workshop, runner=nvcc_stages.run_stages)
    place = project.Place(lock=locked, store=bench.store, roots=paths)
    found, whole = project.edited(bench, plan, place, workshop, nvrtc=False)
    stop.check()
    outcome = executor.build(
        found,
        bench.project,
        workshop,
        out=out,
        origin=steps.origin(bench, found, locked),
        events=teller,
        crew=StoppingCrew(stop, jobs=jobs),
    )
    if whole and not outcome.failures:
        swap.learn(whole, place, nvrtc=False)
    return found, outcome

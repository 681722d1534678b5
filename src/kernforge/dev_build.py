# SPDX-License-Identifier: Apache-2.0
"""The build of a round of ``kernforge dev``: of an edit of device code, that code alone.

nvcc compiles it and not NVRTC: what NVRTC makes is looked at in the background, where tests run and
times are taken.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kernforge import build, jit_edit, jit_stages, jit_swap, pipeline, roots, workbench
from kernforge.dev_control import StoppingCrew

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.compiler import Compiler
    from kernforge.dev_control import Stop, Teller
    from kernforge.graph import Plan
    from kernforge.lockfile import Lock
    from kernforge.outcome import Outcome
    from kernforge.own import Brought, Own
    from kernforge.project import Project
    from kernforge.sandbox import Sandbox
    from kernforge.workbench import Bench


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
    bench = workbench.set_up(one, teller, brought, cxx=cxx, mine=None if brought.depends else mine)
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
    paths = roots.fetch(bench, plan, locked)
    workshop = pipeline.make_workshop(bench, paths, jobs=jobs, isolation=isolation)
    workshop = replace(workshop, runner=jit_stages.run_stages)
    place = jit_edit.Place(lock=locked, store=bench.store, roots=paths)
    found, whole = jit_edit.edited(bench, plan, place, workshop, nvrtc=False)
    stop.check()
    outcome = build.build(
        found,
        bench.project,
        workshop,
        out=out,
        origin=pipeline.origin(bench, found, locked),
        events=teller,
        crew=StoppingCrew(stop, jobs=jobs),
    )
    if whole and not outcome.failures:
        jit_swap.learn(whole, place, nvrtc=False)
    return found, outcome

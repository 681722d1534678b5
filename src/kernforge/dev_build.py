# SPDX-License-Identifier: Apache-2.0
"""The build of a round of ``kernforge dev``: of an edit of device code, that code alone.

nvcc compiles it and not NVRTC: what NVRTC makes is looked at in the background, where tests run and
times are taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernforge import build, jit_edit, jit_stages, jit_swap, pipeline, roots
from kernforge.dev_control import StoppingCrew

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.dev_control import Stop, Teller
    from kernforge.graph import Plan
    from kernforge.lockfile import Lock
    from kernforge.outcome import Outcome
    from kernforge.sandbox import Sandbox
    from kernforge.workbench import Bench


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

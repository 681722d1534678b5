# SPDX-License-Identifier: Apache-2.0
"""The plan of a kernel project with the objects of edited device code in it.

What ``jit_swap`` does for a module's sources, for a project: ``load`` and ``kernforge dev`` share it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge.build.api import EditedPlan
from kernforge.build.execute import executor
from kernforge.build.execute.results import STORE_KIND
from kernforge.jit.device import nvcc_stages, replan, swap
from kernforge.system.console import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.build.api import PlannedBuild
    from kernforge.build.execute.action import ActionContext
    from kernforge.build.execute.outcome import Events, Failure
    from kernforge.build.plan.graph import Plan
    from kernforge.build.workspace import Workspace
    from kernforge.store.local import Store
    from kernforge.toolchain.lockfile import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and with what a project's device code is made; see ``jit_swap.Place``."""

    lock: Lock
    store: Store
    roots: Mapping[str, str]


def edited(
    workspace: Workspace, planned: PlannedBuild, context: ActionContext, *, nvrtc: bool = True
) -> EditedPlan:
    """Compile alone the device code of units of which nothing else is new.

    Args:
        workspace: the project.
        planned: the plan of one variant.
        context: what actions are run with.
        nvrtc: see ``jit_swap.swapped``.

    Returns:
        The plan to run. What nvcc compiles of it as a whole is remembered after the build.
    """
    place = Place(lock=planned.lock, store=context.store, roots=context.trees)
    parts = replan.Parts(
        manifest=workspace.project.manifest, sources=workspace.sources, lock=planned.lock
    )
    same = EditedPlan(plan=planned.plan)
    whole = replan.made(planned.plan, parts)
    if whole is None:
        return same
    if place.store.has(STORE_KIND, whole.link.key):
        swap.remember(whole)
        return same
    quiet: Events = Report(quiet=True, failures=False)

    def run_plan(some: Plan) -> tuple[Failure, ...]:
        return executor.run_actions(some, context, quiet, project=workspace.project).failures

    def behind(some: Plan) -> tuple[Failure, ...]:
        slow = replace(context, runner=nvcc_stages.run_behind)
        return executor.run_actions(some, slow, quiet, project=workspace.project).failures

    again = functools.partial(replan.with_objects, whole, parts=parts)
    if found := swap.swapped(whole, place, run_plan, behind, again, nvrtc=nvrtc):
        return EditedPlan(plan=found.plan)
    return replace(same, learn=functools.partial(swap.learn, whole, place, nvrtc=nvrtc))

# SPDX-License-Identifier: Apache-2.0
"""The plan of a kernel project with the objects of edited device code in it.

The plan is that of ``kernforge build``, so that its results come from the same store. ``load`` and
``kernforge dev`` replace in it the objects of edited units.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from kernforge.builder.api import EditedPlan, PlannedBuild
from kernforge.builder.execute import executor
from kernforge.builder.execute.action import ActionContext, Failure
from kernforge.builder.execute.executor import Events
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.plan.graph import Plan
from kernforge.builder.workspace import Workspace
from kernforge.extension.device import swap
from kernforge.extension.device.units import CudaUnit, DeviceSession, DeviceToolchain, ModulePlan
from kernforge.project.units import Sources
from kernforge.system.console import Console


def replace_edited(
    session: DeviceSession,
    workspace: Workspace,
    planned: PlannedBuild,
    context: ActionContext,
) -> EditedPlan:
    """Compile the device code of units of which only that is new, and put it into the plan.

    Args:
        planned: the plan of one variant, as ``kernforge build`` makes it.

    Returns:
        The plan to run. The objects that nvcc compiles as a whole are remembered after the build.
    """
    module = module_plan(planned.plan, workspace.project.sources)
    if module is None:
        return EditedPlan(plan=planned.plan)
    toolchain = DeviceToolchain(lock=planned.lock, store=context.store, trees=context.trees)
    learn = functools.partial(session.remember, module, context.store)
    if context.store.has(STORE_KIND, module.link.key):
        return EditedPlan(plan=planned.plan, learn=learn)
    quiet: Events = Console(quiet=True, failures=False)

    def run_plan(plan: Plan) -> tuple[Failure, ...]:
        return executor.run_actions(plan, context, quiet).failures

    edited = swap.swap_device_code(session, module, toolchain, run_plan)
    return EditedPlan(plan=edited.plan, learn=learn)


def module_plan(plan: Plan, sources: Sources) -> ModulePlan | None:
    """A project's plan of one variant as ``swap`` takes it.

    Returns:
        None if the plan has several variants, or if nvcc compiles nothing of it.
    """
    if len(plan.artifacts) != 1 or not plan.artifacts[0].extension:
        return None
    cuda = tuple(_cuda_units(plan, sources))
    if not cuda:
        return None
    (link,) = (each for each in plan.actions if each.key == plan.artifacts[0].extension)
    target = plan.artifacts[0].target
    return ModulePlan(plan=plan, link=link, cuda=cuda, target=target)


def _cuda_units(plan: Plan, sources: Sources) -> Iterator[CudaUnit]:
    target = plan.artifacts[0].target
    for unit in sources.units(target.backend, target.cuda):
        if not unit.is_cuda:
            continue
        for action in plan.actions:
            if action.source != unit.path:
                continue
            yield CudaUnit(
                path=unit.path,
                texts={path: sources.readable[path] for path in unit.closure.files},
                closure=unit.closure,
                action=action,
            )

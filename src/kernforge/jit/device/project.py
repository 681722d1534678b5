# SPDX-License-Identifier: Apache-2.0
"""The plan of a kernel project with the objects of edited device code in it.

What ``jit_swap`` does for a module's sources, for a project: ``load`` and ``kernforge dev`` share it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge.build.execute import executor
from kernforge.build.execute.results import SHELF
from kernforge.jit.device import nvcc_stages, replan, swap
from kernforge.system.console import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.build.execute.action import Workshop
    from kernforge.build.execute.outcome import Events, Failure
    from kernforge.build.plan.graph import Plan
    from kernforge.build.workspace import Bench
    from kernforge.jit.plan import Made
    from kernforge.store.local import Store
    from kernforge.toolchain.lockfile import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and with what a project's device code is made; see ``jit_swap.Place``."""

    lock: Lock
    store: Store
    roots: Mapping[str, str]


def edited(
    bench: Bench, plan: Plan, place: Place, workshop: Workshop, *, nvrtc: bool = True
) -> tuple[Plan, Made | None]:
    """Compile alone the device code of units of which nothing else is new.

    Args:
        bench: the project.
        plan: of one variant, as ``kernforge build`` makes it.
        place: where and with what it is made.
        workshop: runs actions.
        nvrtc: see ``jit_swap.swapped``.

    Returns:
        The plan to run, and what nvcc will compile as a whole: for ``jit_swap.learn``, afterwards.
    """
    parts = replan.Parts(manifest=bench.project.manifest, sources=bench.sources, lock=place.lock)
    whole = replan.made(plan, parts)
    if whole is None:
        return plan, None
    if place.store.has(SHELF, whole.link.key):
        swap.remember(whole)
        return plan, None
    quiet: Events = Report(quiet=True, failures=False)

    def run_plan(some: Plan) -> tuple[Failure, ...]:
        return executor.run_actions(some, workshop, quiet, bench.project)

    def behind(some: Plan) -> tuple[Failure, ...]:
        shop = replace(workshop, runner=nvcc_stages.run_behind)
        return executor.run_actions(some, shop, quiet, bench.project)

    again = functools.partial(replan.with_objects, whole, parts=parts)
    found = swap.swapped(whole, place, run_plan, behind, again, nvrtc=nvrtc)
    return (found.plan, None) if found else (plan, whole)

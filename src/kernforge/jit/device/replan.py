# SPDX-License-Identifier: Apache-2.0
"""A kernel project's plan as ``jit_swap`` takes it: its CUDA sources, and other objects in their place.

The plan itself is that of ``kernforge build``, so that what it does comes from the same store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge.build.plan.graph import ActionSet
from kernforge.jit.plan import CudaUnit, Made
from kernforge.project import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.build.plan.graph import Action, Plan
    from kernforge.manifest.document import Manifest
    from kernforge.project.units import Sources
    from kernforge.toolchain.lockfile import Lock

_OUTPUT_WORDS = 3  # the source, -o and the object end an argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a project's plan was made from.

    Attributes:
        manifest: the project's.
        sources: its files.
        lock: the toolchain.
    """

    manifest: Manifest
    sources: Sources
    lock: Lock


def made(plan: Plan, parts: Parts) -> Made | None:
    """A plan of one variant, told in the JIT's terms; None when nothing of it is CUDA by nvcc."""
    if len(plan.artifacts) != 1 or not plan.artifacts[0].extension:
        return None
    found = tuple(_cuda(plan, parts))
    if not found:
        return None
    (link,) = (one for one in plan.actions if one.key == plan.artifacts[0].extension)
    target = plan.artifacts[0].target
    return Made(plan=plan, link=link, header=None, namespaces={}, cuda=found, target=target)


def with_objects(before: Made, instead: Mapping[str, Action], parts: Parts) -> Made:
    """The same with other objects for the units of these paths: what reads them has new keys."""
    (artifact,) = before.plan.artifacts
    actions = ActionSet(parts.sources, parts.lock)
    now = {unit.action.key: instead[unit.path] for unit in before.cuda if unit.path in instead}
    for action in before.plan.actions:
        if action.key in now:
            continue
        inputs = []
        for one in action.inputs:
            key, _, output = one.name.partition("/")
            moved = one.origin == "action" and now[key].key != key
            inputs.append(actions.output(now[key], output, one.path) if moved else one)
        now[action.key] = (
            action
            if inputs == list(action.inputs)
            else actions.add(action.title, action.argv, inputs, action.outputs, artifact.target)
        )
    link = now[before.link.key]
    plan = replace(
        before.plan,
        actions=tuple({now[one.key].key: now[one.key] for one in before.plan.actions}.values()),
        artifacts=(replace(artifact, extension=link.key),),
    )
    return replace(before, plan=plan, link=link)


def _cuda(plan: Plan, parts: Parts) -> Iterator[CudaUnit]:
    target = plan.artifacts[0].target
    texts = {**parts.sources.texts, **parts.sources.brought}
    for unit in units.units(parts.manifest, target.backend, target.cuda):
        if not unit.is_cuda:
            continue
        for action in plan.actions:
            ours = action.argv[-_OUTPUT_WORDS:][0] == unit.path
            if not ours or not action.argv[0].endswith("/nvcc"):
                continue
            closure = units.closure(unit, parts.sources)
            yield CudaUnit(
                path=unit.path,
                texts={path: texts[path] for path in closure.files},
                includes=_search(action.argv),
                foreign=closure.foreign,
                opaque=closure.opaque,
                action=action,
            )


def _search(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Directories of the project that an argv names as ``-I``."""
    return tuple(
        word.removeprefix("-I") for word in argv if word.startswith("-I") and "%{" not in word
    )

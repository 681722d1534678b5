# SPDX-License-Identifier: Apache-2.0
"""Put new device code into the object whose host code stays.

The units whose objects nvcc compiled are remembered. When one comes again with the same host's part
(``plan.DevicePart``), nvcc compiles its device code alone, which replaces the old one in a copy of
that object. The copy is linked as ever. Kernels and variables that the host registers are looked
for by name before that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.binary import cubin, elf, fatbin
from kernforge.builder.execute import action as execute_action
from kernforge.builder.execute import results
from kernforge.builder.execute.action import Failure
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.plan.graph import Action, Plan
from kernforge.builder.plan.linking import OBJECT
from kernforge.extension.device.plan import (
    CUBIN,
    DevicePart,
    compile_device,
    device_part,
    library_constants,
)
from kernforge.extension.device.units import (
    CudaUnit,
    DeviceSession,
    DeviceToolchain,
    ModulePlan,
)
from kernforge.system import digest, files
from kernforge.system.process import Command, run

RunPlan = Callable[[Plan], tuple[Failure, ...]]
"""Runs a plan, and returns the actions that failed."""

_log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True)
class _Edit:
    """A unit of which only the device code is new.

    Attributes:
        host: key of the host's part.
        before: its earlier object.
        code: the machine code in that object.
        ways: nvcc's device stages with their files, the faster way first.
    """

    unit: CudaUnit
    host: str
    before: Path
    code: bytes
    ways: tuple[tuple[Action, Mapping[str, str]], ...]


class _SwapError(Exception):
    """An object does not take other machine code."""


def swap_device_code(
    session: DeviceSession, module: ModulePlan, toolchain: DeviceToolchain, run_plan: RunPlan
) -> ModulePlan:
    """Compile only the device code of edited units.

    Args:
        module: the plan of the whole module.

    Returns:
        The plan that links the new objects; the given one if no unit could be compiled so.
    """
    store = toolchain.store
    missing = [unit for unit in module.cuda if not store.has(STORE_KIND, unit.action.key)]
    swapped = {unit.path: _swap_action(unit) for unit in missing}
    objects = {path: each for path, each in swapped.items() if store.use(STORE_KIND, each.key)}
    edits = [
        edit
        for unit in missing
        if unit.path not in objects and (edit := _find_edit(session, unit, module, toolchain))
    ]
    slow: set[str] = set()
    while edits:
        # Failures are reported when the whole plan is run.
        failed = {failure.action.key for failure in run_plan(_device_plan(module, edits))}
        done = [edit for edit in edits if edit.ways[0][0].key not in failed]
        for edit in done:
            objects |= _swap(edit, toolchain)
            session.whole |= slow & {edit.host} if edit.unit.path in objects else set()
        edits = [
            replace(edit, ways=edit.ways[1:])
            for edit in edits
            if edit.unit.path not in objects and len(edit.ways) > 1
        ]
        slow |= {edit.host for edit in edits}
    return module.with_objects(objects, toolchain.lock) if objects else module


def _find_edit(
    session: DeviceSession, unit: CudaUnit, module: ModulePlan, toolchain: DeviceToolchain
) -> _Edit | None:
    """The device code of a unit and the object that it goes into; None if more than that is new."""

    def part_of(unit: CudaUnit) -> DevicePart | None:
        return device_part(unit, toolchain.lock, module.target, session.split)

    if not (part := part_of(unit)):
        return None
    for earlier in reversed(tuple(session.units.get(unit.path, ()))):
        before, old = earlier.object(toolchain.store), part_of(earlier)
        if not old or old.host != part.host or not before.is_file():
            continue
        code = fatbin.one_cubin(elf.section(before.read_bytes(), fatbin.SECTION))
        if code is None:
            return None
        ways = [unit.texts]
        if part.bare and part.host not in session.whole:
            texts = {**part.bare}
            texts[unit.path] += f"\n{library_constants(code)}"
            ways = [texts, unit.texts]
        stages = (compile_device(unit, each, toolchain.lock, module.target) for each in ways)
        return _Edit(unit, part.host, before, code, tuple(stages))
    return None


def _device_plan(module: ModulePlan, edits: list[_Edit]) -> Plan:
    """A module's plan without the link, and with nvcc's device stages alone for edited units."""
    left_out = {module.link.key, *(edit.unit.action.key for edit in edits)}
    actions = [each for each in module.plan.actions if each.key not in left_out]
    texts = dict(module.plan.texts)
    for compiles, contents in (edit.ways[0] for edit in edits):
        actions.append(compiles)
        texts |= contents
    return replace(module.plan, actions=tuple(actions), texts=texts)


def _swap_action(unit: CudaUnit) -> Action:
    """Stands for an object of a unit whose device code replaced an earlier one's."""
    return Action(
        kind="cuda",
        title=unit.path,
        argv=("objcopy",),
        inputs=(),
        outputs=(OBJECT,),
        trees=(),
        key=digest.key("jit-swapped", unit=unit.action.key, by="nvcc"),
    )


def _swap(edit: _Edit, toolchain: DeviceToolchain) -> dict[str, Action]:
    """Put a unit's new machine code, which the store has, into a copy of its object.

    Returns:
        What stands for the new object, by the unit's path; nothing if the code does not fit.
    """
    store, before = toolchain.store, edit.before
    compiled = store.path(STORE_KIND, edit.ways[0][0].key)
    code = cubin.named_like((compiled / CUBIN).read_bytes(), edit.code)
    # What the host registers is named in its code: all of it must be there, and no more.
    same_kernels = set(cubin.kernels(code)) == set(cubin.kernels(edit.code))
    if not same_kernels or cubin.variables(code) != cubin.variables(edit.code):
        _log.info("%s is compiled as a whole: it has other kernels or variables", edit.unit.path)
        return {}

    def fill(tree: Path) -> None:
        section = elf.section(before.read_bytes(), fatbin.SECTION)
        new = tree / "code.fatbin"
        files.write_new(new, fatbin.with_cubin(section, code))
        update = f"{fatbin.SECTION}={new}"
        argv = ("objcopy", "--update-section", update, str(before), str(tree / OBJECT))
        done = run(Command(argv=argv))
        if done.returncode:
            raise _SwapError(done.stderr)
        needed = (compiled, before.parent)
        results.write_history(tree, action, isolated=False, needed=needed)
        # What nvcc wrote of the device code, as -Xptxas=-v makes it, is what it wrote of the
        # object.
        log = compiled / execute_action.LOG
        if log.is_file():
            files.copy_file(log, tree / execute_action.LOG)

    action = _swap_action(edit.unit)
    try:
        store.tree(STORE_KIND, action.key, fill)
    except (_SwapError, FileNotFoundError) as error:
        _log.info("%s is compiled as a whole: %s", edit.unit.path, error)
        return {}
    return {edit.unit.path: action}

# SPDX-License-Identifier: Apache-2.0
"""Put new device code into the object whose host code stays.

After nvcc has compiled a unit, its object is remembered by its host's part (``plan.DevicePart``).
When the unit comes again with the same host's part, nvcc compiles its device code alone, which
replaces the old one in a copy of that object. The copy is linked as ever. Kernels and variables
that the host registers are looked for by name before that.
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
    HostObject,
    ModulePlan,
)
from kernforge.project.targets import Target
from kernforge.system import digest, files
from kernforge.system.process import Command, run

RunPlan = Callable[[Plan], tuple[Failure, ...]]
"""Runs a plan, and returns the actions that failed."""

_log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True)
class _Edit:
    """A unit of which only the device code is new."""

    unit: CudaUnit
    part: DevicePart
    host: HostObject
    bare: tuple[Action, Mapping[str, str]] | None

    def stages(self, *, bare: bool) -> tuple[Action, Mapping[str, str]]:
        """Return nvcc's device stages and their files."""
        return self.bare if bare and self.bare else (self.part.cubin, self.part.texts)


class _SwapError(Exception):
    """An object does not take other machine code."""


def learn_objects(session: DeviceSession, module: ModulePlan, toolchain: DeviceToolchain) -> None:
    """Remember the objects of a module that nvcc compiled; all its results are in the store."""
    for unit in module.cuda:
        _learn_object(session, unit, module.target, toolchain)


def _learn_object(
    session: DeviceSession, unit: CudaUnit, target: Target, toolchain: DeviceToolchain
) -> None:
    part = device_part(unit, toolchain.lock, target, session.split)
    path = toolchain.store.path(STORE_KIND, unit.action.key) / OBJECT
    if part is None or session.host(part.host) or not path.is_file():
        return
    code = fatbin.one_cubin(elf.section(path.read_bytes(), fatbin.SECTION))
    if code is not None:
        session.add_host(part.host, HostObject(key=unit.action.key, code=code))


def swap_device_code(
    session: DeviceSession,
    module: ModulePlan,
    toolchain: DeviceToolchain,
    run_plan: RunPlan,
    replan: Callable[[Mapping[str, Action]], ModulePlan],
) -> ModulePlan | None:
    """Compile only the device code of edited units.

    Args:
        module: the plan of the whole module.
        replan: plans the module with other objects for the units of these paths.

    Returns:
        The plan that links the new objects; None if no unit could be compiled so.
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
    for bare in (True, False):
        waiting = [e for e in edits if e.unit.path not in objects and (e.bare or not bare)]
        # Failures are reported when the whole plan is run.
        if not waiting or run_plan(_device_plan(module, waiting, bare=bare)):
            continue
        for edit in waiting:
            objects |= _swap(edit, toolchain, bare=bare)
            if edit.bare and not bare and edit.unit.path in objects:
                session.whole.add(edit.part.host)
    return replan(objects) if objects else None


def _find_edit(
    session: DeviceSession, unit: CudaUnit, module: ModulePlan, toolchain: DeviceToolchain
) -> _Edit | None:
    """The device code of a unit and the object that it goes into; None if more than that is new."""
    part = device_part(unit, toolchain.lock, module.target, session.split)
    if part is None:
        return None
    if not session.host(part.host) and (earlier := session.take_earlier(unit.path)):
        _learn_object(session, earlier, module.target, toolchain)
    host = session.host(part.host)
    if host is None:
        return None
    if not host.path(toolchain.store).is_file():  # it was evicted since
        session.forget_host(part.host)
        return None
    bare = None
    if part.bare and part.host not in session.whole:
        constants = library_constants(host.code)
        texts = {**part.bare, unit.path: f"{part.bare[unit.path]}\n{constants}"}
        bare = compile_device(unit, texts, toolchain.lock, module.target)
    return _Edit(unit, part, host, bare)


def _device_plan(module: ModulePlan, edits: list[_Edit], *, bare: bool) -> Plan:
    """A module's plan without the link, and with nvcc's device stages alone for edited units."""
    left_out = {module.link.key, *(edit.unit.action.key for edit in edits)}
    actions = [each for each in module.plan.actions if each.key not in left_out]
    texts = dict(module.plan.texts)
    for edit in edits:
        compiles, contents = edit.stages(bare=bare)
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


def _swap(edit: _Edit, toolchain: DeviceToolchain, *, bare: bool) -> dict[str, Action]:
    """Put a unit's new machine code, which the store has, into a copy of its object.

    Returns:
        What stands for the new object, by the unit's path; nothing if the code does not fit.
    """
    host, store = edit.host, toolchain.store
    compiled = store.path(STORE_KIND, edit.stages(bare=bare)[0].key)
    code = cubin.named_like((compiled / CUBIN).read_bytes(), host.code)
    # What the host registers is named in its code: all of it must be there, and no more.
    same_kernels = set(cubin.kernels(code)) == set(cubin.kernels(host.code))
    if not same_kernels or cubin.variables(code) != cubin.variables(host.code):
        _log.info("%s is compiled as a whole: it has other kernels or variables", edit.unit.path)
        return {}
    before = host.path(store)

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

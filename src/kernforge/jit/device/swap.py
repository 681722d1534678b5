# SPDX-License-Identifier: Apache-2.0
"""Put new device code into the object whose host code stays.

After nvcc has compiled a unit, its object is remembered by its host's part (``plan.DevicePart``). When
the unit comes again with the same host's part, its device code is compiled alone and replaces the
old one in a copy of that object, which is linked as ever. Kernels and variables that the host
registers are looked for by name before that.

NVRTC compiles device code where it is known to give what nvcc gives: it did so, byte for byte, for
an earlier text with that host's part. Whether it did so again is checked in the background, where
nvcc compiles the same. If not, the next call loads nvcc's module, and a warning says so.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kernforge.binary import cubin, elf, fatbin
from kernforge.binary.symbols import demangled
from kernforge.build.execute import action as execute_action
from kernforge.build.execute.results import STORE_KIND
from kernforge.build.plan.graph import Action
from kernforge.build.plan.linking import OBJECT
from kernforge.errors import KernforgeError
from kernforge.jit.device import nvrtc as device_nvrtc
from kernforge.jit.device.plan import CUBIN, device_part
from kernforge.jit.device.units import HostObject
from kernforge.system import digest, files
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.build.execute.outcome import Failure
    from kernforge.build.plan.graph import Plan
    from kernforge.jit.device.plan import DevicePart, DeviceProgram
    from kernforge.jit.device.units import CudaUnit, DeviceSession, DeviceToolchain, ModulePlan
    from kernforge.project.targets import Target

    class RunPlan(Protocol):
        """Runs a plan, in the background if so asked, and returns the actions that failed."""

        def __call__(self, plan: Plan, *, behind: bool = False) -> tuple[Failure, ...]: ...  # noqa: D102


_log = logging.getLogger("kernforge")
_NVCC, _NVRTC = "nvcc", "nvrtc"


@dataclass(frozen=True, slots=True)
class _Edit:
    """A unit of which only the device code is new."""

    unit: CudaUnit
    part: DevicePart
    host: HostObject


class _SwapError(Exception):
    """An object does not take other machine code."""


def learn_objects(session: DeviceSession, module: ModulePlan, toolchain: DeviceToolchain) -> None:
    """Remember the objects of a module that nvcc compiled; all its results are in the store.

    Whether NVRTC gives the same code is found out in the background.
    """
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
    if code is None:
        return
    session.add_host(part.host, HostObject(key=unit.action.key, code=code))
    if not session.nvrtc or not part.program:
        return
    if device_nvrtc.installed():
        session.start(functools.partial(_compare, session, part.host, part.program, toolchain))
    else:
        _log.info("nvcc compiles device code of %s: cuda.bindings is not installed", unit.path)


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
    compiled = {unit.path: _swap_action(unit, _NVCC) for unit in missing}
    objects = {path: each for path, each in compiled.items() if store.use(STORE_KIND, each.key)}
    edits = [
        edit
        for unit in missing
        if unit.path not in objects and (edit := _find_edit(session, unit, module, toolchain))
    ]
    rest = functools.partial(run_plan, _plan_without(module, missing))
    quick = _swap_by_nvrtc(edits, toolchain, rest)
    slow = [edit for edit in edits if edit.unit.path not in quick]
    objects |= quick
    if slow and not run_plan(_device_plan(module, slow)):
        for edit in slow:
            objects |= _swap(edit, _read_cubin(edit, toolchain), _NVCC, toolchain)
    if not objects:
        return None
    linked = replan(objects)
    path = store.path(STORE_KIND, linked.link.key) / linked.link.outputs[0]
    for edit in edits:
        if edit.unit.path in quick:
            plan = replace(module.plan, actions=(edit.part.cubin,), texts=edit.part.texts)
            by_nvcc = functools.partial(run_plan, plan, behind=True)
            session.start(functools.partial(_verify, session, edit, toolchain, by_nvcc, path))
    return linked


# -- compiling -----------------------------------------------------------------------------


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
    return _Edit(unit, part, host)


def _swap_by_nvrtc(
    edits: list[_Edit], toolchain: DeviceToolchain, run_rest: Callable[[], object]
) -> dict[str, Action]:
    """New objects with machine code by NVRTC, while all else of the module is compiled."""
    objects: dict[str, Action] = {}
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        # Failures of the rest are reported when the whole plan is run.
        if any(edit.host.agrees for edit in edits):
            executor.submit(run_rest)
        for edit in edits:
            if code := _compile_by_nvrtc(edit, toolchain):
                objects |= _swap(edit, code, _NVRTC, toolchain)
    return objects


def _compile_by_nvrtc(edit: _Edit, toolchain: DeviceToolchain) -> bytes | None:
    """Machine code by NVRTC; None if that is not known to be nvcc's, or cannot be compiled."""
    program = edit.part.program
    if not edit.host.agrees or program is None:
        return None
    try:
        return device_nvrtc.compile_program(edit.host.complete(program), toolchain.trees)
    except device_nvrtc.RtcError as error:
        _log.info("nvcc compiles device code of %s: %s", program.name, error)
        return None


def _read_cubin(edit: _Edit, toolchain: DeviceToolchain) -> bytes:
    """Machine code that nvcc has put into the store."""
    return (toolchain.store.path(STORE_KIND, edit.part.cubin.key) / CUBIN).read_bytes()


def _plan_without(module: ModulePlan, units: list[CudaUnit]) -> Plan:
    """A module's plan without these units and the link."""
    left_out = {module.link.key, *(unit.action.key for unit in units)}
    actions = tuple(each for each in module.plan.actions if each.key not in left_out)
    return replace(module.plan, actions=actions)


def _device_plan(module: ModulePlan, edits: list[_Edit]) -> Plan:
    """A module's plan without the link, and with nvcc's device stages alone for edited units."""
    plan = _plan_without(module, [edit.unit for edit in edits])
    texts = dict(plan.texts)
    for edit in edits:
        texts |= edit.part.texts
    actions = (*plan.actions, *(edit.part.cubin for edit in edits))
    return replace(plan, actions=actions, texts=texts)


def _swap_action(unit: CudaUnit, by: str) -> Action:
    """Stands for an object of a unit whose device code replaced an earlier one's."""
    return Action(
        title=unit.path,
        argv=("objcopy",),
        inputs=(),
        outputs=(OBJECT,),
        trees=(),
        key=digest.key("jit-swapped", unit=unit.action.key, by=by),
    )


def _swap(edit: _Edit, code: bytes, by: str, toolchain: DeviceToolchain) -> dict[str, Action]:
    """Put machine code into a copy of an object.

    Returns:
        What stands for the new object, by the unit's path; nothing if the code does not fit.
    """
    host, store = edit.host, toolchain.store
    code = cubin.named_like(code, host.code)
    # What the host registers is named in its code: all of it must be there, and no more.
    same = set(cubin.kernels(code)) == set(cubin.kernels(host.code))
    more = cubin.unused(code, host.code) - (host.unused if by == _NVRTC else frozenset())
    if not same or more or cubin.variables(host.code) - cubin.variables(code):
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
        # What nvcc wrote of the device code, as -Xptxas=-v makes it, is what it wrote of the object.
        log = store.path(STORE_KIND, edit.part.cubin.key) / execute_action.LOG
        if by == _NVCC and log.is_file():
            files.copy_file(log, tree / execute_action.LOG)

    action = _swap_action(edit.unit, by)
    try:
        store.tree(STORE_KIND, action.key, fill)
    except (_SwapError, FileNotFoundError) as error:
        _log.info("%s is compiled as a whole: %s", edit.unit.path, error)
        return {}
    return {edit.unit.path: action}


# -- in the background ---------------------------------------------------------------------


def _compare(
    session: DeviceSession, key: str, program: DeviceProgram, toolchain: DeviceToolchain
) -> None:
    """Find out whether NVRTC gives what nvcc gave for a host's part."""
    host = session.host(key)
    if host is None:
        return
    try:
        code = device_nvrtc.compile_program(host.complete(program), toolchain.trees)
        there = cubin.kernels(code)
        missing = [name for name in cubin.kernels(host.code) if name not in there]
        # The order of functions follows that in which they are instantiated.
        for names in (missing, missing[::-1]) if missing else ():
            host = replace(host, instantiations=_instantiations(names))
            code = device_nvrtc.compile_program(host.complete(program), toolchain.trees)
            if cubin.same_code(code, host.code):
                break
    except device_nvrtc.RtcError as error:
        _log.info("nvcc compiles device code of %s: %s", program.name, error)
        session.change_host(key, agrees=False)
    else:
        session.change_host(
            key,
            instantiations=host.instantiations,
            unused=cubin.unused(code, host.code),
            agrees=cubin.same_code(code, host.code),
        )


def _instantiations(kernels: list[str]) -> str:
    """Lines that instantiate kernels of these mangled names; empty if the names do not say how."""
    # What is in an unnamed namespace is found without it.
    names = [demangled(symbol).replace("(anonymous namespace)::", "") for symbol in kernels]
    if any("<" not in n or "{" in n for n in names):
        return ""
    return "".join(f"template __global__ {name};\n" for name in names)


def _verify(
    session: DeviceSession,
    edit: _Edit,
    toolchain: DeviceToolchain,
    by_nvcc: Callable[[], tuple[Failure, ...]],
    module: Path,
) -> None:
    """Compile by nvcc what NVRTC has compiled, and refute the module if the code differs."""
    store, path = toolchain.store, edit.unit.path
    by_nvrtc = _swap_action(edit.unit, _NVRTC).key
    try:
        with session.comparing, store.lease():
            if by_nvcc():
                return
            expected = cubin.named_like(_read_cubin(edit, toolchain), edit.host.code)
            given = (store.path(STORE_KIND, by_nvrtc) / OBJECT).read_bytes()
            _swap(edit, expected, _NVCC, toolchain)
            code = fatbin.one_cubin(elf.section(given, fatbin.SECTION))
            if code and cubin.same_code(code, expected):
                return
            session.change_host(edit.part.host, agrees=False)
            store.forget(STORE_KIND, by_nvrtc)
    except (KernforgeError, OSError) as error:
        _log.info("device code of %s is not compared: %s", path, error)
        return
    session.refute(module)
    _log.warning("NVRTC made other code of %s than nvcc; the next call loads nvcc's", path)

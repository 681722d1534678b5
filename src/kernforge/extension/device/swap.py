# SPDX-License-Identifier: Apache-2.0
"""Put new device code into the object whose host code stays.

The units whose objects nvcc compiled are remembered. When one comes again with the same host's part
(``DevicePart``), nvcc compiles its device code alone, by its device stages (``nvcc -cubin``) with
the unit's own flags. That code replaces the old one in a copy of the object. The copy is linked as
ever. Kernels and variables that the host registers are looked for by name before that.

The plan of a kernel project is that of ``kernforge build``, so that its results come from the same
store: ``load`` and ``kernforge dev`` replace in it the objects of edited units.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.binary import cubin, elf, fatbin
from kernforge.binary.symbols import demangled
from kernforge.builder import action as execute_action, executor, results
from kernforge.builder.action import ActionContext
from kernforge.builder.api import PlannedBuild
from kernforge.builder.flags import OBJECT
from kernforge.builder.graph import Action, ActionSet, Plan
from kernforge.builder.results import STORE_KIND
from kernforge.builder.workspace import Workspace
from kernforge.extension.device import split as device_split
from kernforge.extension.device.split import Split
from kernforge.extension.device.units import CudaUnit, DeviceSession, ModulePlan
from kernforge.project.units import Sources
from kernforge.source.torch_headers import tested_macros
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.console import Console
from kernforge.system.process import Command, run

_log = logging.getLogger("kernforge")
SplitText = Callable[..., Split | None]

CUBIN = "unit.cubin"
_GENCODE = re.compile(r"(?:-?-(?:gencode|generate-code)=)?arch=compute_\w+,code=sm_\w+")
# What makes the object more than one piece of code, or its code depend on the whole program.
_NO_PART = re.compile(r"-?-(?:rdc|relocatable-device-code|dc|dlto|lto|dw|dlink|cudart)\b")
# Headers beyond this are taken as they are: reading them would take longer than it saves.
_READ_BYTES = 400_000
# Headers without macros that put line numbers into host code, but for those that split looks for.
_PLAIN_HEADER = re.compile(
    r"[a-z_]+|(?:assert|float|limits|math|stddef|stdint|stdio|stdlib|string)\.h"
    r"|cuda(?:_\w+)?\.h|(?:math_constants|mma|cooperative_groups|device_launch_parameters)\.h"
)
# Flags that put line numbers, or what comes of them, into the object.
_LINE_FLAG = re.compile(r"(?:^|.*[,=])-(?:g|G|pg)|.*(?:debug|line-?info|coverage|sanitize|profile)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_KNOWN = frozenset({"__CUDA_ARCH__", "__CUDACC__", "__cplusplus"})
_LIBRARY_CONSTANT = re.compile(r"_INTERNAL_\w+::((?:cuda|thrust|cub)::.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The device code of a unit.

    Attributes:
        host: key of the host's part with all that decides its code; units that share it differ in
            device code alone.
        bare: files of the unit by path, without torch's headers and what the host alone needs: a
            tenth of the time. Empty where the device code may need them.
    """

    host: str
    bare: Mapping[str, str]


def device_part(
    unit: CudaUnit, module: ModulePlan, split: SplitText = device_split.split
) -> DevicePart | None:
    """Separate a unit's device code from its host code; None where that is not certain."""
    argv = unit.action.argv
    archs = [word for word in argv if "code=" in word]
    if len(archs) != 1 or not _GENCODE.fullmatch(archs[0]) or any(map(_NO_PART.match, argv)):
        return None
    macros = frozenset().union(*(device_split.macros(text) for text in unit.texts.values()))
    exact = (
        unit.closure.opaque
        or not all(map(_PLAIN_HEADER.fullmatch, unit.closure.foreign))
        or any(_LINE_FLAG.match(word) for word in argv if not word.startswith("-gencode"))
    )
    parts = _split_unit(unit, macros, split, exact=exact)
    if parts[unit.path] is None:
        return None
    hosts = {p: part.host if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    shadow = ActionSet(module.lock)
    inputs = [shadow.text(path, text) for path, text in hosts.items()]
    host = shadow.add("host", argv, inputs, unit.action.outputs, module.target, kind="cuda")
    return DevicePart(host=host.key, bare=_bare_texts(unit, parts))


def compile_device(
    unit: CudaUnit, bare: Mapping[str, str], module: ModulePlan
) -> tuple[Action, Mapping[str, str]]:
    """Plan nvcc's device stages for a unit; returns the action and its files by content.

    Args:
        bare: files in the place of the unit's, by path; empty for the unit's own.
    """
    alone = ActionSet(module.lock)
    inputs = [alone.text(path, text) for path, text in (bare or unit.texts).items()]
    words = ["-cubin" if word == "-c" else word for word in unit.action.argv[:-1]]
    title = f"{unit.path} (device code)"
    target = module.target
    action = alone.add(
        title,
        (*words, CUBIN),
        inputs,
        (CUBIN,),
        target,
        kind="cuda",
        archs=unit.action.archs,
        slim=unit.action.slim and not bare,
    )
    return action, alone.texts


def library_constants(code: bytes) -> str:
    """Declarations of the empty constants of CCCL in a cubin, for a text without its headers.

    torch's headers bring them, and the host registers them by name.
    """
    lines = []
    for name, size in sorted(cubin.variables(code).items()):
        match = _LIBRARY_CONSTANT.fullmatch(demangled(name))
        if size != 1 or match is None:
            continue
        *spaces, constant = match[1].replace("(anonymous namespace)", "").split("::")
        opened = "".join(f"namespace {each} {{ " for each in spaces)
        declared = f"static constexpr __device__ char {constant}[1] = {{}};"
        lines.append(f"{opened}{declared}{' }' * len(spaces)}\n")
    return "".join(lines)


def _bare_texts(unit: CudaUnit, parts: Mapping[str, Split | None]) -> dict[str, str]:
    """A unit's texts for the GPU, without torch's headers.

    None for a unit that names something of torch in what is left, asks for a macro that is not its
    own, has no header of torch, or has others that bring CCCL.
    """
    heads = {name.partition("/")[0] for name in unit.closure.foreign}
    if not heads & {"torch", "ATen", "c10", "pybind11"} or heads & {"cuda", "thrust", "cub"}:
        return {}
    texts = {p: part.device if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    is_raw = all(map(device_split.is_raw, texts.values()))
    return texts if is_raw and tested_macros(texts.values()) <= _KNOWN else {}


def _split_unit(
    unit: CudaUnit, macros: frozenset[str], split: SplitText, *, exact: bool
) -> dict[str, Split | None]:
    """The parts of each of a unit's texts; None for one that cannot be split for certain.

    A function that is declared for the host too is for both, whatever its definition says: the
    declaration may be in another file.
    """
    small = sum(map(len, unit.texts.values())) < _READ_BYTES
    read = {p: text for p, text in unit.texts.items() if small or p == unit.path}
    parts = {path: split(text, macros, exact=exact) for path, text in read.items()}
    alone: set[str] = set().union(*(part.alone for part in parts.values() if part))
    shared: set[str] = set()
    for path, text in unit.texts.items():
        part = parts.get(path)
        shared |= alone & (part.shared if part else set(_WORD.findall(text)))
    if not shared:
        return parts
    both = frozenset(shared)
    return {path: split(text, macros, both, exact=exact) for path, text in read.items()}


# -- the swap ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edit:
    """A unit of which only the device code is new.

    Attributes:
        bare: files for its device code alone, by path; empty if that needs the unit's own.
        before: its earlier object.
        section: the section of that object with the machine code.
    """

    unit: CudaUnit
    bare: Mapping[str, str]
    before: Path
    section: bytes
    code: bytes


class _SwapError(Exception):
    """An object does not take other machine code."""


def swap_device_code(
    session: DeviceSession, module: ModulePlan, context: ActionContext
) -> ModulePlan:
    """Compile only the device code of edited units.

    Returns:
        The plan that links the new objects; the given one if no unit could be compiled so.
    """
    store = context.store
    if store.has(STORE_KIND, module.link.key):
        return module
    missing = [unit for unit in module.cuda if not store.has(STORE_KIND, unit.action.key)]
    swapped = {unit.path: _swap_action(unit) for unit in missing}
    objects = {path: each for path, each in swapped.items() if store.use(STORE_KIND, each.key)}
    edits = [
        edit
        for unit in missing
        if unit.path not in objects and (edit := _find_edit(session, unit, module, store))
    ]
    if edits:
        stages = {e.unit.path: compile_device(e.unit, e.bare, module) for e in edits}
        # Failures are reported when the whole plan is run.
        quiet = Console(quiet=True, failures=False)
        outcome = executor.run_actions(_device_plan(module, stages), context, quiet)
        failed = {failure.action.key for failure in outcome.failures}
        for edit in edits:
            path, (compiles, _) = edit.unit.path, stages[edit.unit.path]
            compiled = store.path(STORE_KIND, compiles.key)
            if compiles.key not in failed and _swap(edit, swapped[path], compiled, store):
                objects[path] = swapped[path]
    return module.with_objects(objects) if objects else module


def _find_edit(
    session: DeviceSession, unit: CudaUnit, module: ModulePlan, store: Store
) -> _Edit | None:
    """The device code of a unit and the object that it goes into; None if more than that is new."""
    if not (part := device_part(unit, module, session.split)):
        return None
    for earlier in reversed(tuple(session.units.get(unit.path, ()))):
        before, old = earlier.object(store), device_part(earlier, module, session.split)
        if not old or old.host != part.host or not before.is_file():
            continue
        section = elf.section(before.read_bytes(), fatbin.SECTION)
        if (code := fatbin.one_cubin(section)) is None:
            return None
        bare = dict(part.bare)
        if bare:
            bare[unit.path] += f"\n{library_constants(code)}"
        return _Edit(unit, bare, before, section, code)
    return None


def _device_plan(
    module: ModulePlan, stages: Mapping[str, tuple[Action, Mapping[str, str]]]
) -> Plan:
    """A module's plan without the link, and with nvcc's device stages alone for edited units."""
    left_out = {module.link.key, *(u.action.key for u in module.cuda if u.path in stages)}
    actions = [each for each in module.plan.actions if each.key not in left_out]
    texts = dict(module.plan.texts)
    for compiles, contents in stages.values():
        actions.append(compiles)
        texts |= contents
    return replace(module.plan, actions=tuple(actions), texts=texts)


def _swap_action(unit: CudaUnit) -> Action:
    """Placeholder for the action that makes an object with swapped device code."""
    return Action(
        kind="cuda",
        title=unit.path,
        argv=("objcopy",),
        inputs=(),
        outputs=(OBJECT,),
        trees=(),
        key=digest.key("jit-swapped", unit=unit.action.key, by="nvcc"),
    )


def _swap(edit: _Edit, action: Action, compiled: Path, store: Store) -> bool:
    """Put a unit's new machine code into a copy of its object; False if the code does not fit.

    Args:
        action: stands for the new object.
        compiled: the result of nvcc's device stages.
    """
    code = cubin.named_like((compiled / CUBIN).read_bytes(), edit.code)
    # What the host registers is named in its code: all of it must be there, and no more.
    same_kernels = set(cubin.kernels(code)) == set(cubin.kernels(edit.code))
    if not same_kernels or cubin.variables(code) != cubin.variables(edit.code):
        _log.info("%s is compiled as a whole: it has other kernels or variables", edit.unit.path)
        return False

    def fill(tree: Path) -> None:
        new = tree / "code.fatbin"
        files.write_new(new, fatbin.with_cubin(edit.section, code))
        update = f"{fatbin.SECTION}={new}"
        argv = ("objcopy", "--update-section", update, str(edit.before), str(tree / OBJECT))
        done = run(Command(argv=argv))
        if done.returncode:
            raise _SwapError(done.stderr)
        needed = (compiled, edit.before.parent)
        results.write_history(tree, action, isolated=False, needed=needed)
        # Remarks on the device code, as of -Xptxas=-v, are those on the object.
        log = compiled / execute_action.LOG
        if log.is_file():
            files.copy_file(log, tree / execute_action.LOG)

    try:
        store.tree(STORE_KIND, action.key, fill)
    except (_SwapError, FileNotFoundError) as error:
        _log.info("%s is compiled as a whole: %s", edit.unit.path, error)
        return False
    return True


# -- in the plan of a project --------------------------------------------------------------


def replace_edited(
    session: DeviceSession,
    workspace: Workspace,
    planned: PlannedBuild,
    context: ActionContext,
) -> Plan:
    """Compile the device code of units of which only that is new, and put it into the plan.

    Args:
        planned: the plan of one variant, as ``kernforge build`` makes it.

    Returns:
        The plan to run. The objects that nvcc compiles as a whole are remembered at the next call.
    """
    if session.last:
        session.remember(session.last, context.store)
    module = session.last = module_plan(planned, workspace.project.sources)
    if module is None:
        return planned.plan
    return swap_device_code(session, module, context).plan


def module_plan(planned: PlannedBuild, sources: Sources) -> ModulePlan | None:
    """A project's module; None if the plan has several variants, or nvcc compiles nothing of it."""
    plan = planned.plan
    if len(plan.artifacts) != 1 or not plan.artifacts[0].extension:
        return None
    target = plan.artifacts[0].target
    closures = {u.path: u.closure for u in sources.units(target.backend, target.cuda) if u.is_cuda}
    cuda = tuple(
        CudaUnit(
            path=action.source,
            texts={path: sources.readable[path] for path in closures[action.source].files},
            closure=closures[action.source],
            action=action,
        )
        for action in plan.actions
        if action.source in closures
    )
    if not cuda:
        return None
    (link,) = (each for each in plan.actions if each.key == plan.artifacts[0].extension)
    return ModulePlan(plan=plan, link=link, cuda=cuda, target=target, lock=planned.lock)

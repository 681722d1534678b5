# SPDX-License-Identifier: Apache-2.0
"""Edits of device code alone: new machine code in the object whose host code stays.

After nvcc has compiled a unit its object is remembered by its host's part (``jit_device``). When the unit
comes again with the same host's part, its device code is compiled alone and takes the place of the
old one in a copy of that object, which is linked as ever: kernels and variables that the host
registers are looked for by name before that.

NVRTC compiles it where it is known to give what nvcc gives: it did so, byte for byte, for an earlier
text of that host's part. Whether it did so this time too is looked at in the background, where nvcc
compiles the same; if not, the module is given up for nvcc's at the next call, and said so.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import threading
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
from kernforge.jit.device import plan as device_plan
from kernforge.jit.device.plan import CUBIN
from kernforge.system import digest, files
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.build.execute.outcome import Failure
    from kernforge.build.plan.graph import Plan
    from kernforge.jit.device.plan import Part, Program
    from kernforge.jit.plan import CudaUnit, Made
    from kernforge.project.targets import Target
    from kernforge.store.local import Store
    from kernforge.toolchain.lockfile import Lock

    Run = Callable[[Plan], tuple[Failure, ...]]
    """Runs a plan, and returns the actions that failed."""

_log = logging.getLogger("kernforge")
_NVCC, _NVRTC = "nvcc", "nvrtc"
_MOST_HOSTS = 100


@dataclass(slots=True)
class _Host:
    """An object whose host code can be used again.

    Attributes:
        key: of the action that made it.
        code: its machine code.
        lines: instantiate for NVRTC what the host's part does.
        spare: constants that NVRTC keeps, and nvcc does not because no code uses them.
        alike: whether NVRTC gave what nvcc gives; None while nobody has looked.
    """

    key: str
    code: bytes
    lines: str = ""
    spare: frozenset[str] = frozenset()
    alike: bool | None = None

    def told(self, program: Program) -> Program:
        """A program that names and instantiates what the host's part does."""
        return program.naming(cubin.unnamed(self.code)).instantiating(self.lines)

    def path(self, shop: Place) -> Path:
        """Where the object lies, if it was not taken away."""
        return shop.store.path(STORE_KIND, self.key) / OBJECT


@dataclass(frozen=True, slots=True)
class _Edit:
    """A unit whose device code alone is new."""

    unit: CudaUnit
    part: Part
    host: _Host


class Place(Protocol):
    """Where and with what modules are made."""

    @property
    def lock(self) -> Lock:
        """The toolchain."""
        ...

    @property
    def store(self) -> Store:
        """Where results are kept."""
        ...

    @property
    def roots(self) -> Mapping[str, str]:
        """Real path of each tree and program by name."""
        ...


_hosts: dict[str, _Host] = {}
_earlier: dict[str, CudaUnit] = {}
_threads: list[threading.Thread] = []
_refuted: set[str] = set()
_lock = threading.Lock()
_one_at_a_time = threading.Lock()


def stands(path: Path) -> bool:
    """Whether a module is still what nvcc makes, as far as that is known."""
    return not _refuted or str(path) not in _refuted


def wait() -> None:
    """Wait for what is compiled in the background."""
    while _threads:
        _threads.pop().join()


def remember(made: Made) -> None:
    """Note a module that the store had: its objects are looked at when one of its units is edited."""
    _earlier.update({unit.path: unit for unit in made.cuda})


def learn(made: Made, shop: Place, *, nvrtc: bool = True) -> None:
    """Remember the objects of a module that nvcc compiled, and see whether NVRTC gives the same."""
    for unit in made.cuda:
        _learn(unit, made.target, shop, nvrtc=nvrtc)


def _learn(unit: CudaUnit, target: Target, shop: Place, *, nvrtc: bool) -> None:
    part = device_plan.part(unit, shop.lock, target)
    path = shop.store.path(STORE_KIND, unit.action.key) / OBJECT
    if part is None or part.host in _hosts or not path.is_file():
        return
    code = fatbin.one_cubin(elf.section(path.read_bytes(), fatbin.SECTION))
    if code is None:
        return
    _hosts[part.host] = host = _Host(unit.action.key, code)
    while len(_hosts) > _MOST_HOSTS:
        del _hosts[next(iter(_hosts))]
    if not nvrtc:
        return
    if part.program and not device_nvrtc.installed():
        _log.info("device code of %s goes by nvcc: cuda.bindings is not installed", unit.path)
    elif part.program:
        _later(functools.partial(_compare, host, part.program, shop))


def swapped(
    made: Made,
    shop: Place,
    run_plan: Run,
    behind: Run,
    again: Callable[[Mapping[str, Action]], Made],
    *,
    nvrtc: bool = True,
) -> Made | None:
    """Compile the device code of edited units alone.

    Args:
        made: the plan of the whole module.
        shop: what to make it with.
        run_plan: runs actions.
        behind: likewise in the background.
        again: plans the module with other objects for the units of these paths.
        nvrtc: whether NVRTC may compile; nvcc looks at what it does then, in the background.

    Returns:
        The plan that links what came of it; None if nothing is to be had this way.
    """
    store = shop.store
    missing = [unit for unit in made.cuda if not store.has(STORE_KIND, unit.action.key)]
    stand_ins = (_action(unit, _NVCC) for unit in missing)
    instead = {one.title: one for one in stand_ins if store.use(STORE_KIND, one.key)}
    edits = [
        e for u in missing if u.path not in instead and (e := _edit(u, made, shop, nvrtc=nvrtc))
    ]
    quick: dict[str, Action] = {}
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        # What is left beside device code; its failures are told when all of the plan is run.
        if any(edit.host.alike for edit in edits):
            beside.submit(run_plan, _beside(made, missing))
        for edit in edits:
            if code := _by_nvrtc(edit, shop):
                quick |= _put(edit, code, _NVRTC, shop)
    instead |= quick
    slow = [edit for edit in edits if edit.unit.path not in quick]
    if slow and not run_plan(_device_plan(made, slow)):
        for edit in slow:
            instead |= _put(edit, _by_nvcc(edit, shop), _NVCC, shop)
    if not instead:
        return None
    found = again(instead)
    module = str(store.path(STORE_KIND, found.link.key) / found.link.outputs[0])
    for edit in edits:
        if edit.unit.path in quick:
            plan = replace(made.plan, actions=(edit.part.cubin,), texts=edit.part.texts)
            _later(functools.partial(_verify, edit, shop, functools.partial(behind, plan), module))
    return found


# -- compiling -----------------------------------------------------------------------------


def _edit(unit: CudaUnit, made: Made, shop: Place, *, nvrtc: bool) -> _Edit | None:
    """What an edit of device code is made of; None if the unit is anything else."""
    part = device_plan.part(unit, shop.lock, made.target)
    if part is None:
        return None
    if part.host not in _hosts and (before := _earlier.pop(unit.path, None)):
        _learn(before, made.target, shop, nvrtc=nvrtc)
    host = _hosts.get(part.host)
    if host is None:
        return None
    if not host.path(shop).is_file():  # it was taken away since
        _hosts.pop(part.host, None)
        return None
    return _Edit(unit, part, host)


def _by_nvrtc(edit: _Edit, shop: Place) -> bytes | None:
    """Machine code by NVRTC; None where that is not known to be nvcc's, or does not compile."""
    program = edit.part.program
    if not edit.host.alike or program is None:
        return None
    try:
        return device_nvrtc.compile_(edit.host.told(program), shop.roots)
    except device_nvrtc.RtcError as error:
        _log.info("%s goes by nvcc: %s", program.name, error)
        return None


def _by_nvcc(edit: _Edit, shop: Place) -> bytes:
    """Machine code that nvcc has put into the store."""
    return (shop.store.path(STORE_KIND, edit.part.cubin.key) / CUBIN).read_bytes()


def _beside(made: Made, units: list[CudaUnit]) -> Plan:
    """What a module is made of but for these units and the link."""
    left = {made.link.key, *(unit.action.key for unit in units)}
    return replace(made.plan, actions=tuple(a for a in made.plan.actions if a.key not in left))


def _device_plan(made: Made, slow: list[_Edit]) -> Plan:
    """What is missing of a module, with nvcc's device stages for these units."""
    left = {made.link.key, *(edit.unit.action.key for edit in slow)}
    rest = [a for a in made.plan.actions if a.key not in left]
    texts = dict(made.plan.texts)
    for edit in slow:
        texts |= edit.part.texts
    actions = (*rest, *(edit.part.cubin for edit in slow))
    return replace(made.plan, actions=actions, texts=texts)


def _action(unit: CudaUnit, by: str) -> Action:
    """Stands for the object of a unit whose device code was put into an earlier one's."""
    return Action(
        title=unit.path,
        argv=("objcopy",),
        inputs=(),
        outputs=(OBJECT,),
        roots=(),
        key=digest.key("jit-swapped", unit=unit.action.key, by=by),
    )


def _put(edit: _Edit, code: bytes, by: str, shop: Place) -> dict[str, Action]:
    """Put machine code into a copy of an object; nothing comes of it when it does not fit."""
    host, store = edit.host, shop.store
    code = cubin.named_like(code, host.code)
    # What the host registers is named in its code: all of it must be there, and no more.
    same = set(cubin.kernels(code)) == set(cubin.kernels(host.code))
    more = cubin.unused(code, host.code) - (host.spare if by == _NVRTC else frozenset())
    if not same or more or cubin.variables(host.code) - cubin.variables(code):
        _log.info("%s is compiled as a whole: it has other kernels or variables", edit.unit.path)
        return {}
    before = host.path(shop)

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

    action = _action(edit.unit, by)
    try:
        store.tree(STORE_KIND, action.key, fill)
    except (_SwapError, FileNotFoundError) as error:
        _log.info("%s is compiled as a whole: %s", edit.unit.path, error)
        return {}
    return {edit.unit.path: action}


class _SwapError(Exception):
    """An object does not take other machine code."""


# -- in the background ---------------------------------------------------------------------


def _later(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="kernforge-device-code")
    with _lock:
        _threads[:] = [one for one in _threads if one.is_alive()]
        _threads.append(thread)
    thread.start()


def _compare(host: _Host, program: Program, shop: Place) -> None:
    """Find out whether NVRTC gives what nvcc gave."""
    try:
        code = device_nvrtc.compile_(host.told(program), shop.roots)
        there = cubin.kernels(code)
        missing = [name for name in cubin.kernels(host.code) if name not in there]
        # The order of functions follows that in which they are instantiated.
        for names in (missing, missing[::-1]) if missing else ():
            host.lines = _instantiations(names)
            code = device_nvrtc.compile_(host.told(program), shop.roots)
            if cubin.same_code(code, host.code):
                break
    except device_nvrtc.RtcError as error:
        _log.info("device code of %s goes by nvcc: %s", program.name, error)
        host.alike = False
    else:
        host.spare = cubin.unused(code, host.code)
        host.alike = cubin.same_code(code, host.code)


def _instantiations(kernels: list[str]) -> str:
    """Lines that instantiate kernels of these mangled names; empty where names do not say how."""
    # What is in an unnamed namespace is found without it.
    names = [demangled(symbol).replace("(anonymous namespace)::", "") for symbol in kernels]
    if any("<" not in n or "{" in n for n in names):
        return ""
    return "".join(f"template __global__ {name};\n" for name in names)


def _verify(
    edit: _Edit, shop: Place, by_nvcc: Callable[[], tuple[Failure, ...]], module: str
) -> None:
    """Compile by nvcc what NVRTC has compiled; give the module up if that is another."""
    store, path = shop.store, edit.unit.path
    mine = _action(edit.unit, _NVRTC).key
    try:
        with _one_at_a_time, store.lease():
            if by_nvcc():
                return
            truth = cubin.named_like(_by_nvcc(edit, shop), edit.host.code)
            given = (store.path(STORE_KIND, mine) / OBJECT).read_bytes()
            _put(edit, truth, _NVCC, shop)
            code = fatbin.one_cubin(elf.section(given, fatbin.SECTION))
            if code and cubin.same_code(code, truth):
                return
            edit.host.alike = False
            store.forget(STORE_KIND, mine)
    except (KernforgeError, OSError) as error:
        _log.info("device code of %s is not compared: %s", path, error)
        return
    _refuted.add(module)
    _log.warning("NVRTC made other code of %s than nvcc; the next call loads nvcc's", path)

# SPDX-License-Identifier: Apache-2.0
"""Toolchain of a setup.py: compiler, headers of torch and Python, CUDA toolkit.

A lock in kernforge's own directory names the wheels, so that a warm store needs no network. The
fallback without an index is an installed torch with its headers.
"""

from __future__ import annotations

import logging
import re
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.builder.workspace import this_cpu
from kernforge.errors import ManifestError, NetworkError, ToolchainError
from kernforge.extension.machine import (
    named_archs,
    toolkit_needs,
)
from kernforge.extension.plan import ExtensionMachine, ExtensionNeeds, ExtensionToolchain
from kernforge.setuptools import python_headers
from kernforge.setuptools.target import TorchTarget
from kernforge.store.local import Store
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run
from kernforge.toolchain import (
    cuda_arch,
    front_end,
    host_compiler,
    installed,
    resolver,
)
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Progress, Wheels
from kernforge.toolchain.local_parts import LocalParts, LocalPartsOptions, find_local_parts
from kernforge.toolchain.lockfile import Lock, Tree
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.releases import USUAL

_log = logging.getLogger("kernforge")
_STANDARD = re.compile(r"__cplusplus < 20(\d\d)\d\dL")
_PLAIN_SONAME = 12  # before, the runtime's soname has the minor version too


def installed_directories(environment: Environment) -> tuple[str, ...]:
    """Directories of the toolchain, which a setup.py may name."""
    store = environment.home / "store" / "toolchains"
    named = (
        *(environment.cuda_home, environment.cuda_path, environment.kernforge_stand_in),
        environment.kernforge_cuda_home,
    )
    own = (sysconfig.get_path("include"), sysconfig.get_path("platinclude"))
    return tuple(dict.fromkeys(filter(None, (str(store), *named, *own))))


def find_toolchain(
    target: TorchTarget, needs: ExtensionNeeds, environment: Environment, progress: Progress
) -> ExtensionToolchain:
    """Find the toolchain of extensions; missing parts are fetched.

    Raises:
        NetworkError: a part is missing, and no index can be reached.
        ToolchainError: a compiler, a toolkit or Python's headers are missing.
        UsageError: a variable, such as ``TORCH_CUDA_ARCH_LIST`` or ``CFLAGS``, cannot be read.
    """
    store = Store(environment.home / "store")
    wheels = Wheels(Index.lazily(environment.variables), store.root / "downloads", progress)
    compiler = host_compiler.find(environment.variables, run)
    cuda = toolkit_version(target) if needs.cuda else None
    wanted = toolkit_needs(str(cuda), libraries=needs.libraries) if cuda else {}
    if needs.torch:
        torch = Tree("torch", str(target.torch))
        wanted[torch.name] = torch
    lock, parts = _lock(target, wanted, environment, wheels)
    lock = replace(
        lock.part(wanted),
        compilers={"cxx": host_compiler.locked(compiler, run, store.root / "compilers")},
    )
    trees = {"cxx": compiler.program(store.root / "compilers")}
    toolchains = Toolchains(store, wheels, parts)
    trees |= {name: str(toolchains.path(tree)) for name, tree in lock.trees.items()}
    if needs.python:
        path, locked = python_headers.find(target.python, environment.variables)
        lock, trees["python"] = lock.having(locked), str(path)
    archs = find_archs(cuda, environment, progress) if cuda and needs.device else ()
    if cuda:
        front_end.require(lock.toolkit(cuda), archs)
    torch_tree = Tree.of("torch", target.torch)
    machine = ExtensionMachine(
        torch=target.torch,
        torch_cuda=target.cuda,
        torch_tree=torch_tree,
        cpu=this_cpu(),
        lock=lock,
        cuda=cuda,
        archs=tuple(word for arch in archs for word in arch.gencode()),
        only=named_archs(environment) if cuda else (),
        portable=True,
        sonames=abi_floor.torch_sonames("cuda" if target.cuda else "cpu"),
        runtime=_runtime(target),
        standard=_standard(trees.get(torch_tree.name, "")),
        static_libstdcxx=compiler.static_libstdcxx,
        trees=tuple(_named_trees(trees, environment)),
    )
    return ExtensionToolchain(machine=machine, store=store, trees=trees)


def toolkit_version(target: TorchTarget) -> Version2:
    """CUDA version of the toolkit for a target; the usual one for a CPU build of torch."""
    return target.cuda or USUAL


def directory(
    kind: Literal["torch", "cuda"],
    target: TorchTarget,
    environment: Environment,
    progress: Progress,
) -> Path:
    """Directory of a target's torch or toolkit, for a setup.py that looks into it.

    Raises:
        NetworkError: it is not here, and no index can be reached.
        ToolchainError: no index has it.
    """
    needs = ExtensionNeeds(torch=kind == "torch", cuda=kind == "cuda")
    found = find_toolchain(target, needs, environment, progress)
    version = target.torch if kind == "torch" else toolkit_version(target)
    return Path(found.trees[Tree.of(kind, version).name])


# -- the lock ------------------------------------------------------------------------------


def _lock(
    target: TorchTarget, wanted: Mapping[str, Tree], environment: Environment, wheels: Wheels
) -> tuple[Lock, LocalParts]:
    """Lock of the index's wheels, with the installed torch and toolkit as the fallback."""
    kinds = {tree.kind for tree in wanted.values()}

    def complete(options: LocalPartsOptions) -> tuple[Lock, LocalParts]:
        parts = find_local_parts(options, "", environment)
        if note := parts.unused_note([t.version for t in wanted.values() if t.kind == "cuda"]):
            wheels.progress.note(f"note: {note}, which comes from wheels")
        home, cpu = environment.home, this_cpu()
        lock = resolver.complete(home, wanted.values(), wheels, cpu=cpu, local_parts=parts)
        return lock, parts

    options = LocalPartsOptions.of(environment)
    try:
        return complete(options)
    except (NetworkError, ToolchainError) as error:
        if not target.installed:
            raise
        _log.warning("%s; the installed torch and CUDA toolkit are used", error.message)
    toolkit = options.cuda_home or installed.find_cuda(environment.variables)
    options = LocalPartsOptions(
        torch_home=target.installed if "torch" in kinds else None,
        cuda_home=toolkit if "cuda" in kinds else None,
    )
    return complete(options)


# -- what the target says ------------------------------------------------------------------


def _standard(torch: str) -> int:
    """Minimum C++ standard of a torch's headers."""
    header = Path(torch, "include/ATen/ATen.h")
    text = header.read_text(errors="replace") if torch and header.is_file() else ""
    return max((int(number) for number in _STANDARD.findall(text)), default=17)


def _runtime(target: TorchTarget) -> str:
    """Soname of torch's CUDA runtime, which extensions share."""
    if target.cuda is None or target.cuda.major < _PLAIN_SONAME:
        return ""
    return f"libcudart.so.{target.cuda.major}"


def find_archs(
    cuda: Version2, environment: Environment, progress: Progress
) -> tuple[cuda_arch.Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``, else of this machine's GPUs, else the defaults."""
    if found := named_archs(environment) or _visible_gpus():
        return found
    listed = cuda_arch.defaults(cuda)
    if cuda in front_end.TOOLKITS and not environment.kernforge_cuda_home:
        listed = front_end.supported(listed, cuda)
    progress.note(
        f"no GPU on this machine: compiling for {', '.join(map(str, listed))} "
        "(TORCH_CUDA_ARCH_LIST, as 9.0, names fewer)"
    )
    return listed


def _visible_gpus() -> tuple[cuda_arch.Arch, ...]:
    """Compute capabilities of this machine's GPUs, by nvidia-smi."""
    argv = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    try:
        done = run(Command(argv=argv, timeout=20))
        lines = done.stdout.split() if done.returncode == 0 else []
        return tuple(sorted({cuda_arch.Arch.parse(line) for line in lines}))
    except (FileNotFoundError, ManifestError):
        return ()


def _named_trees(trees: dict[str, str], environment: Environment) -> Iterable[tuple[str, str]]:
    """Directories that a setup.py may name, with the name of their tree."""
    for name, path in trees.items():
        if name != "cxx":
            yield path, f"%{{{name}}}"
    torch = next((f"%{{{name}}}" for name in trees if name.startswith("torch-")), "")
    if torch and environment.kernforge_stand_in:
        yield environment.kernforge_stand_in, torch
    for name in ("include", "platinclude"):
        if "python" in trees:
            yield sysconfig.get_path(name), Tree("python").at()

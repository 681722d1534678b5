# SPDX-License-Identifier: Apache-2.0
"""Toolchain of this machine for its own torch: compiler, torch's headers, CUDA toolkit.

The toolkit is the installed one (``CUDA_HOME``, ``CUDA_PATH``, the nvcc on the PATH,
``/usr/local/cuda``) if its major version is torch's, else that of torch's CUDA from wheels.
"""

from __future__ import annotations

import functools
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor, fatbin
from kernforge.builder.workspace import this_cpu
from kernforge.errors import (
    BuildError,
    CheckError,
    ManifestError,
    ToolchainError,
    UsageError,
)
from kernforge.extension.plan import (
    TORCH,
    ExtensionMachine,
    ExtensionNeeds,
    ExtensionToolchain,
)
from kernforge.store.local import Store
from kernforge.system import extras
from kernforge.system.environment import Environment
from kernforge.system.machine import cores
from kernforge.system.process import run
from kernforge.toolchain import (
    cuda_arch,
    front_end,
    host_compiler,
    installed,
    resolver,
)
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.index.wheels import Progress, Wheels
from kernforge.toolchain.lockfile import Lock, Tree
from kernforge.toolchain.provision import Toolchains

_DEFAULT_CUDA = "13.0"
_OWN_CLASS = "__torch__"
_TOOLCHAIN_VARIABLES = (
    *("CXX", "PATH", "CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST", "KERNFORGE_HOME"),
    *("PIP_INDEX_URL", "PIP_CONFIG_FILE", "KERNFORGE_JIT_SLIM"),
)


def toolchain_variables(environment: Environment) -> tuple[str | None, ...]:
    """Values of the variables that choose the toolchain."""
    return tuple(environment.variables.get(name) for name in _TOOLCHAIN_VARIABLES)


def installed_directories(environment: Environment) -> tuple[str, ...]:
    """Directories of the toolchain: their headers are not the user's sources."""
    cuda = _cuda(_named(environment, "CUDA_HOME", "CUDA_PATH", "PATH"))
    python = (sysconfig.get_path("include"), sysconfig.get_path("platinclude"))
    return (*python, str(torch_package()), *([str(cuda), str(cuda.resolve())] if cuda else []))


def find_toolchain(
    environment: Environment, needs: ExtensionNeeds, progress: Progress
) -> ExtensionToolchain:
    """Find the compiler, headers and toolkit that a module needs.

    Args:
        progress: shows downloads.

    Raises:
        ToolchainError: a compiler, a toolkit or Python's headers are missing.
        UsageError: torch is not installed, or there is no GPU and ``TORCH_CUDA_ARCH_LIST`` does not
            say what to compile for.
    """
    torch = import_torch()
    store = Store(environment.home / "store")
    compiler = find_compiler(environment)
    package = Path(torch.__file__).resolve().parent
    trees = {"cxx": compiler.path, TORCH.name: str(package)}
    records = store.root / "compilers"
    lock = Lock(
        platform=f"{this_cpu()}-linux",
        compilers={"cxx": host_compiler.locked(compiler, run, records)},
        trees={TORCH.name: installed.identify_torch(package, records).locked},
    )
    if needs.python:
        trees["python"] = str(installed.python_headers())
        lock = lock.having(installed.identify_python())
    version: Version2 | None = None
    archs: tuple[str, ...] = ()
    if needs.cuda:
        version, lock, more = _find_cuda(
            environment, torch, lock, store, progress, libraries=needs.libraries
        )
        trees |= more
        gpus = _archs(environment, torch) if needs.device else ()
        front_end.require(lock.toolkit(version), (*gpus, *needs.archs))
        archs = tuple(word for arch in gpus for word in arch.gencode())
    named = abi_floor.torch_sonames("cuda" if needs.cuda else "cpu")
    machine = ExtensionMachine(
        torch=Version2.leading(torch.__version__) or Version2(0, 0),
        torch_cuda=Version2.parse(torch.version.cuda) if torch.version.cuda else None,
        sonames=tuple(name for name in named if (package / "lib" / name).is_file()),
        cuda=version,
        archs=archs,
        lock=lock,
        cpu=this_cpu(),
    )
    return ExtensionToolchain(machine=machine, store=store, trees=trees)


def find_compiler(environment: Environment) -> Compiler:
    """The C++ compiler.

    Raises:
        ToolchainError: there is none.
    """
    return _compiler(_named(environment, "CXX", "PATH"))


def _named(environment: Environment, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in names if (value := environment.variables.get(name)))


# Asking a compiler takes as long as a link.


@functools.cache
def _compiler(named: tuple[tuple[str, str], ...]) -> Compiler:
    return host_compiler.find(dict(named), run)


@functools.cache
def _cuda(named: tuple[tuple[str, str], ...]) -> Path | None:
    return installed.find_cuda(dict(named))


def torch_package() -> Path:
    """Directory of the installed torch, as it is imported."""
    return Path(import_torch().__file__).parent


def import_torch() -> Any:
    """The installed torch.

    Raises:
        MissingPackageError: there is none.
        UsageError: it cannot be imported.
    """
    try:
        import torch
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        if absent and (missing := extras.missing(error, "kernforge's JIT")):
            raise missing from None
        raise UsageError(
            f"torch cannot be imported: {error}", hint="reinstall it: pip install torch"
        ) from error
    return torch


def schema_mistake(schema: str) -> str:
    """Error of the installed torch for an operator's schema; empty if the schema is valid.

    Args:
        schema: as ``plus(Tensor x, float a) -> Tensor``.
    """
    if _OWN_CLASS in schema:  # It is registered only when the module is loaded.
        return ""
    try:
        # Without type variables, as in TORCH_LIBRARY.
        import_torch()._C.parse_schema(schema, False)  # noqa: SLF001
    except RuntimeError as error:
        said, _, place = str(error).strip().partition(":\n")
        said = said.partition(". Common valid")[0]
        return f'the schema "{schema}" is not valid: {said}\n{place}'.rstrip()
    except TypeError:  # A torch without that argument.
        return ""
    return ""


def _find_cuda(
    environment: Environment,
    torch: Any,
    lock: Lock,
    store: Store,
    progress: Progress,
    *,
    libraries: bool,
) -> tuple[Version2, Lock, dict[str, str]]:
    """The toolkit's version, the lock with it, and its trees."""
    wanted = torch.version.cuda
    path = _cuda(_named(environment, "CUDA_HOME", "CUDA_PATH", "PATH"))
    if path is not None:
        home = installed.identify_cuda(path, environment.variables, run)
        if wanted is None or home.version.major == Version2.parse(wanted).major:
            trees = {home.locked.name: str(home.directory(store))}
            return home.version, lock.having(home.locked), trees
        if environment.cuda_home or environment.cuda_path:
            raise ToolchainError(
                f"{path} is CUDA {home.locked.release}, and torch is built for CUDA {wanted}",
                hint="name a toolkit of that major version; if none is named, wheels bring one",
            )
    name = wanted or _DEFAULT_CUDA
    wheels = Wheels.of(environment.variables, store.root / "downloads", progress)
    needs = toolkit_needs(name, libraries=libraries)
    locked = resolver.complete(store.root.parent, needs.values(), wheels, cpu=this_cpu())
    toolchains = Toolchains(store, wheels)
    paths = {name: str(toolchains.path(tree)) for name, tree in locked.trees.items()}
    return Version2.parse(name), lock.merged(locked), paths


def toolkit_needs(cuda: str, *, libraries: bool) -> dict[str, Tree]:
    """The trees of a toolkit by name, with the headers of CUDA's libraries or without."""
    kinds = ("cuda", "cuda-libraries") if libraries else ("cuda",)
    trees = (Tree(kind, cuda) for kind in kinds)
    return {tree.name: tree for tree in trees}


def jobs(environment: Environment) -> int:
    """How many actions run at once: ``MAX_JOBS``, as for torch's loader, else one for each core.

    Raises:
        UsageError: ``MAX_JOBS`` is not a number.
    """
    given = (environment.max_jobs or "").strip()
    if given and not given.isdecimal():
        raise UsageError(
            f"MAX_JOBS is {given!r}",
            hint="set it to how many compilers may run at once; without it, one runs per core",
        )
    return int(given or 0) or cores()


def named_archs(environment: Environment) -> tuple[cuda_arch.Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``; empty if the variable is unset or ``native``.

    Raises:
        UsageError: it is not a list of compute capabilities.
    """
    named = (environment.torch_cuda_arch_list or "").strip()
    if named in {"", "native"}:
        return ()
    try:
        return cuda_arch.listed(named)
    except ManifestError as error:
        raise UsageError(error.message, hint=error.hint) from error


def _archs(environment: Environment, torch: Any) -> tuple[cuda_arch.Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``, else of the visible GPUs."""
    if named := named_archs(environment):
        return named
    if not (gpus := _gpus(torch)):
        raise UsageError(
            "no GPU is visible, and TORCH_CUDA_ARCH_LIST names no compute capability",
            hint="set TORCH_CUDA_ARCH_LIST to that of the GPU to compile for, as 9.0",
        )
    return tuple(cuda_arch.Arch(gpu.major, gpu.minor) for gpu in gpus)


def _gpus(torch: Any) -> list[Version2]:
    """Compute capabilities of the GPUs that this process sees."""
    count = torch.cuda.device_count()
    return sorted({Version2(*torch.cuda.get_device_capability(number)) for number in range(count)})


def require_device_code(name: str, module: Path, torch: Any) -> None:
    """Refuse a module without code for the GPUs of this process: its launches would do nothing.

    Raises:
        BuildError: none of its device code runs on any of them.
    """
    if torch.version.cuda is None or not torch.cuda.is_available():
        return
    gpus = _gpus(torch)
    try:
        has = fatbin.architectures(module.read_bytes())
    except CheckError:  # of a toolkit that is newer than this reader
        return
    archs = [cuda_arch.Arch.parse(text) for text in has.cubins]
    archs += [replace(cuda_arch.Arch.parse(text), ptx=True) for text in has.ptx]
    if archs and not any(arch.serves(gpu) for arch in archs for gpu in gpus):
        made_for, here = (", ".join(map(str, each)) for each in (archs, gpus))
        raise BuildError(
            f"{name} has device code for {made_for}, and the GPU here is of {here}: it would not "
            "run",
            hint=f"add {gpus[0]} to TORCH_CUDA_ARCH_LIST, or unset it, or change -gencode in "
            "extra_cuda_cflags",
        )

# SPDX-License-Identifier: Apache-2.0
"""Toolchain of this machine for its own torch: compiler, torch's headers, CUDA toolkit.

The toolkit is the installed one (``CUDA_HOME``, ``CUDA_PATH``, the nvcc on the PATH,
``/usr/local/cuda``) if its major version is torch's, else that of torch's CUDA from wheels.
"""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path
from typing import Any

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.builder.workspace import this_cpu
from kernforge.errors import ToolchainError, UsageError
from kernforge.extension.plan import ExtensionMachine, ExtensionNeeds
from kernforge.store.local import Store
from kernforge.system import extras
from kernforge.system.environment import Environment
from kernforge.system.machine import cores
from kernforge.system.process import run
from kernforge.system.progress import Progress
from kernforge.toolchain import cuda_arch, front_end, host_compiler, installed, resolver, used
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock, Tree
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.releases import USUAL
from kernforge.toolchain.resolver import Policy

_OWN_CLASS = "__torch__"
_TOOLCHAIN_VARIABLES = (
    *("CXX", "PATH", "CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST", "KERNFORGE_HOME"),
    *("PIP_INDEX_URL", "PIP_CONFIG_FILE"),
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
) -> ExtensionMachine:
    """Find the compiler, headers and toolkit that a module of this process needs."""
    torch = import_torch()
    package = Path(torch.__file__).resolve().parent
    series = Version2.leading(torch.__version__) or Version2(0, 0)
    torch_cuda = Version2.parse(torch.version.cuda) if torch.version.cuda else None
    parts = {}
    if needs.torch:
        parts["torch"] = installed.identify_torch(package, environment.compilers)
    compiler, cuda = find_compiler(environment), torch_cuda or USUAL if needs.cuda else None
    library_path = compiler.library_path
    recorded = used.toolkit(environment.home, torch_cuda) if cuda and compiler.refusal else None
    if recorded:
        cuda = recorded
    elif cuda and (home := _installed_toolkit(environment, torch_cuda)):
        parts["cuda"], cuda = home, home.version
        library_path = library_path or home.library_path
    if needs.python:
        python = used.find_python(environment.home, compiler)
        parts["python"] = LocalTree(locked=python, path=Path(sysconfig.get_path("include")))
    lock, trees = provide(
        environment, needs, LocalParts(trees=parts), progress, torch=series, cuda=cuda
    )
    archs = _archs(environment, torch) if cuda and needs.device else ()
    if cuda:
        front_end.require(lock.toolkit(cuda), archs)
    named = abi_floor.torch_sonames("cuda" if needs.cuda else "cpu")
    return ExtensionMachine(
        torch=series,
        torch_cuda=torch_cuda,
        sonames=tuple(name for name in named if (package / "lib" / name).is_file()),
        cuda=cuda,
        archs=tuple(word for arch in archs for word in arch.gencode()),
        lock=lock,
        cpu=this_cpu(),
        refusal=compiler.refusal,
        library_path=library_path,
        paths=trees,
    )


def provide(
    environment: Environment,
    needs: ExtensionNeeds,
    parts: LocalParts,
    progress: Progress,
    *,
    torch: Version2,
    cuda: Version2 | None,
) -> tuple[Lock, dict[str, str]]:
    """Lock and real paths of compiler, headers and toolkit; what is missing is fetched.

    Where nothing can be compiled, they are those that the store was last used with.

    Args:
        cuda: version of the toolkit, if one is needed.
    """
    store, compiler = Store(environment.store), find_compiler(environment)
    wheels = Wheels.of(environment.variables, store.root / "downloads", progress)
    wanted = [Tree.of("torch", torch)] if needs.torch else []
    wanted += [Tree("python")] if needs.python else []
    if cuda:
        kinds = ("cuda", "cuda-libraries") if needs.libraries else ("cuda",)
        wanted += [Tree.of(kind, cuda) for kind in kinds]
    policy = Policy.USED if compiler.refusal and used.read(environment.home) else Policy.KNOWN
    lock = resolver.provide(
        wanted,
        wheels,
        policy,
        home=environment.home,
        cpu=this_cpu(),
        compilers={"cxx": host_compiler.locked(compiler, run, environment.compilers)},
        local_parts=parts,
    )
    toolchains = Toolchains(store, wheels, parts)
    place = toolchains.planned_path if policy is Policy.USED else toolchains.path
    paths = {name: str(place(tree)) for name, tree in lock.trees.items()}
    if not compiler.refusal:
        used.record(environment.home, lock)
    return lock, {"cxx": compiler.path, **paths}


def find_compiler(environment: Environment) -> Compiler:
    """The C++ compiler."""
    named = _named(environment, "CXX", "PATH", "LD_LIBRARY_PATH")
    return _compiler(named, environment.home, environment.may_compile)


def _named(environment: Environment, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in names if (value := environment.variables.get(name)))


# Asking a compiler takes as long as a link.


@functools.cache
def _compiler(named: tuple[tuple[str, str], ...], home: Path, compiles: bool) -> Compiler:  # noqa: FBT001
    return used.find_compiler(dict(named), home, run, compiles=compiles)


@functools.cache
def _cuda(named: tuple[tuple[str, str], ...]) -> Path | None:
    return installed.find_cuda(dict(named))


def torch_package() -> Path:
    """Directory of the installed torch, as it is imported."""
    return Path(import_torch().__file__).parent


def import_torch() -> Any:
    """The installed torch."""
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


def _installed_toolkit(environment: Environment, torch: Version2 | None) -> LocalTree | None:
    """The installed toolkit, if its major version is torch's or torch is a build for the CPU."""
    path = _cuda(_named(environment, "CUDA_HOME", "CUDA_PATH", "PATH"))
    if path is None:
        return None
    home = installed.identify_cuda(path, environment.variables, run)
    if torch is None or home.version.major == torch.major:
        return home
    if environment.cuda_home or environment.cuda_path:
        raise ToolchainError(
            f"{path} is CUDA {home.locked.release}, and torch is built for CUDA {torch}",
            hint="name a toolkit of that major version; if none is named, wheels bring one",
        )
    return None


def jobs(environment: Environment) -> int:
    """How many actions run at once: ``MAX_JOBS``, as for torch's loader, else one for each core."""
    given = (environment.max_jobs or "").strip()
    if given and not given.isdecimal():
        raise UsageError(
            f"MAX_JOBS is {given!r}",
            hint="set it to how many compilers may run at once; without it, one runs per core",
        )
    return int(given or 0) or cores()


def named_archs(environment: Environment) -> tuple[Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``; empty if the variable is unset or ``native``."""
    named = (environment.torch_cuda_arch_list or "").strip()
    return () if named in {"", "native"} else cuda_arch.listed(named)


def _archs(environment: Environment, torch: Any) -> tuple[Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``, else of the visible GPUs."""
    count = torch.cuda.device_count()
    gpus = sorted({Version2(*torch.cuda.get_device_capability(n)) for n in range(count)})
    archs = named_archs(environment) or tuple(Arch(*gpu) for gpu in gpus)
    if not archs:
        raise UsageError(
            "no GPU is visible, and TORCH_CUDA_ARCH_LIST names no compute capability",
            hint="set TORCH_CUDA_ARCH_LIST to that of the GPU to compile for, as 9.0",
        )
    if gpus and not any(arch.serves(gpu) for arch in archs for gpu in gpus):
        made_for, here = (", ".join(map(str, each)) for each in (archs, gpus))
        raise UsageError(
            f"TORCH_CUDA_ARCH_LIST asks for device code for {made_for}, and the GPU here is of "
            f"{here}: it would not run",
            hint=f"add {gpus[0]} to TORCH_CUDA_ARCH_LIST, or unset it",
        )
    return archs
